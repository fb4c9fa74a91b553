"""Time and cost of an experiment, from the runs of an earlier one."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.experiments.file.load import read_text
from headrace.experiments.plan import Estimate, in_total, of_cells
from headrace.experiments.values import Result

TEXT = """\
matrix: {size: [1, 4]}
parameters: {steps: [10], fast: [true]}
targets: {t: {price: 3.6}}
warmup: 1
repeats: 2
jobs: {a: {command: a}}
"""
EXPERIMENT = read_text(TEXT, "exp.yaml")


def result(seconds: float, **others: Any) -> Result:
    values: dict[str, Any] = {
        "cell": "other-name",
        "number": 1,
        "warmup": False,
        "job": "a",
        "target": "t",
        "size": 4,
        "machine": "",
        "parameters": {"fast": True, "steps": 10},
        "state": "completed",
        "started": 100.0,
        "ended": 100.0 + seconds,
    }
    return Result(**{**values, **others})


def test_without_earlier_runs_all_is_unknown() -> None:
    found = of_cells(EXPERIMENT, [])
    assert set(found.values()) == {Estimate(unknown=1)}
    assert in_total(EXPERIMENT, found) == Estimate(unknown=2)


def test_a_run_takes_the_median_of_completed_runs_of_its_kind() -> None:
    earlier = [
        result(100),
        result(300),
        result(110),
        result(1, state="failed"),
        result(2, warmup=True),
        result(7, size=1, job="b"),
    ]
    found = of_cells(EXPERIMENT, earlier)
    assert found["a-1"] == Estimate(unknown=1)
    four = found["a-4"]
    assert (four.seconds, four.node_hours, four.cost) == (110, pytest.approx(440 / 3600), pytest.approx(0.44))
    total = in_total(EXPERIMENT, found)
    assert (total.seconds, total.node_hours, total.cost, total.unknown) == (
        330,
        pytest.approx(1320 / 3600),
        pytest.approx(1.32),
        1,
    )


def test_runs_on_the_same_target_are_preferred() -> None:
    assert of_cells(EXPERIMENT, [result(5, target="other")])["a-4"].seconds == 5
    assert of_cells(EXPERIMENT, [result(5, target="other"), result(9)])["a-4"].seconds == 9


def test_without_a_price_the_cost_is_unknown() -> None:
    free = read_text(TEXT.replace("price: 3.6", ""), "exp.yaml")
    total = in_total(free, of_cells(free, [result(100)]))
    assert (total.seconds, total.cost) == (300, None)
