"""ReplicaSets that no Deployment has made: pods that are all alike. Source: apps/v1."""

from __future__ import annotations

from ...kube.runtime.kinds import Kind
from ..names import GANG
from .workload import NOTHING, Made, Object, Wish, Workload


def wish(item: Object, made: Made = NOTHING) -> Wish:
    template = item["spec"]["template"]["spec"]
    return Wish(pods=replicas_of(item), templates=(template,), labels=labels_of(item), together=is_gang(item))


def replicas_of(item: Object) -> int:
    return int(item["spec"].get("replicas", 1))


def labels_of(item: Object) -> Object:
    """The labels of the pods of an object with a template."""
    return (item["spec"]["template"].get("metadata") or {}).get("labels") or {}


def is_gang(item: Object) -> bool:
    """Whether an object says that its pods start together."""
    return (item["metadata"].get("annotations") or {}).get(GANG) == "true"


WORKLOAD = Workload(Kind("apps", "v1", "replicasets", "ReplicaSet"), 3, (), wish, lasts=True)
