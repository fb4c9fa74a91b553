"""JobSets: the pods of all their Jobs, those included that start when others have ended. Source: JobSet 0.12."""

from __future__ import annotations

from msgspec.structs import replace

from ...kube.kinds import JOBSETS
from . import job
from .workload import NOTHING, Made, Object, Wish, Workload

_ENDS = {"Completed": "Finished", "Failed": "Failed"}
_OWN_CONTROLLER = "jobset.sigs.k8s.io/jobset-controller"
_REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"


def wish(item: Object, made: Made = NOTHING) -> Wish:
    end = job.end_in(item.get("status") or {}, _ENDS)
    jobs: list[Object] = []
    for one in item["spec"].get("replicatedJobs") or ():
        own = [job for job in made.get("Job", ()) if _replicated(job) == one["name"]]
        template = {"metadata": {"name": one["name"]}, "spec": {**one["template"]["spec"], "suspend": False}}
        jobs += [*own, *[template] * max(int(one.get("replicas", 1)) - len(own), 0)]
    wanted = job.several(jobs)
    return replace(wanted, pods=0, end=end) if end else wanted


def _replicated(item: Object) -> str:
    """The name of the replicated Job to which a Job belongs."""
    return str((item["metadata"].get("labels") or {}).get(_REPLICATED, ""))


def left_alone(item: Object) -> bool:
    return bool(item["spec"].get("managedBy", _OWN_CONTROLLER) != _OWN_CONTROLLER)


WORKLOAD = Workload(JOBSETS, 5, ("spec", "suspend"), wish, left_alone)
