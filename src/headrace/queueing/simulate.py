"""A discrete-event simulation of a queue policy on a graph: which job of a list would have started when.

The queue and the graph are those that schedule a live instance; only the clock is simulated. It jumps from one event (a
job arrives, a job ends, a reserved start is due) to the next. The simulation is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from headrace.graph.matcher import Failure, explain
from headrace.graph.model import Graph
from headrace.graph.request import JobRequest, total_needs
from headrace.graph.usage import Allocation
from headrace.queueing.fair_share import FairShare
from headrace.queueing.queue import Decision, Queue, Refused, Started
from headrace.spec.urgency import URGENCY_DEFAULT, URGENCY_HOLD

# The types of resources whose utilisation is measured, where the graph has them.
_MEASURED = ("core", "gpu")
# Simulated seconds between two computations of all priorities from usage.
REVIEW = 300


class Job(NamedTuple):
    """A job of a trace: its submission time and its runtime (at least 1), in whole seconds.

    Its time limit is the duration of the request; like a live instance, the simulation ends a job at its time limit.
    """

    id: int
    submit: int
    runtime: int
    request: JobRequest
    urgency: int = URGENCY_DEFAULT
    user: str = ""


class Run(NamedTuple):
    """A job ran during [start, end) seconds; `backfilled` if a job ahead of it in the queue was still pending."""

    job: Job
    start: int
    end: int
    backfilled: bool


class Simulation(NamedTuple):
    """The runs in order of start, and the jobs that never ran, each with the reason.

    `first` and `last` are the first submission and the end of the last job (seconds). `used` are unit-seconds by
    resource type until `last`, `have` the units of the machine. `events` counts arrivals, starts and ends.
    """

    runs: list[Run]
    never: list[tuple[Job, str]]
    first: int
    last: int
    used: dict[str, int]
    have: dict[str, int]
    events: int


class _Waiting:
    """The pending jobs in the order of the queue. Jobs that have left are removed when they come to the front."""

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[int, int, Job]] = {}
        self._order: list[tuple[int, int, int]] = []
        self._arrivals = 0

    def add(self, job: Job, priority: int) -> None:
        self._arrivals += 1
        self._enter(job, priority, self._arrivals)

    def move(self, job: Job, priority: int) -> bool:
        """Change the priority of a job. False if it has that priority already."""
        was, arrival, _ = self.jobs[job.id]
        if was != -priority:
            self._enter(job, priority, arrival)
        return was != -priority

    def _enter(self, job: Job, priority: int, arrival: int) -> None:
        self.jobs[job.id] = (-priority, arrival, job)
        heappush(self._order, (-priority, arrival, job.id))

    def front(self) -> tuple[int, int] | None:
        """The priority (negated) and arrival of the first pending job, None without one."""
        while self._order:
            known = self.jobs.get(self._order[0][2])
            if known is not None and known[:2] == self._order[0][:2]:
                return self._order[0][:2]
            heappop(self._order)
        return None


def simulate(
    jobs: Iterable[Job],
    queue: Queue,
    on_start: Callable[[Run, Allocation], None] | None = None,
    on_step: Callable[[int], None] | None = None,
    fair: FairShare | None = None,
) -> Simulation:
    """Run jobs with distinct ids through an empty queue until all have ended or been refused.

    With `fair`, jobs are charged to their users as they end, in seconds times the cores (else the nodes) that their
    requests need at least, and priorities are computed from that usage; otherwise priorities are the urgencies.

    `on_start` is called for each start, in order; `on_step` with the number of jobs that have ended, after each event.
    """
    arrivals = sorted(jobs, key=lambda job: job.submit)
    graph = queue.scheduler.graph
    used = {kind: 0 for kind in _MEASURED if kind in graph.types()}
    waiting = _Waiting()
    runs: list[Run] = []
    never: list[tuple[Job, str]] = []
    ends: list[tuple[int, int]] = []
    running: dict[int, Run] = {}
    review = 0
    arrived = ended = 0
    first = now = last = arrivals[0].submit if arrivals else 0
    while True:
        while ends and ends[0][0] <= now:
            id = heappop(ends)[1]
            queue.finish(id)
            ended += 1
            last = now
            run = running.pop(id)
            if fair is not None:
                fair.charge(run.job.user, _amount(run.job.request) * (run.end - run.start), now)
        if fair is not None and now >= review:
            review = now + REVIEW
            _review(fair, waiting, queue)
        while arrived < len(arrivals) and arrivals[arrived].submit <= now:
            job = arrivals[arrived]
            arrived += 1
            if job.urgency == URGENCY_HOLD:
                never.append((job, "held: its urgency is 0"))
                continue
            priority = job.urgency if fair is None else fair.priority(job.urgency, job.user)
            waiting.add(job, priority)
            queue.submit(job.id, job.request, priority)
        started: list[tuple[tuple[int, int, Job], Allocation]] = []
        for decision in _decisions(queue, now):
            if isinstance(decision, Started):
                started.append((waiting.jobs.pop(decision.jobid), decision.allocation))
            elif isinstance(decision, Refused):
                job = waiting.jobs.pop(decision.jobid)[2]
                never.append((job, _reason(graph, decision.failure)))
        front = waiting.front()
        for (priority, arrived_as, job), allocation in started:
            run = Run(
                job,
                now,
                min(now + job.runtime, allocation.end),
                front is not None and front < (priority, arrived_as),
            )
            heappush(ends, (run.end, job.id))
            running[job.id] = run
            runs.append(run)
            if on_start is not None:
                on_start(run, allocation)
        if on_step is not None:
            on_step(ended)
        then = _next(now, arrivals[arrived].submit if arrived < len(arrivals) else None, ends, queue)
        if then is None:
            break
        for kind in used:
            used[kind] += (graph.totals[graph.root][kind] - queue.scheduler.free(graph.root, kind, now)) * (then - now)
        now = then
    never += [(job, "still waiting when nothing more could happen") for _, _, job in waiting.jobs.values()]
    have = {kind: graph.totals[graph.root][kind] for kind in used}
    return Simulation(runs, never, first, last, used, have, arrived + len(runs) + ended)


def _review(fair: FairShare, waiting: _Waiting, queue: Queue) -> None:
    """Compute the priorities of all pending jobs anew."""
    for _, _, job in list(waiting.jobs.values()):
        priority = fair.priority(job.urgency, job.user)
        if waiting.move(job, priority):
            queue.reprioritize(job.id, priority)


def _amount(request: JobRequest) -> int:
    """The units that a job is charged for per second."""
    needs = total_needs(request.resources)
    return needs.get("core") or needs.get("node") or 1


def _decisions(queue: Queue, now: int) -> Iterator[Decision]:
    """All decisions of the queue at a moment, however many calls they take."""
    yield from queue.schedule(now)
    while queue.unfinished:
        yield from queue.schedule(now)


def _next(now: int, arrival: int | None, ends: list[tuple[int, int]], queue: Queue) -> int | None:
    """The moment of the next event, None after the last."""
    moments = [] if arrival is None else [arrival]
    if ends:
        moments.append(ends[0][0])
    reserved = queue.next_start()
    if reserved is not None:
        moments.append(max(reserved, now + 1))
    return min(moments, default=None)


def _reason(graph: Graph, failure: Failure | None) -> str:
    return "the machine could never run it" if failure is None else explain(graph, failure)
