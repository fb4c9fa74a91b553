"""What each queue policy promises: order, no delay of promised starts, everything served in the end."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace.sched.graph import Graph, Scheduler, parse_jobspec
from headrace.sched.graph.selection import from_vertices
from headrace.sched.queueing.policies import by_name
from headrace.sched.queueing.queue import (
    MAX_CANCELLED,
    MAX_STARTS,
    REORDERED_PER_SECOND,
    Planned,
    Queue,
    Refused,
    Started,
    overrun,
)


def cluster(nodes: int = 4, cores: int = 4) -> Graph:
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(nodes):
        node = graph.add("node", root, id=n, rank=n)
        for c in range(cores):
            graph.add("core", node, id=c)
    return graph.finish()


def nodes(count: int, duration: int) -> Any:
    node = {"type": "node", "count": count, "exclusive": True}
    return parse_jobspec({"resources": [node], "attributes": {"system": {"duration": duration}}})


def cores(count: int, duration: int) -> Any:
    slot = {"type": "slot", "count": count, "label": "t", "with": [{"type": "core", "count": 1}]}
    return parse_jobspec({"resources": [slot], "attributes": {"system": {"duration": duration}}})


def queue(policy: str, **options: Any) -> Queue:
    return Queue(Scheduler(cluster(), "low"), policy, **options)


def started(decisions: list[Any]) -> list[int]:
    return [d.jobid for d in decisions if isinstance(d, Started)]


def test_fcfs_lets_nobody_pass_the_first_that_waits() -> None:
    q = queue("fcfs")
    for jobid, request in enumerate([nodes(3, 100), nodes(2, 10), nodes(1, 10)], 1):
        q.submit(jobid, request)
    assert started(q.schedule(0)) == [1]
    q.finish(1)
    assert started(q.schedule(5)) == [2, 3]


def test_easy_backfills_only_what_does_not_delay_the_first() -> None:
    q = queue("easy")
    q.submit(1, nodes(3, 100))
    q.submit(2, nodes(4, 10))
    q.submit(3, nodes(1, 101))
    q.submit(4, nodes(1, 100))
    decisions = q.schedule(0)
    assert started(decisions) == [1, 4]
    assert Planned(2, 100) in decisions
    assert q.next_start() == 100


def test_priority_goes_before_arrival() -> None:
    q = queue("fcfs")
    q.submit(1, nodes(3, 10), priority=16)
    q.submit(2, nodes(3, 10), priority=20)
    q.submit(3, nodes(3, 10), priority=16)
    q.reprioritize(3, 31)
    assert started(q.schedule(0)) == [3]
    q.finish(3)
    assert started(q.schedule(1)) == [2]


def test_promised_job_starts_when_its_time_comes() -> None:
    q = queue("conservative")
    q.submit(1, nodes(4, 50))
    q.submit(2, nodes(4, 50))
    q.schedule(0)
    q.finish(1)
    assert started(q.schedule(50)) == [2]


def test_job_that_outlives_its_end_keeps_its_resources() -> None:
    q = queue("easy")
    q.submit(1, nodes(4, 50))
    q.submit(2, nodes(4, 50))
    q.schedule(0)
    assert started(q.schedule(50)) == []
    q.finish(1)
    assert started(q.schedule(51)) == [2]


def test_hopeless_job_is_refused_and_does_not_block() -> None:
    q = queue("fcfs")
    q.submit(1, nodes(5, 10))
    q.submit(2, nodes(1, 10))
    decisions = q.schedule(0)
    refused = [d for d in decisions if isinstance(d, Refused)]
    assert [d.jobid for d in refused] == [1]
    assert started(decisions + q.schedule(0)) == [2]


@pytest.mark.parametrize("policy", ["easy", "hybrid", "conservative"])
def test_who_asks_for_what_there_is_not_learns_it_before_his_turn(policy: str) -> None:
    q = queue(policy)
    q.submit(1, nodes(4, 100))
    q.submit(2, nodes(4, 100))
    q.submit(3, nodes(5, 10))
    q.submit(4, nodes(5, 10))
    q.submit(5, nodes(5, 20))
    assert [d.jobid for d in q.schedule(0) if isinstance(d, Refused)] == [3, 4, 5]
    # Many that differ take more than one call.
    for jobid in range(10, 210):
        q.submit(jobid, cores(17 + jobid, 10))
    refused = 0
    while q.schedule(0) or q.unfinished:
        refused = 200 - (len(q.pending) - 1)
    assert refused == 200


def test_a_late_job_is_assumed_to_take_as_long_again() -> None:
    assert [overrun(late) for late in (0, 1, 7, 29, 500)] == [1, 2, 8, 30, 30]


def test_nothing_is_done_where_nothing_changed() -> None:
    q = queue("easy")
    q.submit(1, nodes(4, 50))
    q.submit(2, nodes(4, 50))
    q.schedule(0)
    assert q.schedule(1) == []


def simulate(policy: str, seed: int) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Starts of all jobs, and every promise made to each, over a random trace in which jobs may end early."""
    rng = random.Random(seed)
    q = queue(policy)
    ends: list[tuple[int, int]] = []
    starts: dict[int, int] = {}
    promises: dict[int, list[int]] = {}
    arrivals = sorted((rng.randint(0, 60), i) for i in range(40))
    now = 0
    while arrivals or q.pending or ends:
        while arrivals and arrivals[0][0] <= now:
            _, jobid = arrivals.pop(0)
            make = nodes if rng.random() < 0.5 else cores
            q.submit(jobid, make(rng.randint(1, 4), rng.choice([5, 10, 30])))
        for end, jobid in [e for e in ends if e[0] <= now]:
            ends.remove((end, jobid))
            q.finish(jobid)
        for d in q.schedule(now):
            if isinstance(d, Started):
                starts[d.jobid] = now
                length = d.allocation.end - now
                ends.append((now + rng.choice([length, length, max(1, length // 2)]), d.jobid))
            elif isinstance(d, Planned):
                promises.setdefault(d.jobid, []).append(d.start)
        now += 1
        assert now < 5000
    return starts, promises


@pytest.mark.parametrize("policy", ["fcfs", "easy", "hybrid", "conservative"])
def test_every_job_is_served(policy: str) -> None:
    for seed in range(3):
        starts, _ = simulate(policy, seed)
        assert len(starts) == 40


def test_conservative_never_puts_off_a_promise() -> None:
    kept = 0
    for seed in range(5):
        starts, promises = simulate("conservative", seed)
        for jobid, made in promises.items():
            assert starts[jobid] <= min(made)
            kept += 1
    assert kept > 30


def test_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="fcfs, easy"):
        by_name("lifo")


def test_easy_takes_its_promise_back_from_a_job_that_others_came_ahead_of() -> None:
    q = queue("easy")
    q.submit(1, nodes(4, 100))
    q.submit(2, nodes(4, 50))
    assert [type(d) for d in q.schedule(0)] == [Started, Planned]
    q.submit(3, nodes(1, 10), priority=31)
    assert q.schedule(1) == [Planned(3, 100)]
    assert list(q.planned) == [3]
    # Its turn comes again.
    q.cancel(3)
    q.schedule(2)
    assert q.planned[2].start == 100


def test_what_an_early_end_frees_is_the_first_job_s_before_others_may_delay_it() -> None:
    q = queue("easy")
    q.submit(1, nodes(3, 1000))
    q.submit(2, nodes(1, 50))
    q.submit(3, nodes(4, 100))
    assert Planned(3, 1000) in q.schedule(0)
    q.submit(4, nodes(1, 900))
    assert q.schedule(2) == []
    q.finish(1)
    assert q.schedule(10) == [Planned(3, 50)]
    # What ends in time may go first all the same.
    q.submit(5, nodes(1, 40))
    assert started(q.schedule(10)) == [5]


def test_jobs_of_a_priority_are_in_order_of_their_arrival_if_that_is_told() -> None:
    q = queue("fcfs")
    q.submit(1, nodes(4, 10), arrival=1.0)
    q.submit(3, nodes(4, 10), arrival=1.2)
    q.submit(2, nodes(4, 10), arrival=1.1)
    q.submit(4, nodes(4, 10), arrival=1.1)
    assert q.first(4) == [1, 2, 4, 3]


def test_one_call_starts_no_more_jobs_behind_the_first_than_it_has_time_for() -> None:
    q = Queue(Scheduler(cluster(130, 1), "low"), "easy")
    q.submit(1, nodes(1, 100))
    q.submit(2, nodes(130, 10))
    for jobid in range(3, 103):
        q.submit(jobid, nodes(1, 50 + jobid % 2))
    counts = [len(started(q.schedule(0)))]
    while q.unfinished:
        counts.append(len(started(q.schedule(0))))
    assert sum(counts) == 101
    assert max(counts) <= MAX_STARTS + 1


@pytest.mark.parametrize("seed", range(20))
def test_easy_never_delays_the_first_beyond_what_those_before_it_leave(seed: int) -> None:
    rng = random.Random(seed)
    q = queue("easy")
    requests: dict[int, Any] = {}
    ends: dict[int, int] = {}
    now = 0
    for jobid in range(1, 61):
        now += rng.choice([0, 1, 5, 20])
        requests[jobid] = nodes(rng.randint(1, 4), rng.choice([10, 50, 200]))
        q.submit(jobid, requests[jobid])
        for ended in [each for each, end in ends.items() if end <= now]:
            q.finish(ended)
            del ends[ended]
        before = [q.scheduler.jobs[each] for each in q.running]
        begun = started(q.schedule(now))
        first = next(iter(q.first(1)), None)
        for each in begun:
            ends[each] = now + rng.randint(1, requests[each].duration)
        if first is None:
            continue
        alone = Scheduler(q.scheduler.graph, "low")
        for held in (*before, *(q.scheduler.jobs[each] for each in begun if each < first)):
            alone.add(held.jobid, held.selection, held.start, held.end, False)
        least = alone.reserve(first, requests[first], now).allocation
        assert least is not None
        assert q.planned[first].start <= least.start, f"job {first} at {now}"


def pods(count: int, cpu: int, duration: int) -> Any:
    slot = {"type": "slot", "count": count, "label": "t", "with": [{"type": "cpu", "count": cpu, "exclusive": False}]}
    return parse_jobspec({"resources": [slot], "attributes": {"system": {"duration": duration}}})


@pytest.mark.parametrize("policy", ["easy", "conservative", "hybrid"])
def test_a_promise_that_a_smaller_pool_breaks_is_made_anew(policy: str) -> None:
    graph = Graph()
    root = graph.add("cluster", id=0)
    pools = [graph.add("cpu", graph.add("node", root, id=n, rank=n), id=0, size=10) for n in range(2)]
    q = Queue(Scheduler(graph.finish(), "lonode", ["cpu"]), policy)
    for jobid, request in enumerate([pods(1, 10, 10), pods(1, 10, 20), pods(1, 8, 10)], 1):
        q.submit(jobid, request)
    assert Planned(3, 10) in q.schedule(0)
    q.drop_plans_of(q.scheduler.set_size(pools[0], 5))
    assert q.schedule(1) == [Planned(3, 20)]
    q.finish(1)
    assert started(q.schedule(10)) == []
    assert q.scheduler.set_size(pools[0], 8) == []
    q.touch()
    assert started(q.schedule(11)) == [3]
    # What another scheduler started takes what was promised.
    q.submit(4, pods(1, 10, 5))
    assert Planned(4, 20) in q.schedule(12)
    q.drop_plans_of(q.scheduler.hold(100, from_vertices(graph, [(pools[1], 1, True)]), 12, 50))
    assert q.schedule(13) == [Planned(4, 50)]


def test_a_job_enters_with_what_it_holds_in_fact_and_breaks_what_was_promised() -> None:
    q = queue("easy")
    for jobid, request in enumerate([nodes(4, 50), nodes(4, 100)], 1):
        q.submit(jobid, request)
    assert started(q.schedule(0)) == [1]
    assert q.planned[2].start == 50
    graph = q.scheduler.graph
    held = from_vertices(graph, [(v, 1, True) for v in graph.vertices() if graph.type[v] == "core"][:1])
    q.enter(-1, held, 0, 70)
    assert not q.planned
    q.schedule(0)
    assert q.planned[2].start == 70
    # It runs on beyond its end, as any other.
    q.finish(1)
    assert started(q.schedule(71)) == []
    q.finish(-1)
    assert started(q.schedule(72)) == [2]


KEEPING = ["hybrid", "conservative"]


def line(policy: str, *waiting: int) -> Queue:
    """A queue of jobs of the whole system for 50 s: job 1 runs, the others have reservations in order."""
    q = queue(policy)
    for jobid in (1, *waiting):
        q.submit(jobid, nodes(4, 50), arrival=10 * jobid)
    q.schedule(0)
    assert list(q.planned) == list(waiting)
    return q


def starts(q: Queue) -> dict[int, int]:
    return {jobid: plan.start for jobid, plan in sorted(q.planned.items())}


@pytest.mark.parametrize("policy", KEEPING)
def test_a_job_of_higher_priority_is_planned_before_those_that_have_a_promise(policy: str) -> None:
    q = line(policy, 2, 3)
    q.submit(4, nodes(4, 50), priority=20, arrival=40)
    assert Planned(4, 50) in q.schedule(1)
    assert starts(q) == {2: 100, 3: 150, 4: 50}
    q.finish(1)
    assert started(q.schedule(2)) == [4]


@pytest.mark.parametrize("policy", KEEPING)
def test_a_job_that_runs_beyond_its_end_leaves_the_order_as_it_is(policy: str) -> None:
    q = line(policy, 2, 3)
    for now in range(50, 55):
        assert started(q.schedule(now)) == []
    q.finish(1)
    assert started(q.schedule(55)) == [2]


@pytest.mark.parametrize("policy", KEEPING)
def test_a_job_that_comes_back_with_its_arrival_is_back_in_its_place(policy: str) -> None:
    q = line(policy, 2, 3, 4)
    q.cancel(2)
    q.schedule(1)
    assert starts(q) == {3: 50, 4: 100}
    q.submit(2, nodes(4, 60), arrival=20)
    q.schedule(2)
    assert starts(q) == {2: 50, 3: 110, 4: 160}
    # In the moment of an early end, too.
    q.cancel(2)
    q.submit(2, nodes(4, 50), arrival=20)
    q.finish(1)
    assert started(q.schedule(3)) == [2]


@pytest.mark.parametrize("policy", KEEPING)
def test_a_promise_that_is_broken_is_made_anew_before_those_behind_it(policy: str) -> None:
    q = line(policy, 2, 3)
    q.drop_plans_of([2])
    q.schedule(1)
    assert starts(q) == {2: 50, 3: 100}


@pytest.mark.parametrize("policy", KEEPING)
def test_jobs_with_a_promise_that_move_in_the_queue_are_planned_where_they_are(policy: str) -> None:
    q = line(policy, 2, 3, 4)
    q.reprioritize(4, 20)
    q.schedule(1)
    assert starts(q) == {2: 100, 3: 150, 4: 50}
    q.reprioritize(2, 10)
    q.schedule(2)
    assert starts(q) == {2: 150, 3: 100, 4: 50}


def anew(q: Queue, now: int) -> Queue:
    """A queue that gets the jobs of another one at once, in their present order."""
    made = Queue(Scheduler(cluster(), "low"), q.policy)
    made.advance(now)
    for jobid in q.running:
        held = q.scheduler.jobs[jobid]
        made.enter(jobid, held.selection, held.start, held.end)
    for priority, arrival, jobid in q.waiting.order:
        made.submit(jobid, q.pending[jobid].request, -priority, arrival)
    return made


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative"])
@pytest.mark.parametrize("seed", range(6))
def test_new_priorities_of_many_jobs_give_the_plan_of_jobs_that_came_with_them(policy: str, seed: int) -> None:
    rng = random.Random(seed)
    q = queue(policy)
    wanted = {}
    for jobid in range(1, 25):
        make, wanted[jobid] = rng.choice((nodes, cores)), rng.randint(1, 31)
        q.submit(jobid, make(rng.randint(1, 4), rng.randint(1, 9) * 10), wanted[jobid])
    q.schedule(0)
    for now in range(10, 300, 10):
        for jobid in sorted(q.running):
            if q.scheduler.jobs[jobid].end == now:
                q.finish(jobid)
        waiting = sorted(q.pending)
        priorities = {jobid: rng.randint(1, 31) for jobid in rng.sample(waiting, len(waiting) // 2)}
        wanted.update(priorities)
        q.reprioritize_all(priorities)
        assert [jobid for _, _, jobid in q.waiting.order] == sorted(waiting, key=lambda jobid: (-wanted[jobid], jobid))
        other = anew(q, now)
        assert started(q.schedule(now)) == started(other.schedule(now))
        starts = [{jobid: kept.start for jobid, kept in one.planned.items()} for one in (q, other)]
        assert starts[0] == starts[1]


@pytest.mark.parametrize("policy", KEEPING)
def test_promises_are_kept_as_they_are_by_what_does_not_have_to_break_them(policy: str) -> None:
    q = queue(policy)
    for jobid, request in enumerate([nodes(3, 50), nodes(4, 50), nodes(4, 50)], 1):
        q.submit(jobid, request)
    q.schedule(0)
    kept = dict(q.planned)
    # Behind the others of its priority; of a lower one; one that can start at once; one whose place stays the same.
    q.submit(4, nodes(4, 50))
    q.submit(5, nodes(4, 50), priority=10)
    q.submit(6, nodes(1, 20), priority=20)
    q.reprioritize(2, 17)
    assert started(q.schedule(1)) == [6]
    assert all(q.planned[jobid] is plan for jobid, plan in kept.items())
    # One for which the nodes that are up do not suffice.
    q.submit(7, nodes(4, 50), priority=30)
    q.scheduler.set_status(next(v for v in q.scheduler.graph.vertices() if q.scheduler.graph.type[v] == "node"), False)
    q.touch()
    q.submit(8, nodes(3, 10))
    q.schedule(2)
    plan = q.planned[8]
    q.submit(9, nodes(3, 10))
    q.schedule(3)
    assert q.planned[8] is plan
    assert 7 not in q.planned


def test_many_promises_are_made_anew_in_slices_and_at_a_pace() -> None:
    q = queue("conservative")
    most = 2 * REORDERED_PER_SECOND - 1
    for jobid in range(1, most + 2):
        q.submit(jobid, nodes(4, 50))
    while q.schedule(0) or q.unfinished:
        pass
    q.submit(10001, nodes(4, 50), priority=20)
    planned = len(q.planned)
    q.schedule(1)
    while q.unfinished:
        assert len(q.planned) >= planned - MAX_CANCELLED
        planned = len(q.planned)
        q.schedule(1)
    assert (q.planned[10001].start, q.planned[2].start, len(q.planned)) == (50, 100, most + 1)
    # The next one is at the end until the pace allows to make so many anew, and nobody has to ask for it.
    q.submit(10002, nodes(4, 50), priority=30)
    q.schedule(1)
    assert q.planned[10002].start == 50 * (most + 2)
    assert q.next_start() == 1 + 2
    while q.schedule(3) or q.unfinished:
        pass
    assert (q.planned[10002].start, q.planned[10001].start, q.planned[2].start) == (50, 100, 150)
    assert q.next_start() == 50
