"""The kinds of workloads that wait in queues, one file each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from headrace.k8s.objects.kinds import PODS

from ..model.demand import Demand, PodSet
from . import (
    deployment,
    group,
    job,
    jobset,
    minicluster,
    mpijob,
    pod,
    replicaset,
    statefulset,
    trainjob,
)
from .workload import WorkloadKind

Object = dict[str, Any]

KINDS: dict[str, WorkloadKind] = {
    module.WORKLOAD_KIND.kind.kind: module.WORKLOAD_KIND
    for module in (
        pod,
        job,
        deployment,
        replicaset,
        statefulset,
        jobset,
        mpijob,
        trainjob,
        minicluster,
    )
}
BY_PLURAL = {one.kind.plural: one for one in KINDS.values()}


def owner_of(item: Object) -> Object | None:
    """The reference to the controller of an object, if the controller is of a known kind."""
    for one in item["metadata"].get("ownerReferences") or ():
        known = KINDS.get(one.get("kind", ""))
        group = one.get("apiVersion", "").rpartition("/")[0]
        if one.get("controller") and known and group == known.kind.group:
            return dict(one)
    return None


def maker_of(pod: Object) -> str:
    """The uid of a pod's maker: its controller of a known kind, else its group, else the pod itself."""
    owner = owner_of(pod)
    if owner:
        return str(owner["uid"])
    name = group.name_of(pod)
    return uid_of_group(pod["metadata"]["namespace"], name) if name else str(pod["metadata"]["uid"])


# The labels with the ordinal of a pod (Job, StatefulSet, MPIJob), and with the ordinal of its Job in a JobSet.
_ORDINALS = (
    *("batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index"),
    "training.kubeflow.org/replica-index",
)
_NUMBER = re.compile("[0-9]{1,10}", re.ASCII)
_JOB_INDEX = "jobset.sigs.k8s.io/job-index"


def ordinal_of(pod: Object, per_job: int = 0) -> int | None:
    """The permanent ordinal of a pod within its controller; None if it has none.

    With `per_job`, it counts across several Jobs with this number of pods each.
    """
    labels = pod["metadata"].get("labels") or {}
    own = next((found for key in _ORDINALS if (found := _index(labels.get(key))) is not None), None)
    before = _index(labels.get(_JOB_INDEX, 0))
    if own is None or not per_job or own >= per_job or before is None:
        return own
    return before * per_job + own


def _index(text: object) -> int | None:
    """The number in a label, as large as in Kubernetes; None for other text, which users may write."""
    found = _NUMBER.fullmatch(str(text))
    return int(found[0]) if found else None


def uid_of_group(namespace: str, name: str) -> str:
    """The stand-in for the uid of a group, which is not an object."""
    return f"group/{namespace}/{name}"


def name_in_uid(uid: str) -> str:
    """The name of the group with this stand-in for a uid; "" for the uid of an object."""
    return uid.split("/", 2)[2] if uid.startswith("group/") else ""


def others() -> Iterator[WorkloadKind]:
    """The kinds whose objects make pods, directly or indirectly."""
    return (one for one in KINDS.values() if one.kind != PODS)


def is_foreign(workload: WorkloadKind) -> bool:
    """Whether a kind is defined by an add-on that a cluster may lack, rather than by Kubernetes."""
    return "." in workload.kind.group


__all__ = [
    "BY_PLURAL",
    "KINDS",
    "Demand",
    "PodSet",
    "WorkloadKind",
    "group",
    "is_foreign",
    "maker_of",
    "name_in_uid",
    "ordinal_of",
    "others",
    "owner_of",
    "uid_of_group",
]
