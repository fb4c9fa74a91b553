"""Deployments: the pods of their ReplicaSets, two or more of them during a rollout. Source: apps/v1."""

from __future__ import annotations

from headrace.k8s.objects.kinds import Kind

from ..model.demand import Demand, PodSet
from . import replicaset
from .workload import NOTHING, Made, Object, WorkloadKind


def demand(deployment: Object, made: Made = NOTHING) -> Demand:
    """The demand of a Deployment.

    During a rollout, its ReplicaSets want more than `replicas` pods, by up to `maxSurge`. With the strategy Recreate,
    all of them want none for a while; the slots are kept for the next pods.
    """
    wanted = [one for one in made.get("ReplicaSet", ()) if replicaset.replicas_of(one)]
    pods = PodSet(
        pods=max(sum(replicaset.replicas_of(one) for one in wanted), replicaset.replicas_of(deployment)),
        templates=tuple(one["spec"]["template"]["spec"] for one in wanted) or (deployment["spec"]["template"]["spec"],),
        labels=replicaset.labels_of(deployment),
    )
    return Demand(sets=(pods,), together=replicaset.is_gang(deployment))


WORKLOAD_KIND = WorkloadKind(Kind("apps", "v1", "deployments", "Deployment"), 2, (), demand, lasts=True)
