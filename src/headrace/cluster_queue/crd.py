"""The definitions of FluxJobs, FluxQueues and FluxHistories, and the settings of a FluxQueue. Pure.

Users read FluxJobs and never write them, so their schema has few rules. The schema of FluxQueues rejects wrong values.
Source: apiextensions.k8s.io/v1, Kubernetes 1.34.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field

from headrace.formats.spec import duration
from headrace.k8s.objects.labels import check_key, check_labels
from headrace.sched.graph.policies import POLICIES as MATCH_POLICIES
from headrace.sched.queueing.policies import POLICIES

from .model.quota import Quota, quota_of
from .names import DEFAULT_QUEUE, EXTERNAL, FLUXHISTORIES, FLUXJOBS, FLUXQUEUES, GROUP, VERSION
from .store.history import BY
from .workloads import KINDS, group

Object = dict[str, Any]
Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer", "format": "int32", "minimum": 0}
_LONG: Schema = {"type": "integer", "format": "int64"}
_NUMBER: Schema = {"type": "number", "format": "double"}
_TIME: Schema = {"type": "string", "format": "date-time"}
# RFC 23, without signs, hexadecimal digits and infinity; not zero.
_DURATION: Schema = {
    "type": "string",
    "pattern": r"^(\d+(\.\d*)?|\.\d+)(ms|s|m|h|d)?$",
    "x-kubernetes-validations": [{"rule": "self.matches('[1-9]')", "message": "must be more than zero"}],
}
# A nonnegative Kubernetes quantity, as an integer or a string.
_QUANTITY: Schema = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
    "pattern": r"^\+?(\d{1,15}(\.\d{0,9})?|\.\d{1,9})([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,2})?$",
    # For integers. A CEL rule would exceed the cost limit for a list of quotas.
    "minimum": 0,
}
# The longest duration (seconds) that a queue accepts: the longest deadline that Kubernetes accepts for a pod.
LONGEST = 2**31 - 1
_POLICIES = sorted(POLICIES)
# Pods share nodes, so a queue has no policy that only gives whole nodes.
_MATCH_POLICIES = sorted(name for name, one in MATCH_POLICIES.items() if not one.whole)
# The labels that are topology levels above nodes by default.
TOPOLOGY = ("topology.kubernetes.io/zone", "topology.kubernetes.io/rack")
STATES = ("Held", "Released", "Running", "Finished", "Failed", "Refused")
_SUBMIT_STATES = ("statusNew", "statusSubmit", "statusError", "statusCancel")


class Settings(Struct, frozen=True, kw_only=True):
    """The spec of a FluxQueue.

    `queue_depth` and `reservation_depth` are None for the defaults of the policy. Durations are in seconds, 0 for none.
    """

    policy: str = "easy"
    queue_depth: int | None = None
    reservation_depth: int | None = None
    match_policy: str = "lonode"
    placement: str = "pin"
    node_selector: dict[str, str] = field(default_factory=dict)
    topology: tuple[str, ...] = TOPOLOGY
    default_duration: float = 0
    max_duration: float = 0
    enforce_duration: bool = False
    ready_timeout: float = 600
    quotas: dict[str, Quota] = field(default_factory=dict)

    @property
    def of_graph(self) -> tuple[object, ...]:
        """The settings of a queue's graph and order. All other settings may change at any time."""
        return self.policy, self.queue_depth, self.reservation_depth, self.match_policy, self.topology


class WrongQueueError(ValueError):
    """A FluxQueue is invalid: the message names the field and the rule."""


def settings_of(queue: Object) -> Settings:
    """The settings of a FluxQueue. Raises WrongQueueError.

    The schema cannot compare durations. It may also be older than this program, or the queue older than the schema's
    rules.
    """
    try:
        return _checked(queue.get("spec") or {})
    except WrongQueueError:
        raise
    except Exception as exc:
        raise WrongQueueError(f"spec: not valid for a FluxQueue: {exc!r}") from exc


def _checked(spec: Object) -> Settings:
    for name, known in (("policy", _POLICIES), ("matchPolicy", _MATCH_POLICIES)):
        if name in spec and spec[name] not in known:
            raise WrongQueueError(f"spec.{name}: must be one of {', '.join(known)}, not {spec[name]}")
    for name, least in (("queueDepth", 1), ("reservationDepth", 0)):
        if name in spec and not (isinstance(spec[name], int) and spec[name] >= least):
            raise WrongQueueError(f"spec.{name}: must be a whole number, at least {least}, not {spec[name]}")
    for name in ("defaultDuration", "maxDuration", "readyTimeout"):
        text = spec.get(name)
        if text is not None and not (re.search(_DURATION["pattern"], str(text)) and re.search("[1-9]", str(text))):
            raise WrongQueueError(f"spec.{name}: must be a duration of more than zero, such as 30m, not {text}")
        if _seconds(text) > LONGEST:
            raise WrongQueueError(f"spec.{name}: must be at most {LONGEST} seconds, about 68 years, not {text}")
    for problem in check_labels(spec.get("nodeSelector") or {}, "spec.nodeSelector"):
        raise WrongQueueError(str(problem))
    for label in spec.get("topology", TOPOLOGY):
        for problem in check_key(label, "spec.topology"):
            raise WrongQueueError(str(problem))
    _check_quotas(spec.get("quotas") or ())
    settings = _read(spec)
    if 0 < settings.max_duration < settings.default_duration:
        raise WrongQueueError(
            f"spec.defaultDuration: {spec['defaultDuration']} is longer than spec.maxDuration, {spec['maxDuration']}"
        )
    return settings


def _check_quotas(quotas: Iterable[Object]) -> None:
    seen: set[str] = set()
    for place, item in enumerate(quotas):
        where, namespace = f"spec.quotas[{place}]", item.get("namespace")
        if not namespace or namespace in seen:
            raise WrongQueueError(
                f"{where}.namespace: must name a namespace, each at most once, not {namespace or 'none'}"
            )
        seen.add(namespace)
        for name in ("cpu", "memory"):
            if name in item and not re.search(_QUANTITY["pattern"], str(item[name])):
                raise WrongQueueError(f"{where}.{name}: must be a quantity that is not negative, not {item[name]}")
        for name in ("gpu", "pods", "jobs"):
            if name in item and not (isinstance(item[name], int) and item[name] >= 0):
                raise WrongQueueError(f"{where}.{name}: must be a whole number, at least 0, not {item[name]}")


def _read(spec: Object) -> Settings:
    return Settings(
        policy=spec.get("policy", "easy"),
        queue_depth=spec.get("queueDepth"),
        reservation_depth=spec.get("reservationDepth"),
        match_policy=spec.get("matchPolicy", "lonode"),
        placement=spec.get("placement", "pin"),
        node_selector=spec.get("nodeSelector") or {},
        topology=tuple(dict.fromkeys(spec.get("topology", TOPOLOGY))),
        default_duration=_seconds(spec.get("defaultDuration")),
        max_duration=_seconds(spec.get("maxDuration")),
        ready_timeout=_seconds(spec.get("readyTimeout", "10m")),
        enforce_duration=spec.get("enforceDuration", False),
        quotas={one["namespace"]: quota_of(one) for one in spec.get("quotas") or ()},
    )


def _seconds(text: str | None) -> float:
    return duration.parse(str(text)) if text else 0


def first_queue() -> Object:
    """The queue `default`, with all nodes outside the control plane."""
    head = {"apiVersion": FLUXQUEUES.api_version, "kind": FLUXQUEUES.kind}
    return {**head, "metadata": {"name": DEFAULT_QUEUE}, "spec": {}}


def definitions() -> list[Object]:
    """All CustomResourceDefinitions."""
    return [_fluxjob(), _fluxqueue(), _fluxhistory()]


def _fluxjob() -> Object:
    types = {one.number: one.kind.kind for one in KINDS.values()}
    types |= {group.WORKLOAD_KIND.number: "group", EXTERNAL: "a match for another scheduler"}
    spec = {
        "jobspec": {**_TEXT, "description": "The request to the graph: a jobspec (RFC 14, JSON)"},
        "type": {
            **_WHOLE,
            "maximum": max(types),
            "description": f"Kind of the object: {', '.join(f'{one} {types[one]}' for one in sorted(types))}",
        },
        "name": {**_TEXT, "description": "Name of the object"},
        "object": {**_TEXT, "format": "byte", "description": "Empty"},
        "duration": {**_LONG, "minimum": 0, "description": "Maximum duration in seconds; 0 means not known"},
        "reservation": {
            "type": "boolean",
            "description": "Whether the policy of the queue makes reservations; for a match: whether it starts later",
        },
        "nodes": {**_WHOLE, "description": "Number of pods at a time"},
        "resources": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "description": "For a match: its resources on each node, and the start of a reservation. Otherwise empty",
        },
        "queue": {**_TEXT, "description": "Name of the FluxQueue"},
        "priority": {**_LONG, "description": "Value of the PriorityClass"},
    }
    counts = {name: _WHOLE for name in ("wanted", "placed", "running")}
    status = {
        "submitStatus": {**_TEXT, "enum": list(_SUBMIT_STATES)},
        "state": {**_TEXT, "enum": list(STATES), "description": "Held, Released (it has nodes), Running, or its end"},
        "position": {**_LONG, "description": "Position in the queue, from 1; rounded to two digits beyond 50"},
        "reason": {**_TEXT, "description": "Why the job waits, or another remark about its state"},
        "estimatedStart": {**_TIME, "description": "Expected start; absent if not known"},
        "jobid": {**_TEXT, "description": "RFC 19, decimal"},
        "nodes": {**_TEXT, "description": "Node of each pod (RFC 29), including those listed in `freed`"},
        "sets": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": _TEXT, "indexes": _TEXT}},
            "description": "For each set of pods: indexes into `nodes` (RFC 22). Absent if all pods are equal",
        },
        "freed": {**_TEXT, "description": "Indexes into `nodes` of the nodes that were released (RFC 22)"},
        "waits": {
            "type": "array",
            "items": {"type": "object", "properties": {"pods": _WHOLE, "since": _TIME}},
            "description": "Pods that still wait for nodes, and since when",
        },
        "pods": {"type": "object", "properties": counts, "description": "Numbers of pods"},
        **{name: _TIME for name in ("queuedAt", "startedAt", "endedAt")},
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {
                "type": "object",
                "required": ["type", "status"],
                "properties": {
                    **{name: _TEXT for name in ("type", "status", "reason", "message")},
                    "lastTransitionTime": _TIME,
                },
            },
        },
    }
    columns = [
        _column("State", ".status.state"),
        _column("Queue", ".spec.queue"),
        _column("Position", ".status.position", "integer"),
        _column("Pods", ".spec.nodes", "integer"),
        _column("Estimate", ".status.estimatedStart"),
        _column("Age", ".metadata.creationTimestamp", "date"),
        {**_column("Nodes", ".status.nodes"), "priority": 1},
        {**_column("Reason", ".status.reason"), "priority": 1},
        {**_column("Priority", ".spec.priority", "integer"), "priority": 1},
    ]
    return _definition(FLUXJOBS, "Namespaced", ["fj"], spec, status, columns)


def _fluxqueue() -> Object:
    spec = {
        "policy": {
            **_TEXT,
            "enum": _POLICIES,
            "default": "easy",
            "description": "The queue policy, which determines the next job",
        },
        "queueDepth": {**_WHOLE, "minimum": 1, "description": "Number of jobs considered for backfill at a time"},
        "reservationDepth": {**_WHOLE, "description": "Number of waiting jobs with a reservation"},
        "matchPolicy": {
            **_TEXT,
            "enum": _MATCH_POLICIES,
            "default": "lonode",
            "description": "Which of the suitable nodes are chosen",
        },
        "placement": {
            **_TEXT,
            "enum": ["pin", "bind"],
            "default": "pin",
            "description": "What binds pods to the planned nodes: kube-scheduler (pin), or the queue itself (bind)",
        },
        "nodeSelector": {
            "type": "object",
            "additionalProperties": _TEXT,
            "description": "Labels of the queue's nodes (default: all nodes outside the control plane)",
        },
        "topology": {
            "type": "array",
            "items": {**_TEXT, "minLength": 1},
            "maxItems": 8,
            "x-kubernetes-list-type": "set",
            "default": list(TOPOLOGY),
            "description": "Node labels that define the levels above nodes, widest first",
        },
        "defaultDuration": {**_DURATION, "description": "Duration of jobs without one (RFC 23)"},
        "maxDuration": {**_DURATION, "description": "Maximum duration of a job (RFC 23)"},
        "readyTimeout": {
            **_DURATION,
            "default": "10m",
            "description": "How long kube-scheduler may take to bind a released pod (RFC 23)",
        },
        "enforceDuration": {
            "type": "boolean",
            "default": False,
            "description": "Whether Kubernetes ends jobs that exceed their duration (activeDeadlineSeconds)",
        },
        "quotas": _quotas(),
    }
    status = {
        "state": {**_TEXT, "enum": ["Active", "Invalid"]},
        "reason": {**_TEXT, "description": "Why the queue is Invalid"},
        "nodes": {**_WHOLE, "description": "Number of nodes"},
    }
    columns = [
        _column("Policy", ".spec.policy"),
        _column("State", ".status.state"),
        _column("Nodes", ".status.nodes", "integer"),
        {**_column("Reason", ".status.reason"), "priority": 1},
    ]
    return _definition(FLUXQUEUES, "Cluster", ["fq"], spec, status, columns)


def _fluxhistory() -> Object:
    user = {
        "type": "object",
        "required": ["username"],
        "properties": {
            **{"username": _TEXT, "uid": _TEXT, "groups": {"type": "array", "items": _TEXT}},
            "extra": {"type": "object", "additionalProperties": {"type": "array", "items": _TEXT}},
        },
        "description": "The creator of this object, as in a SelfSubjectReview",
    }
    spec = {
        "user": user,
        "since": {
            **_TEXT,
            "maxLength": 64,
            "default": "7d",
            "description": "Length of the interval, which ends now (RFC 23)",
        },
        "by": {**_TEXT, "enum": ["", *BY], "default": "", "description": "What to group the rows by"},
    }
    waits = {"type": "object", "properties": {name: _NUMBER for name in ("mean", "p50", "p95", "max")}}
    row = {
        **{"name": _TEXT, "jobs": _LONG, "started": _LONG, "waits": waits, "podHours": _NUMBER},
        "states": {"type": "object", "additionalProperties": _LONG},
    }
    status = {
        "since": {**_NUMBER, "description": "Start of the interval, in seconds since the epoch"},
        "until": {**_NUMBER, "description": "End of the interval: the time of the answer"},
        "rows": {"type": "array", "items": {"type": "object", "properties": row}},
        "unread": {
            **_LONG,
            "description": "Number of jobs not counted in the rows, because the user may not list their FluxJobs",
        },
        "omitted": {**_LONG, "description": "Number of omitted rows"},
        "problem": {**_TEXT, "description": "Why there is no answer"},
    }
    columns = [
        *(_column("Since", ".spec.since"), _column("By", ".spec.by")),
        _column("Age", ".metadata.creationTimestamp", "date"),
    ]
    rule = {"rule": "self == oldSelf", "message": "must not be changed: create another FluxHistory"}
    rules = {"required": ["user"], "x-kubernetes-validations": [rule]}
    return _definition(FLUXHISTORIES, "Namespaced", [], spec, status, columns, rules)


def _quotas() -> Schema:
    limits = {
        "cpu": {**_QUANTITY, "description": "Cores"},
        "memory": {**_QUANTITY, "description": "Memory"},
        "gpu": {**_WHOLE, "description": "GPUs (nvidia.com/gpu)"},
        "pods": {**_WHOLE, "description": "Pods"},
        "jobs": {**_WHOLE, "description": "Jobs: objects that wait as one"},
    }
    namespace = {**_TEXT, "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
    item = {
        "type": "object",
        "required": ["namespace"],
        "properties": {"namespace": namespace, **limits},
        "minProperties": 2,
    }
    return {
        "type": "array",
        "items": item,
        "maxItems": 1000,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["namespace"],
        "description": "How much of the queue the jobs of a namespace may have at a time",
    }


def _column(name: str, path: str, kind: str = "string") -> Object:
    return {"name": name, "type": kind, "jsonPath": path}


def _definition(
    kind: Any, scope: str, short: list[str], spec: Object, status: Object, columns: list[Object],
    rules: Schema | None = None,
) -> Object:  # fmt: skip
    """A CustomResourceDefinition. With `rules`, which apply to the spec, the spec is required."""
    schema = {
        "type": "object",
        **({"required": ["spec"]} if rules else {}),
        "properties": {
            "spec": {"type": "object", "properties": spec, **(rules or {})},
            "status": {"type": "object", "properties": status},
        },
    }
    version = {
        **{"name": VERSION, "served": True, "storage": True, "subresources": {"status": {}}},
        **{"additionalPrinterColumns": columns, "schema": {"openAPIV3Schema": schema}},
    }
    names = {
        **{"kind": kind.kind, "listKind": f"{kind.kind}List", "plural": kind.plural},
        **{"singular": kind.kind.lower(), "shortNames": short},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": scope, "names": names, "versions": [version]},
    }
