"""StatefulSets: pods with ordinals, which get their slots all at once. Source: apps/v1."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from headrace.k8s.objects.kinds import Kind

from ..model.demand import Demand
from . import replicaset
from .workload import NOTHING, Made, Object, WorkloadKind, value_at


def demand(item: Object, made: Made = NOTHING) -> Demand:
    first = int(value_at(item, ("spec", "ordinals", "start")) or 0)
    pods = replace(replicaset.pods_of(item), first_ordinal=first)
    return Demand(sets=(pods,), claims=tuple(_claims_of(item, first, pods.pods)))


def _claims_of(item: Object, first: int, replicas: int) -> Iterator[str]:
    """The names of the volume claims to check.

    Unless `podManagementPolicy` is Parallel, each pod and its claims are created once the pods before it are ready.
    Claims of later pods do not exist before that, so they cannot be checked.
    """
    spec = item["spec"]
    made = replicas if spec.get("podManagementPolicy") == "Parallel" else min(replicas, 1)
    for template in spec.get("volumeClaimTemplates") or ():
        for ordinal in range(first, first + made):
            yield f"{template['metadata']['name']}-{item['metadata']['name']}-{ordinal}"


WORKLOAD_KIND = WorkloadKind(Kind("apps", "v1", "statefulsets", "StatefulSet"), 4, (), demand, lasts=True)
