"""What is promised is kept, for any mix of jobs: EASY never delays the first, the others never delay any that a job
with the same priority, or a lower one, comes behind.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sched.graph import Graph, Scheduler, parse_jobspec
from headrace.sched.queueing.queue import Planned, Queue, Started

KEEPING = ["hybrid", "conservative"]


class Job(NamedTuple):
    """A job of a mix. It runs for `runs` parts in four of what it asked for."""

    arrival: int
    shape: int
    size: int
    duration: int
    priority: int
    runs: int
    cancelled: int | None


def cluster() -> Graph:
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(4):
        node = graph.add("node", root, id=n, rank=n)
        for c in range(4):
            graph.add("core", node, id=c)
        graph.add("gpu", node, id=0)
    return graph.finish()


def request(job: Job) -> Any:
    slot = {"type": "slot", "label": "t", "count": job.size, "with": [{"type": "core", "count": 1}]}
    shapes: list[dict[str, Any]] = [
        {"type": "node", "count": job.size, "exclusive": True},
        slot,
        {**slot, "count": 1, "with": [{"type": "core", "count": job.size}, {"type": "gpu", "count": 1}]},
        {"type": "node", "count": job.size, "with": [{**slot, "count": 2}]},
    ]
    return parse_jobspec({"resources": [shapes[job.shape]], "attributes": {"system": {"duration": job.duration}}})


def mixes(priorities: st.SearchStrategy[int], runs: st.SearchStrategy[int], cancels: bool) -> st.SearchStrategy[Any]:
    job = st.builds(
        Job,
        arrival=st.integers(0, 25),
        shape=st.integers(0, 3),
        size=st.integers(1, 4),
        duration=st.integers(1, 20),
        priority=priorities,
        runs=runs,
        cancelled=st.none() | st.integers(5, 40) if cancels else st.none(),
    )
    return st.lists(job, min_size=8, max_size=24)


class Trace:
    """What happened to the jobs of a mix: starts, and every promise made."""

    def __init__(self, mix: list[Job], queue: Queue) -> None:
        self.starts: dict[int, int] = {}
        self.promises: list[tuple[int, int]] = []
        self.mix = mix
        self.queue = queue
        waiting = sorted(range(len(mix)), key=lambda i: mix[i].arrival)
        ends: list[tuple[int, int]] = []
        now = 0
        while waiting or ends or queue.pending:
            for end, jobid in [e for e in ends if e[0] <= now]:
                ends.remove((end, jobid))
                queue.finish(jobid)
            while waiting and mix[waiting[0]].arrival <= now:
                jobid = waiting.pop(0)
                queue.submit(jobid, request(mix[jobid]), mix[jobid].priority)
            for jobid in list(queue.pending):
                cancelled = mix[jobid].cancelled
                if cancelled is not None and cancelled <= now:
                    queue.cancel(jobid)
            ends += self.call(now)
            assert now < 2000, (now, len(queue.pending), queue.planned)
            now += 1
        assert not queue.scheduler.jobs

    def call(self, now: int) -> list[tuple[int, int]]:
        """Let the queue do all it wants to do at a moment; the ends of the jobs that start."""
        ends = []
        for _ in range(10_000):
            for d in self.queue.schedule(now):
                if isinstance(d, Started):
                    assert d.allocation.start == now
                    self.starts[d.jobid] = now
                    job = self.mix[d.jobid]
                    ends.append((now + max(1, job.duration * job.runs // 4), d.jobid))
                elif isinstance(d, Planned):
                    assert d.start > now
                    self.promises.append((d.jobid, d.start))
            if not self.queue.unfinished:
                break
        assert not self.queue.unfinished
        self.check()
        return ends

    def check(self) -> None:
        """What must hold whenever the queue has nothing left to do."""
        self.check_overlaps()

    def check_overlaps(self) -> None:
        """No resource is held or promised twice."""
        taken: list[tuple[int, int, set[int]]] = []
        for job in self.queue.scheduler.jobs.values():
            held = {item.vertex for item in job.selection.items if item.exclusive}
            for start, end, other in taken:
                assert end <= job.start or job.end <= start or not held & other
            taken.append((job.start, job.end, held))


def broken(trace: Trace) -> list[tuple[int, int, int]]:
    """Promises that were not kept: job, promise, start."""
    return [(j, p, trace.starts[j]) for j, p in trace.promises if j in trace.starts and trace.starts[j] > p]


@settings(max_examples=80, deadline=None)
@given(mixes(st.just(16), st.just(4), cancels=False))
def test_easy_never_delays_the_first_reservation(mix: list[Job]) -> None:
    trace = Trace(mix, Queue(Scheduler(cluster(), "low"), "easy"))
    assert not broken(trace)
    assert len(trace.starts) == len(mix)


@settings(max_examples=40, deadline=None)
@given(mixes(st.just(16), st.integers(1, 4), cancels=True))
def test_easy_never_delays_the_first_reservation_when_others_end_early_or_go(mix: list[Job]) -> None:
    assert not broken(Trace(mix, Queue(Scheduler(cluster(), "low"), "easy")))


@pytest.mark.parametrize("policy", KEEPING)
@settings(max_examples=60, deadline=None)
@given(mix=mixes(st.just(16), st.just(4), cancels=False))
def test_no_reservation_is_delayed_by_jobs_that_come_in_order(policy: str, mix: list[Job]) -> None:
    trace = Trace(mix, Queue(Scheduler(cluster(), "low"), policy, reservations=3 if policy == "hybrid" else None))
    assert not broken(trace)
    assert len(trace.starts) == len(mix)


@pytest.mark.parametrize("match", ["first", "low", "lonodex", "locality"])
@pytest.mark.parametrize("policy", KEEPING)
@settings(max_examples=25, deadline=None)
@given(mix=mixes(st.just(16), st.integers(1, 4), cancels=True), budget=st.sampled_from([2, 7, 250]))
def test_no_reservation_is_delayed_by_early_ends_cancels_or_small_slices(
    policy: str, match: str, mix: list[Job], budget: int
) -> None:
    queue = Queue(
        Scheduler(cluster(), match),
        policy,
        depth=5,
        reservations=3 if policy == "hybrid" else None,
        budget=budget,
    )
    assert not broken(Trace(mix, queue))


class OrderTrace(Trace):
    """Checks that the first in line starts as early as it could if no other job had a reservation."""

    def check(self) -> None:
        super().check()
        queue = self.queue
        for jobid in queue.first(1):
            alone = Scheduler(queue.scheduler.graph, "low")
            for held in (queue.scheduler.jobs[each] for each in queue.running):
                alone.add(held.jobid, held.selection, held.start, held.end, False)
            least = alone.reserve(jobid, queue.pending[jobid].request, queue.now).allocation
            if least is not None:
                assert queue.planned[jobid].start <= least.start


@pytest.mark.parametrize("policy", KEEPING)
@settings(max_examples=60, deadline=None)
@given(mix=mixes(st.integers(15, 17), st.just(4), cancels=False), budget=st.sampled_from([2, 250]))
def test_no_reservation_delays_a_job_that_precedes_it(policy: str, mix: list[Job], budget: int) -> None:
    reservations = 3 if policy == "hybrid" else None
    trace = OrderTrace(mix, Queue(Scheduler(cluster(), "low"), policy, reservations=reservations, budget=budget))
    assert len(trace.starts) == len(mix)


@settings(max_examples=40, deadline=None)
@given(mixes(st.just(16), st.just(4), cancels=False))
def test_under_conservative_a_later_arrival_costs_earlier_ones_nothing(mix: list[Job]) -> None:
    """With exact runtimes, leaving out the last to arrive changes nothing for the others."""
    trace = Trace(mix, Queue(Scheduler(cluster(), "low"), "conservative", budget=None))
    last = max(range(len(mix)), key=lambda i: (mix[i].arrival, i))
    fewer = [job for i, job in enumerate(mix) if i != last]
    without = Trace(fewer, Queue(Scheduler(cluster(), "low"), "conservative", budget=None))
    for i in range(len(fewer)):
        assert trace.starts[i if i < last else i + 1] == without.starts[i]
