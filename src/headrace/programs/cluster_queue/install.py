"""The objects that install the cluster queue: definitions, account, roles, Deployment, webhook. Pure.

The roles allow only what the queue does: it reads pods, nodes and namespaces, and it changes only the fields of objects
that hold and release them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

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
    fluxjob_policy,
    held_namespaces,
    held_policy,
    history_policy,
    order_policy,
)
from headrace.cluster_queue.store.database import Address
from headrace.cluster_queue.workloads import KINDS, others
from headrace.k8s.objects.kinds import EVENTS, LEASES, MUTATING, PODS, SECRETS
from headrace.k8s.packaging.component import READ, Component, Part, rule, secret_part, webhook_rule
from headrace.k8s.packaging.images import DEFAULT_OPERATOR, RESOURCES, UNPRIVILEGED

Object = dict[str, Any]

# Mounts in the pod: the folder of a SQLite store, and the password of a PostgreSQL store.
_STATE = "/var/lib/fluxqueue"
_PASSWORD = "/etc/fluxqueue-store"
# Mounts in the pod: the certificate of the gRPC services, and the authority of their clients' certificates.
_GRPC = "/etc/fluxqueue-grpc"
_GRPC_CLIENTS = "/etc/fluxqueue-grpc-clients"
# A message of 64 MiB takes a few times as much memory until its response is sent.
GRPC_RESOURCES: Object = {**RESOURCES, "limits": {**RESOURCES["limits"], "memory": "1Gi"}}


# A CEL expression, true for creations and for changes of a pod template. For a kind without `spec.template`, any change
# of the spec counts. Thus the webhook is not called to scale a Deployment or to resume a Job.
_OTHER_TEMPLATE = "object.?spec.?template.orValue({}) != oldObject.?spec.?template.orValue({})"
_OTHER_SPEC = "object.?spec.orValue({}) != oldObject.?spec.orValue({})"
_MAKES_OTHER_PODS = (
    f"request.operation == 'CREATE' || (object.?spec.?template.hasValue() ? {_OTHER_TEMPLATE} : {_OTHER_SPEC})"
)


class Install(Struct, frozen=True, kw_only=True):
    """The options of an installation.

    `replicas` is the number of pods: the leader runs the queue, and all serve the webhook. `failure_policy` is how the
    API server treats objects in labelled namespaces while no pod of the queue responds: "Fail" rejects them, "Ignore"
    lets them run at once. With `strict`, it rejects objects there that would bypass the queue's order.

    The store is the database of PostgreSQL with the address `store`, whose password is under the key `password` of the
    Secret `store_secret` ("" for none); or a file of SQLite in the volume of the claim `store_claim`, for one process.

    With `grpc`, a Service offers the gRPC services for the nodes of the FluxQueue `grpc_queue`. Their certificate and
    key are `tls.crt` and `tls.key` of the Secret `grpc_secret` ("": no TLS). With `grpc_client_secret`, clients need a
    certificate that `ca.crt` of that Secret has signed.

    `resources` are those of the container (core/v1); with {}, `RESOURCES`, or `GRPC_RESOURCES` with `grpc`. Texts and
    `resources` may be templates of a renderer. Other options must pass `check`.
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
    """Raise ValueError for options that conflict."""
    if install.store:
        if install.store_claim:
            raise ValueError("choose one store: a database, or a file in the volume of a claim")
        if Address(install.store).path:
            raise ValueError(f"{install.store}: a file needs a volume that outlives the pod: name its claim instead")
    elif install.store_secret:
        raise ValueError("the Secret has the password of a database: give the database, too")
    if install.grpc_client_secret and not install.grpc_secret:
        raise ValueError("certificates of clients need a certificate of the server: give its Secret, too")
    if (install.grpc_secret or install.grpc_queue != DEFAULT_QUEUE) and not install.grpc:
        raise ValueError("a queue or certificate for gRPC needs gRPC to be enabled")
    if int(install.replicas) > 1:
        if install.store_claim:
            raise ValueError(f"a file can be the store of one process only, not of {install.replicas}: use PostgreSQL")
        if install.grpc:
            raise ValueError(f"gRPC can be served by one process only, not by {install.replicas}")


def component(install: Install) -> Component:
    return Component(FLUXQUEUE, install.namespace)


def policies(install: Install) -> list[Object]:
    """The admission policies of each installation, which the API server itself evaluates."""
    return [*history_policy(), *fluxjob_policy(install.namespace), *held_policy(install.namespace)]


def order(install: Install) -> list[Object]:
    """The admission policies of a `strict` installation."""
    return order_policy(install.namespace) if install.strict else []


def access(install: Install) -> list[Object]:
    """The service account, its roles and their bindings, and the rights of users."""
    fluxqueue = component(install)
    cluster = [
        rule([NODES, NAMESPACES], READ),
        rule([PRIORITY_CLASSES], READ),
        rule([CLAIMS], READ),
        rule([BINDINGS], ["create"]),
        rule([PODS], [*READ, "patch", "delete"]),
        *(rule([one.kind], [*READ, "patch"] if one.suspend else READ) for one in others()),
        rule([FLUXJOBS, FLUXQUEUES], [*READ, "create"]),
        rule([FLUXJOBS], ["patch", "delete"]),
        rule([FLUXJOBS, FLUXQUEUES], ["patch"], parts=["/status"]),
        rule([EVENTS], ["create"]),
        rule([MUTATING], [*READ, "patch"], [CONFIGURATION]),
        rule([FLUXHISTORIES], [*READ, "delete"]),
        rule([FLUXHISTORIES], ["patch"], parts=["/status"]),
        rule([POLICIES, POLICY_BINDINGS], ["get"], [HISTORY_POLICY]),
        rule([ACCESS_REVIEWS], ["create"]),
    ]
    own = [
        rule([LEASES], ["create"]),
        rule([LEASES], ["get", "update"], [FLUXQUEUE]),
        rule([SECRETS], ["create"]),
        rule([SECRETS], ["get", "update"], [WEBHOOK]),
    ]
    # The name of a FluxHistory is a secret of the user who requested it, so nobody may list or watch FluxHistories.
    view = [rule([FLUXJOBS, FLUXQUEUES], READ), rule([FLUXHISTORIES], ["create", "get", "delete"])]
    return [
        fluxqueue.account(),
        *fluxqueue.granted(FLUXQUEUE, "", cluster),
        *fluxqueue.granted(FLUXQUEUE, install.namespace, own),
        fluxqueue.users_role(f"{FLUXQUEUE}-view", ["view", "edit", "admin"], view),
    ]


def workload(install: Install) -> list[Object]:
    """The Deployment, and the Services of its metrics and of gRPC."""
    fluxqueue = component(install)
    ports = {"metrics": METRICS_PORT, "health": HEALTH_PORT, "webhook": WEBHOOK_PORT}
    words = ["headrace", "fluxqueue", "run", *(f"--{name}-bind=:{port}" for name, port in ports.items())]
    services = [fluxqueue.service("metrics", METRICS_PORT)]
    if install.grpc:
        ports["grpc"] = GRPC_PORT
        services.append(fluxqueue.service("grpc", GRPC_PORT))
    deployment = fluxqueue.deployment(
        container="fluxqueue",
        image=install.image,
        resources=install.resources or (GRPC_RESOURCES if install.grpc else RESOURCES),
        ports=ports,
        parts=[Part(words), _store(install), *(_grpc(install) if install.grpc else ())],
        replicas=install.replicas,
        # With two processes, the second could not mount the claim's volume.
        strategy="Recreate" if install.store_claim else "",
        # Lets the process read all volumes, and write to the claim's.
        volume_group=UNPRIVILEGED,
    )
    return [deployment, *services]


def _store(install: Install) -> Part:
    if install.store_claim:
        claim = {"name": "store", "persistentVolumeClaim": {"claimName": install.store_claim}}
        return Part([f"--statedir={_STATE}"], [{"name": "store", "mountPath": _STATE}], [claim])
    if not install.store:
        return Part()
    option = f"--store={install.store}"
    if not install.store_secret:
        return Part([option])
    options = [option, f"--store-password-file={_PASSWORD}/password"]
    return secret_part("store-password", install.store_secret, _PASSWORD, ("password",), options)


def _grpc(install: Install) -> Iterator[Part]:
    yield Part([f"--grpc=:{GRPC_PORT}", f"--grpc-queue={install.grpc_queue}"])
    if install.grpc_secret:
        options = [f"--grpc-tls-cert={_GRPC}/tls.crt", f"--grpc-tls-key={_GRPC}/tls.key"]
        yield secret_part("grpc", install.grpc_secret, _GRPC, ("tls.crt", "tls.key"), options)
        if install.grpc_client_secret:
            options = [f"--grpc-client-ca={_GRPC_CLIENTS}/ca.crt"]
            yield secret_part("grpc-clients", install.grpc_client_secret, _GRPC_CLIENTS, ("ca.crt",), options)


def webhook(install: Install) -> list[Object]:
    """The Service and the configuration of the webhook."""
    fluxqueue = component(install)
    client = fluxqueue.webhook_client(WEBHOOK, HOLD_PATH)
    return [fluxqueue.webhook_service(WEBHOOK), configuration(client, install)]


def configuration(client: Object, install: Install) -> Object:
    """The webhook configuration; `client` is its `clientConfig`.

    In the namespaces of queues, it reviews creations, and updates that may change future pods.
    """
    rules = [webhook_rule(one.kind, ["CREATE"] if one.kind == PODS else ["CREATE", "UPDATE"]) for one in KINDS.values()]
    hook: Object = {
        **{"name": f"hold.fluxqueue.{GROUP}", "clientConfig": client, "rules": rules},
        "namespaceSelector": held_namespaces(install.namespace),
        "matchConditions": [{"name": "new-pods", "expression": _MAKES_OTHER_PODS}],
        "failurePolicy": install.failure_policy,
        "reinvocationPolicy": "IfNeeded",
    }
    return component(install).webhook_configuration(MUTATING, CONFIGURATION, hook)
