"""Simulated queues: start times worked out by hand, and what must hold for any trace."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.sched.graph import Allocation, Scheduler, parse_jobspec
from headrace.sched.graph.request import JobRequest
from headrace.sched.queueing.policies import POLICIES
from headrace.sched.queueing.queue import Decision, Planned, Queue
from headrace.sched.queueing.simulate import Job, Run, Simulation, simulate
from headrace.sched.queueing.simulate_machine import uniform


def nodes(count: int, limit: int) -> Any:
    node = {"type": "node", "count": count, "exclusive": True}
    return parse_jobspec({"resources": [node], "attributes": {"system": {"duration": limit}}})


def cores(count: int, limit: int) -> Any:
    slot = {"type": "slot", "count": count, "label": "task", "with": [{"type": "core", "count": 1}]}
    return parse_jobspec({"resources": [slot], "attributes": {"system": {"duration": limit}}})


def queue(policy: str, machine: tuple[int, int] = (4, 1), **options: Any) -> Queue:
    return Queue(Scheduler(uniform(*machine), "low"), policy, **options)


def starts(outcome: Simulation) -> dict[int, int]:
    return {run.job.id: run.start for run in outcome.runs}


# Four nodes. 1 takes two; 2 needs three of them and must wait for 1 to end at 100, leaving one node over. 3 needs the
# whole machine, which is free at 200 once 2 has ended. 4 runs long on the node that is left over, and so stands in the
# way of 3 but not of 2. 5 has ended on a node that is idle now when 2 starts.
WIDE = [
    Job(1, 0, 100, nodes(2, 100)),
    Job(2, 0, 100, nodes(3, 100)),
    Job(3, 0, 50, nodes(4, 50)),
    Job(4, 0, 300, nodes(1, 300)),
    Job(5, 0, 100, nodes(1, 100)),
]


@pytest.mark.parametrize(
    ("policy", "options", "expected", "backfilled"),
    [
        ("fcfs", {}, {1: 0, 2: 100, 3: 200, 4: 250, 5: 250}, set()),
        ("easy", {}, {1: 0, 2: 100, 3: 300, 4: 0, 5: 0}, {4, 5}),
        ("conservative", {}, {1: 0, 2: 100, 3: 200, 4: 250, 5: 0}, {5}),
        ("hybrid", {}, {1: 0, 2: 100, 3: 200, 4: 250, 5: 0}, {5}),
        ("hybrid", {"reservations": 1}, {1: 0, 2: 100, 3: 300, 4: 0, 5: 0}, {4, 5}),
    ],
)
def test_each_policy_starts_jobs_when_a_pencil_says(
    policy: str, options: dict[str, int], expected: dict[int, int], backfilled: set[int]
) -> None:
    outcome = simulate(WIDE, queue(policy, **options))
    assert starts(outcome) == expected
    assert {run.job.id for run in outcome.runs if run.backfilled} == backfilled
    assert not outcome.never


# 1 says 100 seconds and takes 60; 3 arrives at 10 and fits beside 1 until 100, though not until 60.
EARLY = [Job(1, 0, 60, nodes(3, 100)), Job(2, 0, 20, nodes(4, 20)), Job(3, 10, 90, nodes(1, 90))]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fcfs", {1: 0, 2: 60, 3: 80}),
        ("easy", {1: 0, 3: 10, 2: 100}),
        ("conservative", {1: 0, 3: 10, 2: 100}),
        ("hybrid", {1: 0, 3: 10, 2: 100}),
    ],
)
def test_limits_are_believed_until_a_job_ends_early(policy: str, expected: dict[int, int]) -> None:
    assert starts(simulate(EARLY, queue(policy))) == expected


@pytest.mark.parametrize("policy", POLICIES)
def test_a_waiting_job_starts_when_another_ends_before_its_limit(policy: str) -> None:
    jobs = [Job(1, 0, 30, nodes(4, 3600)), Job(2, 5, 10, nodes(4, 10)), Job(3, 6, 10, nodes(2, 0))]
    assert starts(simulate(jobs, queue(policy))) == {1: 0, 2: 30, 3: 40}


def test_urgency_goes_before_arrival_and_holds_at_0() -> None:
    jobs = [
        Job(1, 0, 10, nodes(4, 10)),
        Job(2, 1, 10, nodes(4, 10)),
        Job(3, 2, 10, nodes(4, 10), urgency=31),
        Job(4, 2, 10, nodes(1, 10), urgency=0),
    ]
    outcome = simulate(jobs, queue("fcfs"))
    assert starts(outcome) == {1: 0, 3: 10, 2: 20}
    assert [(job.id, reason) for job, reason in outcome.never] == [(4, "held: its urgency is 0")]


def test_a_job_ends_at_its_limit() -> None:
    outcome = simulate([Job(1, 0, 500, nodes(4, 100)), Job(2, 0, 1, nodes(1, 1))], queue("easy"))
    assert [(run.job.id, run.start, run.end) for run in outcome.runs] == [(1, 0, 100), (2, 100, 101)]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_that_can_never_run_is_listed_with_the_reason_and_holds_up_nobody(policy: str) -> None:
    jobs = [Job(1, 0, 10, nodes(4, 10)), Job(2, 0, 10, nodes(5, 10)), Job(3, 0, 10, nodes(4, 10))]
    outcome = simulate(jobs, queue(policy))
    assert starts(outcome) == {1: 0, 3: 10}
    ((job, reason),) = outcome.never
    assert job.id == 2
    assert reason.startswith("5 node wanted, 4 can be had")


def test_use_of_the_machine_is_counted_by_type() -> None:
    machine = uniform(2, 4, 1)
    gpu = {
        "type": "slot",
        "count": 1,
        "label": "t",
        "with": [{"type": "core", "count": 2}, {"type": "gpu", "count": 1}],
    }
    request = parse_jobspec({"resources": [gpu], "attributes": {"system": {"duration": 10}}})
    jobs = [Job(1, 100, 10, request), Job(2, 105, 30, nodes(1, 30))]
    outcome = simulate(jobs, Queue(Scheduler(machine, "low"), "easy"))
    assert (outcome.first, outcome.last) == (100, 135)
    assert outcome.used == {"core": 2 * 10 + 4 * 30, "gpu": 10 + 30}
    assert outcome.have == {"core": 8, "gpu": 2}


def test_nothing_to_do_is_nothing_done() -> None:
    outcome = simulate([], queue("easy"))
    assert outcome == Simulation([], [], 0, 0, {"core": 0}, {"core": 4}, 0)


# -- any trace

MACHINE = (3, 4)
MOST = MACHINE[0] * MACHINE[1]


@st.composite
def traces(draw: st.DrawFn, exact: bool = False, unit: str = "") -> list[Job]:
    jobs = []
    for jobid in range(1, draw(st.integers(1, 25)) + 1):
        runtime = draw(st.integers(1, 30))
        limit = runtime if exact else runtime + draw(st.sampled_from([-1, 0, 5, 60]))
        submit = draw(st.integers(0, 60))
        if (unit or draw(st.sampled_from(["core", "node"]))) == "core":
            request = cores(draw(st.integers(1, MOST + 1)), max(1, limit))
        else:
            request = nodes(draw(st.integers(1, MACHINE[0] + 1)), max(1, limit))
        jobs.append(Job(jobid, submit, runtime, request))
    return jobs


class Watched(Queue):
    """A queue that remembers the promises it made."""

    def __init__(self, policy: str) -> None:
        super().__init__(Scheduler(uniform(*MACHINE), "first"), policy)
        self.promises: list[Planned] = []

    def schedule(self, now: int) -> list[Decision]:
        decisions = super().schedule(now)
        self.promises += [decision for decision in decisions if isinstance(decision, Planned)]
        return decisions


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25, deadline=None)
@given(jobs=traces())
def test_every_job_runs_once_or_never_and_no_core_serves_two(policy: str, jobs: list[Job]) -> None:
    held: dict[int, list[tuple[int, int]]] = {}
    graph = uniform(*MACHINE)

    def note(run: Run, allocation: Allocation) -> None:
        for item in allocation.selection.items:
            if item.exclusive and graph.type[item.vertex] == "core":
                held.setdefault(item.vertex, []).append((run.start, run.end))

    outcome = simulate(jobs, Queue(Scheduler(graph, "first"), policy), note)
    done = [run.job.id for run in outcome.runs] + [job.id for job, _ in outcome.never]
    assert sorted(done) == sorted(job.id for job in jobs)
    for run in outcome.runs:
        assert run.start >= run.job.submit
        assert run.end - run.start == min(run.job.runtime, run.job.request.duration)
    for spans in held.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in zip(spans, spans[1:], strict=False))
    assert outcome.used["core"] == sum(end - start for spans in held.values() for start, end in spans)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=15, deadline=None)
@given(jobs=traces())
def test_the_same_trace_has_the_same_starts(policy: str, jobs: list[Job]) -> None:
    assert simulate(jobs, Watched(policy)) == simulate(jobs, Watched(policy))


@settings(max_examples=50, deadline=None)
@given(jobs=traces())
def test_fcfs_starts_in_order_of_arrival(jobs: list[Job]) -> None:
    outcome = simulate(jobs, Watched("fcfs"))
    order = sorted(jobs, key=lambda job: job.submit)
    times = [starts(outcome)[job.id] for job in order if job.id in starts(outcome)]
    assert times == sorted(times)
    assert not any(run.backfilled for run in outcome.runs)


@pytest.mark.parametrize("policy", ["easy", "conservative", "hybrid"])
@settings(max_examples=50, deadline=None)
@given(jobs=traces(exact=True))
def test_no_job_starts_later_than_it_was_promised(policy: str, jobs: list[Job]) -> None:
    watched = Watched(policy)
    begun = starts(simulate(jobs, watched))
    assert all(begun[promise.jobid] <= promise.start for promise in watched.promises)


def counted(jobs: list[Job]) -> dict[int, int]:
    """First come, first served over a number of equal cores, second by second and without a graph."""
    waiting = sorted((job for job in jobs if job.request.resources[0].count.low <= MOST), key=lambda job: job.submit)
    running: list[tuple[int, int]] = []
    found: dict[int, int] = {}
    now = 0
    while waiting:
        running = [(end, size) for end, size in running if end > now]
        while waiting and waiting[0].submit <= now:
            job = waiting[0]
            size = job.request.resources[0].count.low
            if size + sum(taken for _, taken in running) > MOST:
                break
            found[job.id] = now
            running.append((now + min(job.runtime, job.request.duration), size))
            del waiting[0]
        now += 1
    return found


@settings(max_examples=50, deadline=None)
@given(jobs=traces(unit="core"))
def test_fcfs_over_equal_cores_is_what_counting_gives(jobs: list[Job]) -> None:
    assert starts(simulate(jobs, Watched("fcfs"))) == counted(jobs)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=50, deadline=None)
@given(jobs=traces(), limits=st.lists(st.integers(100, 10_000), min_size=25, max_size=25))
def test_no_machine_stands_idle_while_jobs_wait(policy: str, jobs: list[Job], limits: list[int]) -> None:
    # All end long before their limits, so that every promise lies far ahead of what is possible.
    loose = [
        job._replace(request=JobRequest(job.request.resources, limit)) for job, limit in zip(jobs, limits, strict=False)
    ]
    outcome = simulate(loose, Watched(policy))
    busy_until = 0
    for run in outcome.runs:
        assert run.start <= max(busy_until, run.job.submit)
        busy_until = max(busy_until, run.end)
