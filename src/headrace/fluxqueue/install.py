"""The objects that install the cluster queue: definitions, account and roles, Deployment and webhook. Pure.

The roles allow only what the queue does: it reads pods, nodes and namespaces, and changes of objects only what holds
and releases them. Sources: API reference of Kubernetes 1.34 (rbac, apps, admissionregistration v1), its Pod Security
Standards ("restricted").
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..kube.builders.images import UNPRIVILEGED
from ..kube.install import DEFAULT_IMAGE, RESOURCES
from ..kube.runtime.kinds import LEASES, MUTATING, PODS, SECRETS
from ..kube.yaml_text import yaml_text
from .crd import definitions
from .names import (
    BINDINGS,
    CLAIMS,
    CONFIGURATION,
    DEFAULT_NAMESPACE,
    FLUXJOBS,
    FLUXQUEUE,
    FLUXQUEUES,
    GROUP,
    HEALTH_PORT,
    HOLD_PATH,
    METRICS_PORT,
    NAMESPACES,
    NODES,
    PRIORITY_CLASSES,
    QUEUE,
    WEBHOOK,
    WEBHOOK_PORT,
)
from .store.database import Address
from .workloads import others, reviewed

Object = dict[str, Any]

_LABELS = {"app.kubernetes.io/name": FLUXQUEUE}
_RBAC = "rbac.authorization.k8s.io"
# Where the pod has the folder of a store in a file, and the password of one in a database.
_STATE = "/var/lib/fluxqueue"
_PASSWORD = "/etc/fluxqueue-store"
_READ = ["get", "list", "watch"]


class Install(Struct, frozen=True, kw_only=True):
    """The choices of an installation. `replicas` is the number of processes; one of them acts, all of them serve the
    webhook. `failure_policy` is what the API server does about objects in labelled namespaces while none answers:
    "Fail" refuses them, "Ignore" lets them run at once.

    The store is the database of PostgreSQL with the address `store`, whose password is under the key `password` of the
    Secret `store_secret` ("" for none); or a file of SQLite in the volume of the claim `store_claim`, for one process.
    """

    namespace: str = DEFAULT_NAMESPACE
    image: str = DEFAULT_IMAGE
    replicas: int = 1
    failure_policy: str = "Fail"
    store: str = ""
    store_secret: str = ""
    store_claim: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.store:
            if self.store_claim:
                raise ValueError("there is one store: a database, or a file in a volume of a claim")
            if Address(self.store).path:
                raise ValueError(f"{self.store}: a file needs a volume that outlasts the pod: name its claim instead")
        elif self.store_secret:
            raise ValueError("the Secret has the password of a database: name that, too")
        if self.store_claim and self.replicas > 1:
            raise ValueError(f"a file is the store of one process, not of {self.replicas}: use PostgreSQL")


def install_file(install: Install) -> str:
    """All objects in one text, for `kubectl apply --server-side -f`."""
    return yaml_text(objects(install))


def objects(install: Install) -> list[Object]:
    """All objects in the order in which they are applied."""
    space = {"name": install.namespace, "labels": {**_LABELS, "pod-security.kubernetes.io/enforce": "restricted"}}
    return [
        *definitions(),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": space},
        *access(install),
        *workload(install),
        *webhook(install),
    ]


def _metadata(name: str, namespace: str = "") -> Object:
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": dict(_LABELS)}


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
        _rule([FLUXJOBS], ["patch"]),
        _rule([FLUXJOBS, FLUXQUEUES], ["patch"], part="/status"),
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
        _rule([MUTATING], [*_READ, "patch"], [CONFIGURATION]),
    ]
    own = [
        # Those of matches for other schedulers.
        _rule([FLUXJOBS], ["delete"]),
        _rule([LEASES], ["create"]),
        _rule([LEASES], ["get", "update"], [FLUXQUEUE]),
        _rule([SECRETS], ["create"]),
        _rule([SECRETS], ["get", "update"], [WEBHOOK]),
    ]
    view: Object = {
        **{"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": _metadata(f"{FLUXQUEUE}-view")},
        "rules": [_rule([FLUXJOBS, FLUXQUEUES], _READ)],
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
    """The Deployment."""
    ports = {"metrics": METRICS_PORT, "health": HEALTH_PORT, "webhook": WEBHOOK_PORT}
    words = ["headrace", "fluxqueue", "run", *(f"--{name}-bind=:{port}" for name, port in ports.items())]
    store, mounts, volumes = _store(install)
    container = {
        **{"name": "fluxqueue", "image": install.image, "command": [*words, *store], "resources": RESOURCES},
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 2},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *mounts],
    }
    pod = {
        "serviceAccountName": FLUXQUEUE,
        "automountServiceAccountToken": True,
        "securityContext": {
            **{"runAsNonRoot": True, "runAsUser": UNPRIVILEGED, "seccompProfile": {"type": "RuntimeDefault"}},
            # Volumes are the process's to read, and a claim's to write.
            **({"fsGroup": UNPRIVILEGED} if volumes else {}),
        },
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *volumes],
        # The Lease is released when the process ends.
        "terminationGracePeriodSeconds": 10,
    }
    spec = {
        "replicas": install.replicas,
        # Of two processes, the second could not have the claim's volume.
        **({"strategy": {"type": "Recreate"}} if install.store_claim else {}),
        "selector": {"matchLabels": dict(_LABELS)},
        "template": {"metadata": {"labels": dict(_LABELS)}, "spec": pod},
    }
    metadata = _metadata(FLUXQUEUE, install.namespace)
    return [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}]


def _store(install: Install) -> tuple[list[str], list[Object], list[Object]]:
    """The options of the program that name its store, with the mounts and volumes that these take."""
    if install.store_claim:
        claim = {"name": "store", "persistentVolumeClaim": {"claimName": install.store_claim}}
        return [f"--statedir={_STATE}"], [{"name": "store", "mountPath": _STATE}], [claim]
    if not install.store_secret:
        return [f"--store={install.store}"] if install.store else [], [], []
    files = {"secretName": install.store_secret, "items": [{"key": "password", "path": "password"}]}
    secret = {"name": "store-password", "secret": {**files, "defaultMode": 0o440}}
    mount = {"name": "store-password", "mountPath": _PASSWORD, "readOnly": True}
    return [f"--store={install.store}", f"--store-password-file={_PASSWORD}/password"], [mount], [secret]


def webhook(install: Install) -> list[Object]:
    """The Service and the configuration of the webhook."""
    spec = {"selector": dict(_LABELS), "ports": [{"port": 443, "targetPort": "webhook"}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(WEBHOOK, install.namespace), "spec": spec}
    address = {"namespace": install.namespace, "name": WEBHOOK, "path": HOLD_PATH, "port": 443}
    return [service, configuration({"service": address}, install)]


def configuration(client: Object, install: Install) -> Object:
    """The webhook configuration; `client` is how the API server reaches the webhook (`clientConfig`).

    Only creations in labelled namespaces are reviewed, and never those of the system's namespaces and of the queue's
    own: a cluster whose queue is away can start what brings it back.
    """
    kinds = [one.kind for one in reviewed()]
    rules = [
        {
            **{"apiGroups": [kind.group], "apiVersions": [kind.version], "operations": ["CREATE"]},
            **{"resources": [kind.plural], "scope": "Namespaced"},
        }
        for kind in kinds
    ]
    never = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", install.namespace]}
    hook: Object = {
        **{"name": f"hold.fluxqueue.{GROUP}", "clientConfig": client, "rules": rules},
        "namespaceSelector": {"matchExpressions": [{"key": QUEUE, "operator": "Exists"}, never]},
        "failurePolicy": install.failure_policy,
        "sideEffects": "None",
        "reinvocationPolicy": "IfNeeded",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
    }
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": MUTATING.kind}
    return {**head, "metadata": _metadata(CONFIGURATION), "webhooks": [hook]}
