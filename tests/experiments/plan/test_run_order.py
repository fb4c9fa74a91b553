"""The order of runs: rounds, drawn, or as written; warm-up runs first, and numbers in order within each cell."""

from __future__ import annotations

from collections import Counter

import pytest

from headrace.experiments.file.load import read_text
from headrace.experiments.plan import plan
from headrace.experiments.values import Experiment

TEXT = """\
warmup: 1
jobs:
  a: {command: a, repeats: 3}
  b: {command: b, repeats: 2, warmup: 2}
"""


def experiment(order: str, more: str = "") -> Experiment:
    return read_text(f"{TEXT}order: {order}\n{more}", "exp.yaml")


def listed(order: str, seed: int = 0) -> str:
    return " ".join(f"{run.cell[0]}{run.number}{'w' * run.warmup}" for run in plan(experiment(order), seed).runs)


def test_interleaved_begins_each_round_once_all_cells_had_the_one_before() -> None:
    assert listed("interleaved") == "a1w b1w b2w a2 b3 a3 b4 a4"


def test_as_written_has_one_cell_after_the_other() -> None:
    assert listed("as-written") == "a1w a2 a3 a4 b1w b2w b3 b4"


def test_random_is_drawn_by_the_seed() -> None:
    orders = {listed("random", seed) for seed in range(40)}
    assert len(orders) == 10, "the arrangements of three runs of a cell and two of another"
    assert all(order.startswith("a1w b1w b2w ") for order in orders)
    assert listed("random", 7) == listed("random", 7)
    given = plan(experiment("random", "seed: 7\n"), 3)
    assert given.seed == 7
    assert given.runs == plan(experiment("random"), 7).runs


@pytest.mark.parametrize("order", ["interleaved", "random", "as-written"])
def test_each_order_has_all_runs_and_numbers_them_within_cells(order: str) -> None:
    found = plan(experiment(order), 5).runs
    assert Counter(run.cell for run in found) == {"a-1": 4, "b-1": 4}
    for cell, warmups in (("a-1", 1), ("b-1", 2)):
        mine = [run for run in found if run.cell == cell]
        assert [run.number for run in mine] == [1, 2, 3, 4]
        assert [run.warmup for run in mine] == [number < warmups for number in range(4)]


def test_a_cell_that_repeats_until_its_interval_is_narrow_has_all_possible_runs() -> None:
    text = """\
repeats: {min: 2, max: 6, until: {metric: t, relative-ci: 0.1}}
jobs: {a: {command: a, metrics: {t: {regex: '(x)'}}}}
"""
    assert len(plan(read_text(text, "exp.yaml")).runs) == 6
