"""ReplicaSets without a Deployment: identical pods. Source: apps/v1."""

from __future__ import annotations

from headrace.k8s.objects.kinds import Kind

from ..model.demand import Demand, PodSet
from ..names import GANG
from .workload import NOTHING, Made, Object, WorkloadKind


def demand(item: Object, made: Made = NOTHING) -> Demand:
    return Demand(sets=(pods_of(item),), together=is_gang(item))


def pods_of(item: Object) -> PodSet:
    """The pods of an object with a template and a number of replicas."""
    template = item["spec"]["template"]["spec"]
    return PodSet(pods=replicas_of(item), templates=(template,), labels=labels_of(item))


def replicas_of(item: Object) -> int:
    return int(item["spec"].get("replicas", 1))


def labels_of(item: Object) -> Object:
    """The labels of the pods of an object with a template."""
    return (item["spec"]["template"].get("metadata") or {}).get("labels") or {}


def is_gang(item: Object) -> bool:
    """Whether an object's annotation makes its pods start together."""
    return (item["metadata"].get("annotations") or {}).get(GANG) == "true"


WORKLOAD_KIND = WorkloadKind(Kind("apps", "v1", "replicasets", "ReplicaSet"), 3, (), demand, lasts=True)
