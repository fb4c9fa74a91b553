from __future__ import annotations

import pytest

from headrace.sched.graph.request import parse_jobspec
from headrace.sched.queueing.simulate import Job, Run, Simulation
from headrace.sched.queueing.simulate_series import used_over_time, waits_by_size


def run(id: int, submit: int, start: int, end: int, resources: list[dict[str, object]]) -> Run:
    request = parse_jobspec({"resources": resources})
    return Run(Job(id, submit, end - start, request), start, end, False)


CORES = [{"type": "slot", "count": 3, "label": "t", "with": [{"type": "core", "count": 1}]}]
NODE = [{"type": "slot", "count": 1, "label": "t", "with": [{"type": "node", "count": 1}]}]


def test_the_mean_use_over_time() -> None:
    runs = [run(1, 0, 0, 10, CORES), run(2, 0, 5, 20, NODE)]
    outcome = Simulation(runs, [], 0, 20, {}, {}, 0)
    found = used_over_time(outcome, 4, bins=4)
    assert found == [(2.5, 3.0), (7.5, 7.0), (12.5, 4.0), (17.5, 4.0)]
    assert sum(cores for _, cores in used_over_time(outcome, 4, bins=7)) / 7 == pytest.approx(90 / 20)
    assert used_over_time(Simulation([], [], 5, 5, {}, {}, 0), 4) == []


def test_waits_are_sorted_by_size() -> None:
    runs = [run(1, 0, 5, 10, NODE), run(2, 1, 2, 3, CORES), run(3, 0, 9, 10, NODE)]
    assert waits_by_size(runs, 4) == [("2-3", [1.0]), ("4-7", [5.0, 9.0])]
    assert waits_by_size(runs, 1) == [("1", [5.0, 9.0]), ("2-3", [1.0])]
