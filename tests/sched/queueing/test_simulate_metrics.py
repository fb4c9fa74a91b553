"""Figures of a simulation, worked out by hand."""

from __future__ import annotations

import pytest

from headrace.formats.plots.spread import Spread
from headrace.sched.graph.request import JobRequest, parse_jobspec
from headrace.sched.queueing.simulate import Job, Run, Simulation
from headrace.sched.queueing.simulate_metrics import (
    fairness,
    measure,
    slowdown,
    used_over_time,
    waits_by_size,
)


def run(submit: int, start: int, end: int, user: str = "a", runtime: int = 0) -> Run:
    return Run(Job(1, submit, runtime or end - start, JobRequest([], 0), user=user), start, end, False)


def test_slowdown_is_bounded_at_ten_seconds_and_at_one() -> None:
    assert slowdown(run(0, 300, 400)) == 4.0
    assert slowdown(run(0, 99, 100)) == 10.0
    assert slowdown(run(0, 0, 3)) == 1.0


def test_fairness_is_one_for_equals_and_one_over_users_at_worst() -> None:
    assert fairness([run(0, 100, 200, "a"), run(0, 20, 40, "b")]) == 1.0
    assert fairness([run(0, 0, 10, "a"), run(0, 10**9, 10**9 + 10, "b")]) == pytest.approx(0.5)
    assert fairness([run(0, 100, 200, "a"), run(0, 0, 100, "a"), run(0, 50, 150, "b")]) == 1.0
    assert fairness([]) == 1.0


def test_the_machines_use_is_of_what_it_had_until_the_last_end() -> None:
    outcome = Simulation(
        [run(100, 100, 150), run(100, 150, 300, runtime=500)], [], 100, 300, {"core": 500}, {"core": 4}, 6
    )
    found = measure(outcome)
    assert (found.makespan, found.utilisation) == (200, {"core": 500 / 800})
    assert (found.jobs, found.ran, found.never, found.cut) == (2, 2, 0, 1)
    assert found.wait == Spread(25, 0, 50, 50, 50)


def asking(id: int, submit: int, start: int, end: int, resources: list[dict[str, object]]) -> Run:
    request = parse_jobspec({"resources": resources})
    return Run(Job(id, submit, end - start, request), start, end, False)


CORES = [{"type": "slot", "count": 3, "label": "t", "with": [{"type": "core", "count": 1}]}]
NODE = [{"type": "slot", "count": 1, "label": "t", "with": [{"type": "node", "count": 1}]}]


def test_the_mean_use_over_time() -> None:
    runs = [asking(1, 0, 0, 10, CORES), asking(2, 0, 5, 20, NODE)]
    outcome = Simulation(runs, [], 0, 20, {}, {}, 0)
    found = used_over_time(outcome, 4, bins=4)
    assert found == [(2.5, 3.0), (7.5, 7.0), (12.5, 4.0), (17.5, 4.0)]
    assert sum(cores for _, cores in used_over_time(outcome, 4, bins=7)) / 7 == pytest.approx(90 / 20)
    assert used_over_time(Simulation([], [], 5, 5, {}, {}, 0), 4) == []


def test_waits_are_sorted_by_size() -> None:
    runs = [asking(1, 0, 5, 10, NODE), asking(2, 1, 2, 3, CORES), asking(3, 0, 9, 10, NODE)]
    assert waits_by_size(runs, 4) == [("2-3", [1.0]), ("4-7", [5.0, 9.0])]
    assert waits_by_size(runs, 1) == [("1", [5.0, 9.0]), ("2-3", [1.0])]
