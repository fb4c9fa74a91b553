"""JSON patches that assign a pod to one node: they remove the gate and narrow the node affinity. Pure.

The affinity is narrowed only if kube-scheduler binds the pod. kube-scheduler then looks at that node alone, and binds
after its own checks. The terms of a required affinity are alternatives, so each term is narrowed; an additional term
would widen the affinity, which Kubernetes rejects for a gated pod. Source: Kubernetes 1.34, "Pod Scheduling Readiness"
(mutable scheduling directives); RFC 6902.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.k8s.objects.kinds import PODS
from headrace.k8s.runtime.events import Report

from ..admission import gate_index, is_bound_here
from ..names import BINDINGS, JOBID, NODES, PLACE
from ..workloads.workload import is_longer
from . import actions

Object = dict[str, Any]
_AFFINITY = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


def pin(pod: Object, node: str, jobid: int, seconds: int = 0) -> tuple[Object, ...]:
    """The operations that pin a gated pod to a node and label it with its job.

    The kubelet ends the pod after `seconds` (0: no limit), unless its own deadline is earlier.
    """
    return (
        *_ungate(pod),
        *_limit(pod["spec"], seconds),
        *_narrow(pod["spec"], {"key": "metadata.name", "operator": "In", "values": [node]}),
        *_marks(pod, node, jobid),
    )


def mark(pod: Object, node: str, jobid: int, seconds: int = 0) -> tuple[Object, ...]:
    """The operations that prepare a gated pod for binding by this program; the rest is as in `pin`."""
    return (*_ungate(pod), *_limit(pod["spec"], seconds), *_marks(pod, node, jobid))


def move(pod: Object, node: str) -> tuple[Object, ...]:
    """The operations that assign a marked pod, which is not bound yet, to another node."""
    return _is_same(pod), *_put(pod, "annotations", PLACE, node)


def ungate(pod: Object) -> tuple[Object, ...]:
    """The operations that leave a gated pod to kube-scheduler."""
    return tuple(_ungate(pod))


def is_to_bind(pod: Object) -> bool:
    """Whether this program must bind a pod to its node, now that the pod has no gate."""
    spec, meta = pod["spec"], pod["metadata"]
    is_free = not spec.get("nodeName") and not spec.get("schedulingGates") and not meta.get("deletionTimestamp")
    return is_bound_here(pod) and is_free


def bind(pod: Object, node: str) -> Iterator[actions.Action]:
    """Bind a pod to a node, and record an Event in the name of the pod's scheduler."""
    yield actions.Bind(pod, node)
    report = Report("Normal", "Scheduled", f"bound to {node}")
    yield actions.Tell(PODS, pod, {}, report, pod["spec"]["schedulerName"])


def binding(pod: Object, node: str) -> Object:
    """The Binding of a pod to a node. The uid keeps it from binding a newer pod of the same name."""
    meta = pod["metadata"]
    return {
        **{"apiVersion": BINDINGS.api_version, "kind": BINDINGS.kind},
        "metadata": {"name": meta["name"], "uid": meta["uid"]},
        "target": {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": node},
    }


def _ungate(pod: Object) -> list[Object]:
    place = gate_index(pod)
    gate = pod["spec"]["schedulingGates"][place]
    return [
        _is_same(pod),
        {"op": "test", "path": f"/spec/schedulingGates/{place}", "value": gate},
        {"op": "remove", "path": f"/spec/schedulingGates/{place}"},
    ]


def _is_same(pod: Object) -> Object:
    return {"op": "test", "path": "/metadata/uid", "value": pod["metadata"]["uid"]}


def _limit(spec: Object, seconds: int) -> list[Object]:
    if not seconds or not is_longer(spec.get("activeDeadlineSeconds"), seconds):
        return []
    return [{"op": "add", "path": "/spec/activeDeadlineSeconds", "value": seconds}]


def _narrow(spec: Object, expression: Object) -> list[Object]:
    path, inside = "/spec", spec
    for depth, key in enumerate(_AFFINITY):
        path = f"{path}/{key}"
        if not inside.get(key):
            value: Any = {"nodeSelectorTerms": [{"matchFields": [expression]}]}
            for outer in reversed(_AFFINITY[depth + 1 :]):
                value = {outer: value}
            return [{"op": "add", "path": path, "value": value}]
        inside = inside[key]
    found: list[Object] = [{"op": "test", "path": path, "value": inside}]
    for place, term in enumerate(inside["nodeSelectorTerms"]):
        # A term without expressions matches no node; with an added one it would match a node.
        if term.get("matchFields") or term.get("matchExpressions"):
            fields = [*(term.get("matchFields") or ()), expression]
            found.append({"op": "add", "path": f"{path}/nodeSelectorTerms/{place}/matchFields", "value": fields})
    return found


def _marks(pod: Object, node: str, jobid: int) -> list[Object]:
    return [*_put(pod, "labels", JOBID, str(jobid)), *_put(pod, "annotations", PLACE, node)]


def _put(pod: Object, kind: str, key: str, value: str) -> list[Object]:
    if not pod["metadata"].get(kind):
        return [{"op": "add", "path": f"/metadata/{kind}", "value": {key: value}}]
    escaped = key.replace("~", "~0").replace("/", "~1")
    return [{"op": "add", "path": f"/metadata/{kind}/{escaped}", "value": value}]
