"""StatefulSets: pods with ordinals, whose room they have all at once. Source: apps/v1."""

from __future__ import annotations

from ...kube.runtime.kinds import Kind
from . import replicaset
from .workload import NOTHING, Made, Object, Wish, Workload


def wish(item: Object, made: Made = NOTHING) -> Wish:
    return Wish(sets=(replicaset.pods_of(item),))


WORKLOAD = Workload(Kind("apps", "v1", "statefulsets", "StatefulSet"), 4, (), wish, lasts=True)
