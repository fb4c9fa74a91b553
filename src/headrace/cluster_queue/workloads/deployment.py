"""Deployments: the pods that their ReplicaSets want, of which there are two or more in a rollout. Source: apps/v1."""

from __future__ import annotations

from headrace.k8s.objects.kinds import Kind

from ..model.demand import Demand, PodSet
from . import replicaset
from .workload import NOTHING, Made, Object, WorkloadKind


def demand(deployment: Object, made: Made = NOTHING) -> Demand:
    """A ReplicaSet that is rolled out wants pods beyond `replicas`, as many as `maxSurge` lets it. With the strategy
    Recreate all want none for a while: what the pods had is kept for the next.
    """
    wanted = [one for one in made.get("ReplicaSet", ()) if replicaset.replicas_of(one)]
    pods = PodSet(
        pods=max(sum(replicaset.replicas_of(one) for one in wanted), replicaset.replicas_of(deployment)),
        templates=tuple(one["spec"]["template"]["spec"] for one in wanted) or (deployment["spec"]["template"]["spec"],),
        labels=replicaset.labels_of(deployment),
    )
    return Demand(sets=(pods,), together=replicaset.is_gang(deployment))


WORKLOAD_KIND = WorkloadKind(Kind("apps", "v1", "deployments", "Deployment"), 2, (), demand, lasts=True)
