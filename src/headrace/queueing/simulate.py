"""A queue policy tried out on a graph over a list of jobs: what would have started when.

The queue and the graph are the very ones that schedule a live instance; only time is made up. It jumps from one event
(a job arrives, a job ends, a promised start is due) to the next, so a year of a machine takes as long as its jobs do.
Same jobs, same queue, same starts: nothing here or below is left to chance.
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

# What the use of a machine is measured in, where it has it.
_MEASURED = ("core", "gpu")
# RFC 30 has urgency 0 hold a job.
_HELD = 0
# How often priorities are worked out anew from usage, in simulated seconds: services do it now and then as well.
REVIEW = 300


class Job(NamedTuple):
    """A job of a trace: when it is submitted and how long it would run (at least 1), in whole seconds.

    Its time limit is the request's duration; like a live instance, the simulation ends a job there.
    """

    id: int
    submit: int
    runtime: int
    request: JobRequest
    urgency: int = 16
    user: str = ""


class Run(NamedTuple):
    """A job ran during [start, end) seconds; `backfilled` if a job ahead of it in the queue went on waiting."""

    job: Job
    start: int
    end: int
    backfilled: bool


class Simulation(NamedTuple):
    """What happened: runs in order of start, and the jobs that never ran, each with the reason.

    `used` is unit-seconds by resource type until `last`, the end of the last job; `have` is what the machine has.
    """

    runs: list[Run]
    never: list[tuple[Job, str]]
    first: int
    last: int
    used: dict[str, int]
    have: dict[str, int]
    events: int


class _Line:
    """The jobs that wait, in the queue's order; those that leave are forgotten when they come to the front."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[int, int, Job]] = {}
        self._order: list[tuple[int, int, int]] = []
        self._arrivals = 0

    def add(self, job: Job, priority: int) -> None:
        self._arrivals += 1
        self._enter(job, priority, self._arrivals)

    def move(self, job: Job, priority: int) -> bool:
        """Give a job another priority. False if it has that already."""
        was, place, _ = self.waiting[job.id]
        if was != -priority:
            self._enter(job, priority, place)
        return was != -priority

    def _enter(self, job: Job, priority: int, place: int) -> None:
        self.waiting[job.id] = (-priority, place, job)
        heappush(self._order, (-priority, place, job.id))

    def front(self) -> tuple[int, int] | None:
        """The place of the first that waits."""
        while self._order:
            known = self.waiting.get(self._order[0][2])
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

    With `fair`, jobs are charged to their users as they end, in seconds times the least that their requests need of
    cores, or of nodes, and priorities follow; else urgencies are the priorities.

    `on_start` is told of each start, in order; `on_step` how many jobs have ended, after each moment at which
    something happened.
    """
    arrivals = sorted(jobs, key=lambda job: job.submit)
    graph = queue.scheduler.graph
    used = {kind: 0 for kind in _MEASURED if kind in graph.types()}
    line = _Line()
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
            for _, _, job in list(line.waiting.values()):
                priority = fair.priority(job.urgency, job.user)
                if line.move(job, priority):
                    queue.reprioritize(job.id, priority)
        while arrived < len(arrivals) and arrivals[arrived].submit <= now:
            job = arrivals[arrived]
            arrived += 1
            if job.urgency == _HELD:
                never.append((job, "held: its urgency is 0"))
                continue
            priority = job.urgency if fair is None else fair.priority(job.urgency, job.user)
            line.add(job, priority)
            queue.submit(job.id, job.request, priority)
        started: list[tuple[tuple[int, int, Job], Allocation]] = []
        for decision in _decisions(queue, now):
            if isinstance(decision, Started):
                started.append((line.waiting.pop(decision.jobid), decision.allocation))
            elif isinstance(decision, Refused):
                job = line.waiting.pop(decision.jobid)[2]
                never.append((job, _reason(graph, decision.failure)))
        front = line.front()
        for (priority, place, job), allocation in started:
            run = Run(
                job,
                now,
                min(now + job.runtime, allocation.end),
                front is not None and front < (priority, place),
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
    never += [(job, "still waiting when nothing more could happen") for _, _, job in line.waiting.values()]
    have = {kind: graph.totals[graph.root][kind] for kind in used}
    return Simulation(runs, never, first, last, used, have, arrived + len(runs) + ended)


def _amount(request: JobRequest) -> int:
    """What a job is charged for, per second."""
    needs = total_needs(request.resources)
    return needs.get("core") or needs.get("node") or 1


def _decisions(queue: Queue, now: int) -> Iterator[Decision]:
    """All that the queue has to say at a moment, in as many calls as it wants."""
    yield from queue.schedule(now)
    while queue.unfinished:
        yield from queue.schedule(now)


def _next(now: int, arrival: int | None, ends: list[tuple[int, int]], queue: Queue) -> int | None:
    """The moment at which something happens next."""
    moments = [] if arrival is None else [arrival]
    if ends:
        moments.append(ends[0][0])
    promised = queue.next_start()
    if promised is not None:
        moments.append(max(promised, now + 1))
    return min(moments, default=None)


def _reason(graph: Graph, failure: Failure | None) -> str:
    return "the machine could never run it" if failure is None else explain(graph, failure)
