"""Simulated execution: what `exec.test` of a jobspec asks for."""

from __future__ import annotations

import math
from typing import Any

import pytest

from headrace.engine.modules.job_exec.job import SimError, Simulation, simulation


def jobspec(test: Any, duration: float = 0.0) -> dict[str, Any]:
    return {"attributes": {"system": {"duration": duration, "exec": {"test": test}}}}


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ({"run_duration": "1.5m"}, Simulation(90.0, False, "")),
        ({"run_duration": 2}, Simulation(2.0, False, "")),
        ({}, Simulation(7.0, False, "")),
        ({"override": 1, "mock_exception": "init"}, Simulation(7.0, True, "init")),
    ],
)
def test_what_is_asked_for(test: Any, expected: Simulation) -> None:
    assert simulation(jobspec(test, 7.0)) == expected


def test_a_job_without_any_duration_runs_until_it_is_ended() -> None:
    assert simulation(jobspec({"duration": 0.1})) == Simulation(math.inf, False, "")


@pytest.mark.parametrize("exec_", [None, {}, {"other": 1}, "x", {"bulkexec": {"mock_exception": 0}}, {"bulkexec": []}])
def test_other_jobs_are_run(exec_: Any) -> None:
    assert simulation({"attributes": {"system": {"duration": 0, "exec": exec_}}}) is None


def test_a_job_that_would_be_run_is_made_to_fail_before_its_tasks() -> None:
    system = {"duration": 0, "exec": {"bulkexec": {"mock_exception": "init"}}}
    assert simulation({"attributes": {"system": system}}) == Simulation(0.0, False, "init")


@pytest.mark.parametrize(
    ("test", "key"),
    [
        ("x", "exec.test: must be an object"),
        ({"run_duration": "soon"}, "run_duration"),
        ({"run_duration": []}, "run_duration"),
        ({"run_duration": -1}, "run_duration"),
        ({"run_duration": 10**400}, "run_duration"),
        ({"mock_exception": "late"}, "mock_exception: must be init, starting or run"),
        ({"mock_exception": []}, "mock_exception: must be init, starting or run"),
    ],
)
def test_what_makes_no_sense_is_named_by_its_key(test: Any, key: str) -> None:
    with pytest.raises(SimError, match=key):
        simulation(jobspec(test))
