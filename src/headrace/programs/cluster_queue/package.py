"""The install files, the kustomize base and the Helm chart of the cluster queue. Pure."""

from __future__ import annotations

from typing import Any

from headrace.cluster_queue.crd import definitions
from headrace.cluster_queue.names import DEFAULT_QUEUE, FLUXQUEUE
from headrace.k8s.packaging.helm_templates import (
    NAME,
    OPTIONAL_NAME,
    SWITCH,
    UNQUOTED,
    Placeholders,
    Switches,
    Value,
)
from headrace.k8s.packaging.images import DEFAULT_OPERATOR, RESOURCES
from headrace.k8s.packaging.package import File, Package

from .install import GRPC_RESOURCES, Install, access, component, order, policies, webhook, workload

Object = dict[str, Any]


def _memory(resources: Object) -> str:
    return str(resources["limits"]["memory"])


VALUES = (
    Value("image", DEFAULT_OPERATOR, NAME, "Image of the queue: the operator's image."),
    Value(
        "replicas",
        1,
        {"type": "integer", "minimum": 1},
        "Number of pods. One is the leader and runs the queue; all serve the webhook.",
    ),
    Value(
        "resources",
        {},
        {"type": "object"},
        f"Requests and limits of the queue's container; {{}}: {_memory(RESOURCES)} of memory at most, with gRPC "
        f"{_memory(GRPC_RESOURCES)}.",
    ),
    Value(
        "failurePolicy",
        "Fail",
        {"enum": ["Fail", "Ignore"]},
        "While no process answers: reject new objects in labelled namespaces (Fail), or let them run (Ignore).",
    ),
    Value(
        "strict",
        False,
        SWITCH,
        "Reject objects that would bypass the queue: labels that exclude an object, pods with nodeName, DaemonSets.",
    ),
    Value(
        "crd",
        True,
        SWITCH,
        "Install the definitions of FluxJobs, FluxQueues and FluxHistories. They are kept when the chart is removed.",
    ),
    Value(
        "store.url",
        "",
        {"type": "string", "pattern": f"^(postgres(ql)?://{UNQUOTED}*)?$"},
        "Record the history in this database, postgresql://USER@HOST/NAME.",
    ),
    Value("store.secret", "", OPTIONAL_NAME, "Secret with the password of the database user, key password."),
    Value("store.claim", "", OPTIONAL_NAME, "Record the history in a file instead, in the volume of this claim."),
    Value("grpc.enabled", False, SWITCH, "Serve gRPC matching on the live graph, with a Service."),
    Value("grpc.queue", DEFAULT_QUEUE, NAME, "The FluxQueue whose nodes are matched."),
    Value(
        "grpc.secret",
        "",
        OPTIONAL_NAME,
        "The Secret with the certificate and key, tls.crt and tls.key; empty means no TLS.",
    ),
    Value(
        "grpc.clientSecret",
        "",
        OPTIONAL_NAME,
        "Accept only clients with a certificate that is signed by ca.crt of this Secret.",
    ),
)
_ONE = {"properties": {"replicas": {"maximum": 1}}}
_EMPTY = {"maxLength": 0}


def _with(group: str, name: str, value: Object) -> Object:
    """A schema: a value of a group matches `value`, or is absent."""
    return {"properties": {group: {"properties": {name: value}}}}


def _where(group: str, name: str, value: Object) -> Object:
    """A schema: a value of a group is present and matches `value`."""
    return {"properties": {group: {"properties": {name: value}, "required": [name]}}, "required": [group]}


# The rules of `install.check` as rules of the schema.
RULES = (
    {
        "if": _where("store", "claim", {"minLength": 1}),
        "then": {"allOf": [_ONE, _with("store", "url", _EMPTY)]},
    },
    {"if": _where("store", "url", _EMPTY), "then": _with("store", "secret", _EMPTY)},
    {"if": _where("grpc", "enabled", {"const": True}), "then": _ONE, "else": _with("grpc", "secret", _EMPTY)},
    {"if": _where("grpc", "secret", _EMPTY), "then": _with("grpc", "clientSecret", _EMPTY)},
)

_PLACEHOLDERS = Placeholders(
    words={
        "<namespace>": "{{ $.Release.Namespace }}",
        "<image>": "{{ $.Values.image }}",
        '"<policy>"': "{{ $.Values.failurePolicy }}",
        '"<replicas>"': "{{ $.Values.replicas }}",
        '"<resources>"': "{{ toJson $.Values.resources }}",
        "<url>": "{{ $.Values.store.url }}",
        "<password>": "{{ $.Values.store.secret }}",
        "<claim>": "{{ $.Values.store.claim }}",
        "<queue>": "{{ $.Values.grpc.queue }}",
        "<certificate>": "{{ $.Values.grpc.secret }}",
        "<clients>": "{{ $.Values.grpc.clientSecret }}",
    },
    optional={},
    lists={},
)
_TEMPLATED = Install(
    namespace="<namespace>",
    image="<image>",
    replicas="<replicas>",
    resources="<resources>",
    failure_policy="<policy>",
    strict=True,
    store="<url>",
    store_secret="<password>",
    store_claim="<claim>",
    grpc=True,
    grpc_queue="<queue>",
    grpc_secret="<certificate>",
    grpc_client_secret="<clients>",
)
_SWITCHES: Switches = (
    ("$.Values.store.claim", {}, {"store_claim": ""}),
    ("$.Values.store.url", {}, {"store": ""}),
    ("$.Values.store.secret", {}, {"store_secret": ""}),
    ("$.Values.grpc.enabled", {}, {"grpc": False}),
    ("$.Values.grpc.secret", {}, {"grpc_secret": ""}),
    ("$.Values.grpc.clientSecret", {}, {"grpc_client_secret": ""}),
    ("$.Values.resources", {}, {"resources": {}}),
)


PACKAGE = Package(
    name=FLUXQUEUE,
    description="The cluster queue of Headrace: pods wait their turn",
    source="src/headrace/programs/cluster_queue/install.py",
    defaults=Install(),
    files=(
        File("crd", lambda install: definitions(), value="$.Values.crd"),
        File("namespace", lambda install: [component(install).namespace_object()], in_chart=False),
        File("rbac", lambda install: [*policies(install), *access(install)]),
        File("order", order, value="$.Values.strict"),
        File("fluxqueue", workload, _SWITCHES),
        File("webhook", webhook),
    ),
    values=VALUES,
    rules=RULES,
    templated=_TEMPLATED,
    placeholders=_PLACEHOLDERS,
)
