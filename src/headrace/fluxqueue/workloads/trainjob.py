"""TrainJobs: the pods of the JobSet that Kubeflow Trainer makes of one and its runtime. Source: Trainer 2.3."""

from __future__ import annotations

from msgspec.structs import replace

from ...kube.kinds import TRAINJOBS
from . import job, jobset
from .workload import NOTHING, Made, Object, Wish, Workload

_ENDS = {"Complete": "Finished", "Failed": "Failed"}
_CONTROLLER = "trainer.kubeflow.org/trainjob-controller"


def wish(item: Object, made: Made = NOTHING) -> Wish:
    told = job.told_end(item.get("status") or {}, _ENDS)
    sets = made.get("JobSet", ())
    if told["end"] or not sets:
        return Wish(**told, missing="" if told["end"] else "Kubeflow Trainer has not made its JobSet yet")
    limit = item["spec"].get("activeDeadlineSeconds")
    wanted = jobset.wish(sets[0], made)
    return replace(wanted, end="", failure="", limit=wanted.limit if limit is None else limit)


WORKLOAD = Workload(TRAINJOBS, 7, ("spec", "suspend"), wish, controller=_CONTROLLER)
