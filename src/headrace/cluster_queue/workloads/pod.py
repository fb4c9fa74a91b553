"""Single pods: a job of one pod each. Source: core/v1 Pod.

Such a pod has no controller, or a controller of an unknown kind.
"""

from __future__ import annotations

from headrace.k8s.objects.conditions import ended
from headrace.k8s.objects.kinds import PODS

from ..model.demand import Demand, PodSet
from ..names import GATE, PLACE
from .workload import NOTHING, Made, Object, WorkloadKind, end_text

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def demand(pod: Object, made: Made = NOTHING) -> Demand:
    end, limit = ended(PODS, pod), pod["spec"].get("activeDeadlineSeconds")
    labels = pod["metadata"].get("labels") or {}
    return Demand(
        sets=(PodSet(pods=0 if end else 1, templates=(template_of(pod),), labels=labels),),
        end=end_text(end),
        failure=failure_of(pod) if end else "",
        limit=limit,
        missing=gates_left(pod),
    )


def failure_of(pod: Object) -> str:
    """Why a pod has failed; "" for a pod that has not.

    The message is Kubernetes' own or, if there is none, about the first failed container.
    """
    end = ended(PODS, pod)
    if end is None or end.succeeded:
        return ""
    if end.text:
        return end.text
    for one in pod["status"].get("containerStatuses") or ():
        terminated = (one.get("state") or {}).get("terminated") or {}
        if terminated.get("exitCode"):
            reason = f" ({terminated['reason']})" if terminated.get("reason", "Error") != "Error" else ""
            return f"container {one['name']} ended with exit code {terminated['exitCode']}{reason}"
    return ""


def gates_left(pod: Object) -> str:
    """The scheduling gate of another program that still holds back a waiting pod; "" for none."""
    gates = [one["name"] for one in pod["spec"].get("schedulingGates") or ()]
    others = [name for name in gates if name != GATE]
    return f"another controller must remove its scheduling gate {others[0]}" if others and GATE in gates else ""


def template_of(pod: Object) -> Object:
    """The spec of a pod without the node that the queue added to each term of the affinity."""
    spec, place = pod["spec"], (pod["metadata"].get("annotations") or {}).get(PLACE)
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    if not place or not affinity.get(_REQUIRED):
        return dict(spec)
    added = {"key": "metadata.name", "operator": "In", "values": [place]}
    terms = [_without(term, added) for term in affinity[_REQUIRED].get("nodeSelectorTerms") or ()]
    left = {"nodeSelectorTerms": [term for term in terms if term]}
    kept = {key: value for key, value in affinity.items() if key != _REQUIRED}
    if left["nodeSelectorTerms"]:
        kept[_REQUIRED] = left
    return {**spec, "affinity": {**spec["affinity"], "nodeAffinity": kept}}


def _without(term: Object, field: Object) -> Object:
    fields = list(term.get("matchFields") or ())
    if field in fields:
        fields.reverse()
        fields.remove(field)
        fields.reverse()
    return {
        **{key: value for key, value in term.items() if key != "matchFields"},
        **({"matchFields": fields} if fields else {}),
    }


WORKLOAD_KIND = WorkloadKind(PODS, 0, (), demand)
