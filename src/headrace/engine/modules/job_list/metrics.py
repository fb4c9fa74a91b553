"""What is told of all jobs to programs that watch an instance (`job-list.metrics`): how long they waited and ran, and
what those that wait would take. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.engine.modules.job_list.record import Job
from headrace.formats.exposition.histogram import JOBS, Histogram
from headrace.formats.spec.job_state import CANCELED, COMPLETED, FAILED, INACTIVE, RUN, SCHED, TIMEOUT

if TYPE_CHECKING:
    from headrace.formats.spec.job_state import State

_RESULTS = {COMPLETED: "completed", FAILED: "failed", CANCELED: "canceled", TIMEOUT: "timeout"}


class Passed:
    """What was counted of jobs since this broker has begun: `results` are numbers of jobs that ended, `wait` has the
    seconds from the submission of jobs to each of their starts, `run` those from start to end.

    Jobs of the time before are not counted: a counter that falls as old jobs are purged would count others twice.
    """

    def __init__(self) -> None:
        self.results = dict.fromkeys(_RESULTS.values(), 0)
        self.wait = Histogram(JOBS)
        self.run = Histogram(JOBS)

    def move(self, job: Job, old: State) -> None:
        """Count a change of a job's state from `old`, which may pass over states."""
        if job.state == INACTIVE:
            self.results[_RESULTS.get(job.result or FAILED, "failed")] += 1
        began = job.t_run
        if began is None:
            return
        if old < RUN <= job.state:
            self.wait.observe(max(began - job.t_submit, 0.0))
        if job.state == INACTIVE and job.t_cleanup is not None:
            self.run.observe(max(job.t_cleanup - began, 0.0))

    def as_object(self) -> dict[str, Any]:
        return {"results": self.results, "wait": self.wait.as_object(), "run": self.run.as_object()}


def demand(active: Iterable[Job]) -> dict[str, Any]:
    """What jobs in SCHED ask for: `nodes` in all, and of jobs that name none their number by cores,
    `[[CORES, JOBS], ...]`.
    """
    nodes, cores = 0, Counter[int]()
    for job in active:
        if job.state == SCHED:
            if job.nnodes:
                nodes += job.nnodes
            else:
                cores[job.ncores or job.ntasks or 1] += 1
    return {"nodes": nodes, "cores": sorted(map(list, cores.items()))}
