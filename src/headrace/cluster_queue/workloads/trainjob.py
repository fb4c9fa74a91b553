"""TrainJobs: the pods of the JobSet that Kubeflow Trainer makes from job and runtime.

Source: Trainer 2.3.
"""

from __future__ import annotations

from msgspec.structs import replace

from headrace.k8s.objects.conditions import SUSPEND
from headrace.k8s.objects.kinds import TRAINJOBS

from ..model.demand import Demand
from . import job, jobset
from .workload import NOTHING, Made, Object, WorkloadKind

_CONTROLLER = "trainer.kubeflow.org/trainjob-controller"


def demand(item: Object, made: Made = NOTHING) -> Demand:
    outcome = job.end_and_failure(TRAINJOBS, item)
    sets = made.get("JobSet", ())
    if outcome["end"] or not sets:
        return Demand(**outcome, missing="" if outcome["end"] else "Kubeflow Trainer has not created its JobSet yet")
    limit = item["spec"].get("activeDeadlineSeconds")
    wanted = jobset.demand(sets[0], made)
    return replace(wanted, end="", failure="", limit=wanted.limit if limit is None else limit)


WORKLOAD_KIND = WorkloadKind(TRAINJOBS, 7, SUSPEND, demand, controller=_CONTROLLER)
