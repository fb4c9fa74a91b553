"""The annotations of pending jobs, from queues and a graph alone: true, and the same for whoever asks."""

from __future__ import annotations

import random
from math import inf
from typing import Any

import pytest

from headrace.sched.graph import Graph, Scheduler, parse_jobspec
from headrace.sched.queueing.forecast import Place
from headrace.sched.queueing.pending import UNLIMITED
from headrace.sched.queueing.queue import Queue
from headrace.sched.queueing.reasons import Explainer, of_front, places

NOW, HOUR = 1_700_000_000, 3600
# A state that differs each time: nothing that was counted before is used.
ANEW = object


def scheduler_of(nodes: int = 2, cores: int = 4) -> Scheduler:
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(nodes):
        node = graph.add("node", root, id=n, rank=n)
        for c in range(cores):
            graph.add("core", node, id=c)
    return Scheduler(graph.finish(), "low", ("core", "gpu", "node"))


def cores(count: int, duration: int = HOUR, **system: Any) -> Any:
    slot = {"type": "slot", "count": count, "label": "t", "with": [{"type": "core", "count": 1}]}
    return parse_jobspec({"resources": [slot], "attributes": {"system": {"duration": duration, **system}}})


def whole(nodes: int) -> Any:
    node = {"type": "node", "count": nodes, "exclusive": True}
    return parse_jobspec({"resources": [node], "attributes": {"system": {"duration": HOUR}}})


def fill(queue: Queue, *requests: Any, first: int = 1) -> None:
    for jobid, request in enumerate(requests, first):
        queue.submit(jobid, request, arrival=float(jobid))
    while queue.schedule(NOW) or queue.unfinished:
        pass


def placed(scheduler: Scheduler, *queues: Queue) -> dict[int, Place]:
    return dict(step for step in places(scheduler, queues, NOW) if step is not None)


def test_the_front_of_a_queue_has_what_is_short_and_when_it_starts() -> None:
    queue = Queue(scheduler_of(), "easy")
    fill(queue, cores(7), cores(8), cores(8))
    assert dict(of_front(queue, NOW)) == {
        2: {
            "reason_pending": "insufficient resources: core x7 short (8 wanted, 1 free)",
            "t_estimate": float(NOW + HOUR),
        },
        3: {"reason_pending": "insufficient resources: core x7 short (8 wanted, 1 free)"},
    }
    # The start of the first job is found without a reservation, and none is left behind.
    queue = Queue(scheduler_of(), "fcfs")
    fill(queue, cores(8), cores(8), cores(1))
    ((jobid, notes),) = of_front(queue, NOW)
    assert (jobid, notes["t_estimate"]) == (2, NOW + HOUR)
    assert queue.scheduler.jobs.keys() == {1}


def test_a_start_that_only_the_end_of_an_unlimited_job_gives_is_no_estimate() -> None:
    queue = Queue(scheduler_of(), "conservative")
    fill(queue, cores(8, UNLIMITED), cores(1))
    assert "t_estimate" not in dict(of_front(queue, NOW))[2]
    assert "t_estimate" not in Explainer().explain(queue, 2, NOW, ANEW())
    assert placed(queue.scheduler, queue) == {2: Place(0, inf)}


def test_without_backfill_a_job_for_which_enough_is_free_waits_for_those_before_it() -> None:
    queue = Queue(scheduler_of(), "fcfs")
    fill(queue, cores(7), cores(8), cores(1))
    assert Explainer().explain(queue, 3, NOW, ANEW()) == {"reason_pending": "behind 1 job", "jobs_ahead": 1}


def test_what_is_short_is_counted_once_in_a_state() -> None:
    queue, explainer = Queue(scheduler_of(), "easy"), Explainer()
    fill(queue, cores(8), cores(8), cores(8))
    first = explainer.explain(queue, 2, NOW, "before")["reason_pending"]
    queue.finish(1)
    assert first in explainer.explain(queue, 3, NOW, "before")["reason_pending"]
    assert first not in explainer.explain(queue, 3, NOW, "after")["reason_pending"]


def test_queues_of_one_scheduler_share_what_becomes_free_and_nodes_apart_do_not() -> None:
    scheduler = scheduler_of()
    one, other = Queue(scheduler, "fcfs"), Queue(scheduler, "fcfs")
    fill(one, cores(8), cores(4))
    fill(other, cores(5), whole(1), cores(1, constraints={"ranks": ["0"]}), first=10)
    found = placed(scheduler, one, other)
    assert [(job, place.ahead, (place.start - NOW) / HOUR) for job, place in sorted(found.items())] == [
        (2, 0, 1),
        (10, 0, 2),
        (11, 1, 3),
        (12, 2, 1),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_the_supply_is_what_jobs_do_not_hold(seed: int) -> None:
    draw = random.Random(seed)
    scheduler = scheduler_of(3)
    queue = Queue(scheduler, "conservative")
    running: set[int] = set()
    for jobid in range(1, 30):
        ranks = {"constraints": {"ranks": [str(draw.randrange(3))]}} if draw.random() < 0.4 else {}
        queue.submit(jobid, cores(draw.randint(1, 4), draw.choice([HOUR, 2 * HOUR]), **ranks))
        queue.schedule(NOW)
        running = set(queue.running)
        if draw.random() < 0.3:
            queue.finish(draw.choice(sorted(running)))
        scheduler.set_status(draw.choice(scheduler.graph.nodes()), draw.random() < 0.7)
    # A job that needs all that is up starts when the last job there has ended, whatever waits in other queues.
    up = [v for v in scheduler.graph.nodes() if scheduler.graph.up[v]]
    if not up:
        return
    last = Queue(scheduler, "fcfs")
    last.submit(100, cores(4 * len(up)))
    ends = [
        job.end for job in scheduler.jobs.values() if not job.reserved and any(v in job.selection.marks for v in up)
    ]
    assert placed(scheduler, last)[100].start == (max(ends) if ends else inf)


def test_starts_are_estimated_by_the_units_of_pools_that_are_named() -> None:
    graph = Graph()
    graph.add("cpu", graph.add("node", graph.add("cluster", id=0), id=0, rank=0), id=0, size=4000)
    scheduler = Scheduler(graph.finish(), "low", ("cpu",))

    def milli(count: int) -> Any:
        inside = [{"type": "cpu", "count": count, "exclusive": False}]
        slot = {"type": "slot", "count": 1, "label": "t", "with": inside}
        return parse_jobspec({"resources": [slot], "attributes": {"system": {"duration": HOUR}}})

    queue = Queue(scheduler, "fcfs")
    fill(queue, milli(3000), milli(2000), milli(4000))
    found = dict(step for step in places(scheduler, [queue], NOW, ("cpu", "gpu")) if step is not None)
    assert found == {2: Place(0, NOW + HOUR), 3: Place(1, NOW + 2 * HOUR)}


def test_without_backfill_a_job_waits_for_what_its_queue_holds_from_a_later_time_on() -> None:
    queue = Queue(scheduler_of(), "fcfs")
    queue.advance(NOW)
    selection = queue.scheduler.match_at(cores(8), NOW + HOUR).selection
    assert selection is not None
    queue.enter(100, selection, NOW + HOUR, NOW + 2 * HOUR)
    fill(queue, cores(8), cores(1, HOUR + 1), cores(1))
    assert list(queue.pending) == [2, 3], "the first one ends before"
    later = "resources are free now, but not until it would end: other jobs have them later"
    queue.finish(1)
    assert Explainer().explain(queue, 2, NOW, ANEW())["reason_pending"] == later
