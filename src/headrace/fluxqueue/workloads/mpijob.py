"""MPIJobs: the launcher's pod and those of the workers. Source: mpi-operator, kubeflow.org/v2beta1."""

from __future__ import annotations

from ...kube.runtime.kinds import Kind
from . import job
from .workload import NOTHING, Made, Object, Wish, Workload

_ENDS = {"Succeeded": "Finished", "Failed": "Failed"}
_OWN_CONTROLLER = "kubeflow.org/mpi-operator"


def wish(item: Object, made: Made = NOTHING) -> Wish:
    end = job.end_in(item.get("status") or {}, _ENDS)
    roles = (item["spec"].get("mpiReplicaSpecs") or {}).values()
    pods = sum(int(one.get("replicas", 1)) for one in roles)
    templates = tuple(one["template"]["spec"] for one in roles)
    labels = {"training.kubeflow.org/job-name": item["metadata"]["name"]}
    limit = (item["spec"].get("runPolicy") or {}).get("activeDeadlineSeconds")
    return Wish(pods=0 if end else pods, templates=templates, labels=labels, end=end, limit=limit)


def left_alone(item: Object) -> bool:
    policy = item["spec"].get("runPolicy") or {}
    return bool(policy.get("managedBy", _OWN_CONTROLLER) != _OWN_CONTROLLER)


MPIJOBS = Kind("kubeflow.org", "v2beta1", "mpijobs", "MPIJob")
WORKLOAD = Workload(MPIJOBS, 6, ("spec", "runPolicy", "suspend"), wish, left_alone)
