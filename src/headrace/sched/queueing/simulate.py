"""A discrete-event simulation of a queue policy on a graph: when each job would have started.

The queue and the graph are those that schedule a live instance; only the clock is simulated. It jumps from one event (a
job arrives, a job ends, a reserved start is due) to the next. The simulation is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from headrace.formats.spec.urgency import URGENCY_DEFAULT, URGENCY_HOLD
from headrace.sched.graph.matcher import Failure, explain
from headrace.sched.graph.model import Graph
from headrace.sched.graph.request import JobRequest, total_needs
from headrace.sched.graph.usage import Allocation
from headrace.sched.queueing.fair_share import FairShare
from headrace.sched.queueing.pending import Position
from headrace.sched.queueing.queue import Decision, Queue, Refused, Started

# The types of resources whose utilisation is measured, where the graph has them.
_MEASURED = ("core", "gpu")
# Simulated seconds between two computations of all fair shares; accounting's default interval.
FAIR_SHARE_INTERVAL = 60


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
    """A job ran during [start, end) seconds; `backfilled` if a job ahead of it was still pending."""

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


def simulate(
    jobs: Iterable[Job],
    queue: Queue,
    on_start: Callable[[Run, Allocation], None] | None = None,
    on_step: Callable[[int], None] | None = None,
    fair: FairShare | None = None,
    fair_share_interval: float = FAIR_SHARE_INTERVAL,
    count_running: bool = False,
) -> Simulation:
    """Run jobs with distinct ids through an empty queue until all have ended or been refused.

    With `fair`, jobs are charged to their users as they end, in seconds times the cores (else the nodes) that their
    requests need at least, and priorities are those of accounting, from that usage; otherwise they are the urgencies.
    Fair shares are computed every `fair_share_interval` seconds. With `count_running`, they include the usage of
    running jobs until then.

    `on_start` is called for each start, in order; `on_step` with the number of jobs that have ended, after each event.
    """
    arrivals = sorted(jobs, key=lambda job: job.submit)
    graph = queue.scheduler.graph
    used = {kind: 0 for kind in _MEASURED if kind in graph.types()}
    first = now = arrivals[0].submit if arrivals else 0
    machine = _Machine(queue, fair, arrivals, first, fair_share_interval, count_running)
    while True:
        machine.finish(now)
        machine.review(now)
        machine.submit(now)
        for run, allocation in machine.start(now):
            if on_start is not None:
                on_start(run, allocation)
        if on_step is not None:
            on_step(machine.ended)
        then = machine.next_event(now)
        if then is None:
            break
        for kind in used:
            used[kind] += (graph.totals[graph.root][kind] - queue.scheduler.free(graph.root, kind, now)) * (then - now)
        now = then
    waiting = [(job, "still waiting when nothing more could happen") for job in machine.waiting.values()]
    have = {kind: graph.totals[graph.root][kind] for kind in used}
    events = machine.arrived + len(machine.runs) + machine.ended
    return Simulation(machine.runs, machine.never + waiting, first, machine.last_end, used, have, events)


class _Machine:
    """The queue, and the jobs that arrive, wait and run. Times are those of the trace, in seconds.

    `arrivals` are in the order of their submission, of which `arrived` have been submitted; `ends` is a heap of the end
    of each running job and its id.
    """

    def __init__(
        self,
        queue: Queue,
        fair: FairShare | None,
        arrivals: list[Job],
        first: int,
        fair_share_interval: float,
        count_running: bool,
    ) -> None:
        self.queue = queue
        self.fair = fair
        self.fair_share_interval = fair_share_interval
        self.count_running = count_running
        if fair is not None:
            for user in {job.user: None for job in arrivals}:
                fair.add(user)
        self.arrivals = arrivals
        self.arrived = self.ended = 0
        self.next_review = 0.0
        self.waiting: dict[int, Job] = {}
        # The positions of waiting jobs in the queue.
        self.positions: dict[int, Position] = {}
        self.running: dict[int, Run] = {}
        self.ends: list[tuple[int, int]] = []
        self.last_end = first
        self.runs: list[Run] = []
        self.never: list[tuple[Job, str]] = []

    def finish(self, now: int) -> None:
        """End the jobs whose time is over."""
        while self.ends and self.ends[0][0] <= now:
            id = heappop(self.ends)[1]
            self.queue.finish(id)
            self.ended += 1
            self.last_end = now
            run = self.running.pop(id)
            if self.fair is not None:
                self.fair.charge(run.job.user, _usage(run, run.end), now)

    def review(self, now: int) -> None:
        """After each interval, compute fair shares again and the priorities of jobs whose users' have changed."""
        if self.fair is None or now < self.next_review:
            return
        self.next_review = now + self.fair_share_interval
        changed = self.fair.review(now, self.running_usage(now))
        for job in self.waiting.values() if changed else ():
            if job.user not in changed:
                continue
            priority = self.fair.priority(job.urgency, job.user)
            if self.positions[job.id][0] != -priority:
                self.queue.reprioritize(job.id, priority)
                self.positions[job.id] = self.queue.pending[job.id].position

    def running_usage(self, now: int) -> dict[str, float]:
        """The usage of running jobs until now by user, if it counts."""
        usage: dict[str, float] = {}
        for run in self.running.values() if self.count_running else ():
            usage[run.job.user] = usage.get(run.job.user, 0.0) + _usage(run, now)
        return usage

    def submit(self, now: int) -> None:
        """Submit the jobs that have arrived."""
        while self.arrived < len(self.arrivals) and self.arrivals[self.arrived].submit <= now:
            job = self.arrivals[self.arrived]
            self.arrived += 1
            if job.urgency == URGENCY_HOLD:
                self.never.append((job, "held: its urgency is 0"))
                continue
            priority = job.urgency if self.fair is None else self.fair.priority(job.urgency, job.user)
            self.waiting[job.id] = job
            self.queue.submit(job.id, job.request, priority)
            self.positions[job.id] = self.queue.pending[job.id].position

    def start(self, now: int) -> Iterator[tuple[Run, Allocation]]:
        """Start the jobs that the queue decides to start, and drop those that it refuses."""
        started: list[Allocation] = []
        for decision in _decisions(self.queue, now):
            if isinstance(decision, Started):
                started.append(decision.allocation)
            elif isinstance(decision, Refused):
                job = self.waiting.pop(decision.jobid)
                del self.positions[job.id]
                self.never.append((job, _reason(self.queue.scheduler.graph, decision.failure)))
        front = next(iter(self.queue.waiting.order.first(1)), None)
        for allocation in started:
            job = self.waiting.pop(allocation.jobid)
            position = self.positions.pop(job.id)
            overtakes = front is not None and front < position
            run = Run(job, now, min(now + job.runtime, allocation.end), overtakes)
            heappush(self.ends, (run.end, job.id))
            self.running[job.id] = run
            self.runs.append(run)
            yield run, allocation

    def next_event(self, now: int) -> int | None:
        """The moment of the next event, None after the last."""
        moments = [job.submit for job in self.arrivals[self.arrived : self.arrived + 1]]
        moments += [end for end, _ in self.ends[:1]]
        reserved = self.queue.next_start()
        if reserved is not None:
            moments.append(max(reserved, now + 1))
        return min(moments, default=None)


def _usage(run: Run, until: int) -> int:
    """What a run is charged until a moment: seconds times cores, or times nodes if its request names no cores."""
    needs = total_needs(run.job.request.resources)
    return (needs.get("core") or needs.get("node") or 1) * (until - run.start)


def _decisions(queue: Queue, now: int) -> Iterator[Decision]:
    """All decisions of the queue at a moment, however many calls they take."""
    yield from queue.schedule(now)
    while queue.unfinished:
        yield from queue.schedule(now)


def _reason(graph: Graph, failure: Failure | None) -> str:
    return "the machine could never run it" if failure is None else explain(graph, failure)
