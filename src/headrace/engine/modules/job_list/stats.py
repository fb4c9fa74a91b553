"""Statistics of all jobs. Pure counters.

`job-list.job-stats` has the numbers of jobs by state, result and queue. `job-list.metrics`, for monitoring, has the
times that jobs waited and ran, and the demand of pending jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.engine.modules.job_list.record import Job
from headrace.formats.exposition.histogram import JOBS, Histogram
from headrace.formats.spec.job_state import (
    CANCELED,
    COMPLETED,
    FAILED,
    INACTIVE,
    PENDING,
    RUN,
    RUNNING,
    SCHED,
    STATE_BITS,
    TIMEOUT,
)

if TYPE_CHECKING:
    from headrace.formats.spec.job_state import State


class Counters:
    """The counters of one queue, or of all jobs."""

    __slots__ = ("canceled", "failed", "purged", "states", "successful", "timeout")

    def __init__(self) -> None:
        self.states = dict.fromkeys(STATE_BITS.values(), 0)
        self.successful = self.failed = self.canceled = self.timeout = self.purged = 0

    def move(self, old: State | None, new: State | None) -> None:
        """Count a change of state. Jobs in NEW are not counted. None means that the job does not exist."""
        if old in self.states:
            self.states[old] -= 1
        if new in self.states:
            self.states[new] += 1

    def result(self, job: Job, by: int) -> None:
        if job.result == COMPLETED:
            self.successful += by
        elif job.result == CANCELED:
            self.canceled += by
        elif job.result == TIMEOUT:
            self.timeout += by
        else:
            self.failed += by

    def purge(self, job: Job) -> None:
        self.move(INACTIVE, None)
        self.result(job, -1)
        self.purged += 1

    def as_object(self) -> dict[str, Any]:
        states = {name: self.states[bit] for name, bit in STATE_BITS.items()}
        return {
            "job_states": {**states, "total": sum(states.values())},
            "successful": self.successful,
            "failed": self.failed,
            "canceled": self.canceled,
            "timeout": self.timeout,
            "inactive_purged": self.purged,
        }


class Stats:
    """Counters of all jobs, and of each queue that is configured or had jobs."""

    def __init__(self) -> None:
        self.all = Counters()
        self.queues: dict[str, Counters] = {}
        self._configured: frozenset[str] = frozenset()

    def configure(self, config: dict[str, Any]) -> None:
        queues = config.get("queues")
        self._configured = frozenset(queues if isinstance(queues, dict) else ())

    def _of(self, job: Job) -> list[Counters]:
        if job.queue is None:
            return [self.all]
        queue = self.queues.get(job.queue)
        if queue is None:
            queue = self.queues[job.queue] = Counters()
        return [self.all, queue]

    def move(self, job: Job, old: State) -> None:
        """Count a change of a job's state from `old`."""
        for counters in self._of(job):
            counters.move(old, job.state)
            if job.state == INACTIVE:
                counters.result(job, 1)

    def requeue(self, job: Job, old_queue: str | None) -> None:
        """Count a change of queue from `old_queue`."""
        if old_queue is not None:
            self.queues[old_queue].move(job.state, None)
        if job.queue is not None:
            self._of(job)[1].move(None, job.state)

    def purge(self, job: Job) -> None:
        for counters in self._of(job):
            counters.purge(job)

    def groups(self) -> tuple[int, int, int]:
        """The numbers of pending, running and inactive jobs."""
        states = self.all.states
        pending = sum(count for bit, count in states.items() if bit & PENDING)
        running = sum(count for bit, count in states.items() if bit & RUNNING)
        return pending, running, states[INACTIVE]

    def as_object(self) -> dict[str, Any]:
        """The response of `job-stats`."""
        counters = {name: Counters() for name in self._configured} | self.queues
        queues = [{"name": name, **counters[name].as_object()} for name in sorted(counters)]
        return {**self.all.as_object(), "queues": queues}


_RESULTS = {COMPLETED: "completed", FAILED: "failed", CANCELED: "canceled", TIMEOUT: "timeout"}


class Passed:
    """Counters since the start of this broker.

    `results` has the numbers of ended jobs, `wait` the seconds from submission to each start, and `run` the seconds
    from start to end.

    Earlier jobs are not counted: if a counter decreased when old jobs are purged, monitoring would count other jobs
    twice.
    """

    def __init__(self) -> None:
        self.results = dict.fromkeys(_RESULTS.values(), 0)
        self.wait = Histogram(JOBS)
        self.run = Histogram(JOBS)

    def move(self, job: Job, old: State) -> None:
        """Count a change of a job's state from `old`. The change may skip states."""
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
    """The demand of jobs in SCHED.

    `nodes` is the total number of requested nodes. `cores` is `[[CORES, JOBS], ...]`: the number of jobs by requested
    cores, for jobs that do not request nodes.
    """
    nodes, cores = 0, Counter[int]()
    for job in active:
        if job.state == SCHED:
            if job.nnodes:
                nodes += job.nnodes
            else:
                cores[job.ncores or job.ntasks or 1] += 1
    return {"nodes": nodes, "cores": sorted(map(list, cores.items()))}
