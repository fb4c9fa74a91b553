"""The objects that install the cluster queue: definitions, account and roles, Deployment and webhook. Pure.

The roles allow only what the queue does: it reads pods, nodes and namespaces, and changes of objects only what holds
and releases them. Sources: API reference of Kubernetes 1.34 (rbac, apps, admissionregistration v1), its Pod Security
Standards ("restricted").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from headrace.cluster_queue.crd import definitions
from headrace.cluster_queue.names import (
    ACCESS_REVIEWS,
    BINDINGS,
    CLAIMS,
    CONFIGURATION,
    DEFAULT_NAMESPACE,
    DEFAULT_QUEUE,
    FLUXHISTORIES,
    FLUXJOBS,
    FLUXQUEUE,
    FLUXQUEUES,
    GROUP,
    GRPC_PORT,
    HEALTH_PORT,
    HISTORY_POLICY,
    HOLD_PATH,
    METRICS_PORT,
    NAMESPACES,
    NODES,
    POLICIES,
    POLICY_BINDINGS,
    PRIORITY_CLASSES,
    WEBHOOK,
    WEBHOOK_PORT,
)
from headrace.cluster_queue.policies import (
    LABELS,
    fluxjob_policy,
    held_namespaces,
    held_policy,
    history_policy,
    order_policy,
)
from headrace.cluster_queue.store.database import Address
from headrace.cluster_queue.workloads import KINDS, others
from headrace.k8s.objects.kinds import LEASES, MUTATING, PODS, SECRETS
from headrace.k8s.packaging.images import DEFAULT_OPERATOR, RESOURCES, UNPRIVILEGED

Object = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"
# Where the pod has the folder of a store in a file, and the password of one in a database.
_STATE = "/var/lib/fluxqueue"
_PASSWORD = "/etc/fluxqueue-store"
# Where it has the certificate of the gRPC services, and the authority of their clients' certificates.
_GRPC = "/etc/fluxqueue-grpc"
_GRPC_CLIENTS = "/etc/fluxqueue-grpc-clients"
_READ = ["get", "list", "watch"]
# A message of 64 MiB takes a few times that until it is answered.
GRPC_RESOURCES: Object = {**RESOURCES, "limits": {**RESOURCES["limits"], "memory": "1Gi"}}


# True for creations, and for changes of templates of pods (CEL). Of a kind without `spec.template` each change of the
# spec counts. So scaling a Deployment or resuming a Job needs no answer of the webhook.
_OTHER_TEMPLATE = "object.?spec.?template.orValue({}) != oldObject.?spec.?template.orValue({})"
_OTHER_SPEC = "object.?spec.orValue({}) != oldObject.?spec.orValue({})"
_MAKES_OTHER_PODS = (
    f"request.operation == 'CREATE' || (object.?spec.?template.hasValue() ? {_OTHER_TEMPLATE} : {_OTHER_SPEC})"
)


class Install(Struct, frozen=True, kw_only=True):
    """The choices of an installation. `replicas` is the number of processes; one of them acts, all of them serve the
    webhook. `failure_policy` is what the API server does about objects in labelled namespaces while none answers:
    "Fail" refuses them, "Ignore" lets them run at once. `strict`: it refuses there what passes by the order.

    The store is the database of PostgreSQL with the address `store`, whose password is under the key `password` of the
    Secret `store_secret` ("" for none); or a file of SQLite in the volume of the claim `store_claim`, for one process.

    With `grpc`, a Service has the gRPC services on the nodes of the FluxQueue `grpc_queue`. Their certificate and key
    are `tls.crt` and `tls.key` of the Secret `grpc_secret` ("": no TLS); with `grpc_client_secret`, clients need a
    certificate that `ca.crt` of that Secret has signed.

    `resources` are those of the container (core/v1); with {}, `RESOURCES`, or `GRPC_RESOURCES` with `grpc`. They may be
    a template of a renderer, and so may texts; `check` says what is wrong with others.
    """

    namespace: str = DEFAULT_NAMESPACE
    image: str = DEFAULT_OPERATOR
    replicas: int | str = 1
    resources: Object | str = field(default_factory=dict)
    failure_policy: str = "Fail"
    strict: bool = False
    store: str = ""
    store_secret: str = ""
    store_claim: str = ""
    grpc: bool = False
    grpc_queue: str = DEFAULT_QUEUE
    grpc_secret: str = ""
    grpc_client_secret: str = ""


def check(install: Install) -> None:
    """Raises ValueError for choices that do not go together."""
    if install.store:
        if install.store_claim:
            raise ValueError("there is one store: a database, or a file in a volume of a claim")
        if Address(install.store).path:
            raise ValueError(f"{install.store}: a file needs a volume that outlasts the pod: name its claim instead")
    elif install.store_secret:
        raise ValueError("the Secret has the password of a database: name that, too")
    if install.grpc_client_secret and not install.grpc_secret:
        raise ValueError("clients have certificates where the server has one: name the Secret of that, too")
    if (install.grpc_secret or install.grpc_queue != DEFAULT_QUEUE) and not install.grpc:
        raise ValueError("without gRPC there is no queue for it, and no certificate")
    if int(install.replicas) > 1:
        if install.store_claim:
            raise ValueError(f"a file is the store of one process, not of {install.replicas}: use PostgreSQL")
        if install.grpc:
            raise ValueError(f"gRPC is answered by one process, not by {install.replicas}")


def objects(install: Install) -> list[Object]:
    """All objects in the order in which they are applied."""
    return [
        *definitions(),
        namespace_object(install),
        *policies(install),
        *(order_policy(install.namespace) if install.strict else ()),
        *access(install),
        *workload(install),
        *webhook(install),
    ]


def policies(install: Install) -> list[Object]:
    """What the API server itself checks in each installation."""
    return [*history_policy(), *fluxjob_policy(install.namespace), *held_policy(install.namespace)]


def namespace_object(install: Install) -> Object:
    labels = {**LABELS, "pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": install.namespace, "labels": labels}}


def _metadata(name: str, namespace: str = "") -> Object:
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": dict(LABELS)}


def _rule(kinds: Any, verbs: list[str], names: list[str] | None = None, part: str = "") -> Object:
    rule = {
        "apiGroups": sorted({kind.group for kind in kinds}),
        "resources": [f"{kind.plural}{part}" for kind in kinds],
        "verbs": verbs,
    }
    return {**rule, "resourceNames": names} if names else rule


def access(install: Install) -> list[Object]:
    """The service account, its roles and their bindings, and what users may read."""
    account = {
        **{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(FLUXQUEUE, install.namespace)},
        # The Deployment mounts the token itself.
        "automountServiceAccountToken": False,
    }
    cluster = [
        _rule([NODES, NAMESPACES], _READ),
        _rule([PRIORITY_CLASSES], _READ),
        _rule([CLAIMS], _READ),
        _rule([BINDINGS], ["create"]),
        _rule([PODS], [*_READ, "patch", "delete"]),
        *(_rule([one.kind], [*_READ, "patch"] if one.suspend else _READ) for one in others()),
        _rule([FLUXJOBS, FLUXQUEUES], [*_READ, "create"]),
        _rule([FLUXJOBS], ["patch", "delete"]),
        _rule([FLUXJOBS, FLUXQUEUES], ["patch"], part="/status"),
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
        _rule([MUTATING], [*_READ, "patch"], [CONFIGURATION]),
        _rule([FLUXHISTORIES], [*_READ, "delete"]),
        _rule([FLUXHISTORIES], ["patch"], part="/status"),
        _rule([POLICIES, POLICY_BINDINGS], ["get"], [HISTORY_POLICY]),
        _rule([ACCESS_REVIEWS], ["create"]),
    ]
    own = [
        _rule([LEASES], ["create"]),
        _rule([LEASES], ["get", "update"], [FLUXQUEUE]),
        _rule([SECRETS], ["create"]),
        _rule([SECRETS], ["get", "update"], [WEBHOOK]),
    ]
    view: Object = {
        **{"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": _metadata(f"{FLUXQUEUE}-view")},
        # The names of FluxHistories are secrets of those who ask, so there is no right to list or watch these.
        "rules": [_rule([FLUXJOBS, FLUXQUEUES], _READ), _rule([FLUXHISTORIES], ["create", "get", "delete"])],
    }
    for role in ("view", "edit", "admin"):
        view["metadata"]["labels"][f"{_RBAC}/aggregate-to-{role}"] = "true"
    return [account, *_granted(install, "", cluster), *_granted(install, install.namespace, own), view]


def _granted(install: Install, namespace: str, rules: list[Object]) -> list[Object]:
    """A role and its binding to the account, for the whole cluster if `namespace` is ""."""
    prefix, metadata = "" if namespace else "Cluster", _metadata(FLUXQUEUE, namespace)
    role = {"apiVersion": f"{_RBAC}/v1", "kind": f"{prefix}Role", "metadata": metadata, "rules": rules}
    binding = {
        **{"apiVersion": f"{_RBAC}/v1", "kind": f"{prefix}RoleBinding", "metadata": metadata},
        "roleRef": {"apiGroup": _RBAC, "kind": f"{prefix}Role", "name": FLUXQUEUE},
        "subjects": [{"kind": "ServiceAccount", "name": FLUXQUEUE, "namespace": install.namespace}],
    }
    return [role, binding]


def workload(install: Install) -> list[Object]:
    """The Deployment, and the Services of its metrics and of gRPC."""
    ports = {"metrics": METRICS_PORT, "health": HEALTH_PORT, "webhook": WEBHOOK_PORT}
    words = ["headrace", "fluxqueue", "run", *(f"--{name}-bind=:{port}" for name, port in ports.items())]
    parts = [_store(install), *(_grpc(install) if install.grpc else ())]
    if install.grpc:
        ports["grpc"] = GRPC_PORT
    resources = install.resources or (GRPC_RESOURCES if install.grpc else RESOURCES)
    container = {
        **{"name": "fluxqueue", "image": install.image, "resources": resources},
        "command": [*words, *(option for part in parts for option in part.options)],
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 2},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *(one for part in parts for one in part.mounts)],
    }
    pod = {
        "serviceAccountName": FLUXQUEUE,
        "automountServiceAccountToken": True,
        "securityContext": {
            **{"runAsNonRoot": True, "runAsUser": UNPRIVILEGED, "seccompProfile": {"type": "RuntimeDefault"}},
            # Volumes are the process's to read, and a claim's to write.
            "fsGroup": UNPRIVILEGED,
        },
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *(one for part in parts for one in part.volumes)],
        # The Lease is released when the process ends.
        "terminationGracePeriodSeconds": 10,
    }
    spec = {
        "replicas": install.replicas,
        # Of two processes, the second could not have the claim's volume.
        **({"strategy": {"type": "Recreate"}} if install.store_claim else {}),
        "selector": {"matchLabels": dict(LABELS)},
        "template": {"metadata": {"labels": dict(LABELS)}, "spec": pod},
    }
    metadata = _metadata(FLUXQUEUE, install.namespace)
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    found = [deployment, _service(install, "metrics", METRICS_PORT)]
    return [*found, _service(install, "grpc", GRPC_PORT)] if install.grpc else found


def _service(install: Install, name: str, port: int) -> Object:
    spec = {"selector": dict(LABELS), "ports": [{"name": name, "port": port, "targetPort": name}]}
    metadata = _metadata(f"{FLUXQUEUE}-{name}", install.namespace)
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


class _Part(NamedTuple):
    """What a choice of an installation adds to the program: options, and the mounts and volumes that these take."""

    options: list[str]
    mounts: Sequence[Object] = ()
    volumes: Sequence[Object] = ()


def _secret(name: str, secret: str, folder: str, keys: tuple[str, ...], options: list[str]) -> _Part:
    """Files of a Secret in a folder, which `options` name."""
    items = [{"key": key, "path": key} for key in keys]
    volume = {"name": name, "secret": {"secretName": secret, "items": items, "defaultMode": 0o440}}
    return _Part(options, [{"name": name, "mountPath": folder, "readOnly": True}], [volume])


def _store(install: Install) -> _Part:
    if install.store_claim:
        claim = {"name": "store", "persistentVolumeClaim": {"claimName": install.store_claim}}
        return _Part([f"--statedir={_STATE}"], [{"name": "store", "mountPath": _STATE}], [claim])
    if not install.store:
        return _Part([])
    option = f"--store={install.store}"
    if not install.store_secret:
        return _Part([option])
    options = [option, f"--store-password-file={_PASSWORD}/password"]
    return _secret("store-password", install.store_secret, _PASSWORD, ("password",), options)


def _grpc(install: Install) -> Iterator[_Part]:
    yield _Part([f"--grpc=:{GRPC_PORT}", f"--grpc-queue={install.grpc_queue}"])
    if install.grpc_secret:
        options = [f"--grpc-tls-cert={_GRPC}/tls.crt", f"--grpc-tls-key={_GRPC}/tls.key"]
        yield _secret("grpc", install.grpc_secret, _GRPC, ("tls.crt", "tls.key"), options)
        if install.grpc_client_secret:
            options = [f"--grpc-client-ca={_GRPC_CLIENTS}/ca.crt"]
            yield _secret("grpc-clients", install.grpc_client_secret, _GRPC_CLIENTS, ("ca.crt",), options)


def webhook(install: Install) -> list[Object]:
    """The Service and the configuration of the webhook."""
    spec = {"selector": dict(LABELS), "ports": [{"port": 443, "targetPort": "webhook"}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(WEBHOOK, install.namespace), "spec": spec}
    address = {"namespace": install.namespace, "name": WEBHOOK, "path": HOLD_PATH, "port": 443}
    return [service, configuration({"service": address}, install)]


def configuration(client: Object, install: Install) -> Object:
    """The webhook configuration; `client` is how the API server reaches the webhook (`clientConfig`). In the namespaces
    of queues, creations are reviewed, and changes by which the pods to come may be others.
    """
    rules = [
        {
            **{"apiGroups": [kind.group], "apiVersions": [kind.version]},
            **{"operations": ["CREATE"] if kind == PODS else ["CREATE", "UPDATE"]},
            **{"resources": [kind.plural], "scope": "Namespaced"},
        }
        for kind in (one.kind for one in KINDS.values())
    ]
    hook: Object = {
        **{"name": f"hold.fluxqueue.{GROUP}", "clientConfig": client, "rules": rules},
        "namespaceSelector": held_namespaces(install.namespace),
        "matchConditions": [{"name": "new-pods", "expression": _MAKES_OTHER_PODS}],
        "failurePolicy": install.failure_policy,
        "sideEffects": "None",
        "reinvocationPolicy": "IfNeeded",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
    }
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": MUTATING.kind}
    return {**head, "metadata": _metadata(CONFIGURATION), "webhooks": [hook]}
