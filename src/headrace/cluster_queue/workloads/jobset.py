"""JobSets: the pods of all their Jobs, also of Jobs that start later; a set for each replicated Job.

Source: JobSet 0.12.
"""

from __future__ import annotations

from headrace.k8s.objects.conditions import SUSPEND
from headrace.k8s.objects.kinds import JOBSETS

from ..model.demand import Demand
from . import job
from .workload import NOTHING, Made, Object, WorkloadKind

_CONTROLLER = "jobset.sigs.k8s.io/jobset-controller"
_REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"


def demand(item: Object, made: Made = NOTHING) -> Demand:
    outcome = job.end_and_failure(JOBSETS, item)
    jobs = {one["name"]: _jobs_of(one, made) for one in item["spec"].get("replicatedJobs") or ()}
    sets = tuple(
        job.several(
            [] if outcome["end"] else own,
            0 if outcome["end"] else more,
            # Unless the failure of a Job fails the JobSet, the JobSet recreates the Job, and new pods replace the lost
            # ones.
            ends=("Complete",),
            name=name,
            selector={_REPLICATED: name},
            per_job=max(map(job.at_a_time, own), default=1),
        )
        for name, (own, more) in jobs.items()
    )
    return Demand(sets=sets, **outcome, limit=job.limit_of([one for own, _ in jobs.values() for one in own]))


def _jobs_of(replicated: Object, made: Made) -> tuple[list[Object], int]:
    """The Jobs of a replicated Job: the existing ones and, as the last, a template for missing ones.

    Also returns how many further Jobs are missing beside that template.
    """
    own = [job for job in made.get("Job", ()) if _replicated(job) == replicated["name"]]
    template = {"metadata": {"name": replicated["name"]}, "spec": replicated["template"]["spec"]}
    missing = max(int(replicated.get("replicas", 1)) - len(own), 0)
    return ([*own, template], missing - 1) if missing else (own, 0)


def _replicated(item: Object) -> str:
    """The name of the replicated Job to which a Job belongs."""
    return str((item["metadata"].get("labels") or {}).get(_REPLICATED, ""))


WORKLOAD_KIND = WorkloadKind(JOBSETS, 5, SUSPEND, demand, controller=_CONTROLLER)
