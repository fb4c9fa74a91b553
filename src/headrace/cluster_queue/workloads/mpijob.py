"""MPIJobs: the launcher's pod and the workers' pods, a set each.

Source: mpi-operator, kubeflow.org/v2beta1.
"""

from __future__ import annotations

from headrace.k8s.objects.kinds import MPIJOBS

from ..model.demand import Demand, PodSet
from . import job
from .workload import NOTHING, Made, Object, WorkloadKind, value_at

_CONTROLLER = "kubeflow.org/mpi-operator"
_ROLE = "training.kubeflow.org/job-role"


def demand(item: Object, made: Made = NOTHING) -> Demand:
    outcome = job.end_and_failure(MPIJOBS, item)
    roles = item["spec"].get("mpiReplicaSpecs") or {}
    sets = tuple(_pods_of(item, role.lower(), one, bool(outcome["end"])) for role, one in roles.items())
    limit = (item["spec"].get("runPolicy") or {}).get("activeDeadlineSeconds")
    if limit is None:
        # An MPIJob ends with its launcher.
        limit = value_at(roles, ("Launcher", "template", "spec", "activeDeadlineSeconds"))
    return Demand(sets=sets, **outcome, limit=limit)


def _pods_of(item: Object, role: str, replica: Object, has_ended: bool) -> PodSet:
    template, mark = replica["template"], {_ROLE: role}
    given = (template.get("metadata") or {}).get("labels") or {}
    return PodSet(
        pods=0 if has_ended else max(int(replica.get("replicas", 1)), 0),
        templates=(template["spec"],),
        labels={**given, **mark, "training.kubeflow.org/job-name": item["metadata"]["name"]},
        name=role,
        selector=mark,
    )


WORKLOAD_KIND = WorkloadKind(
    MPIJOBS,
    6,
    ("spec", "runPolicy", "suspend"),
    demand,
    controller=_CONTROLLER,
    managed_by=("spec", "runPolicy", "managedBy"),
)
