"""The order of runs. A machine drifts over hours, so runs of all cells are mixed unless the file asks otherwise."""

from __future__ import annotations

import random
from collections import Counter

from headrace.experiments.values import Cell, Experiment, Plan, Run


def plan(experiment: Experiment, seed: int = 0) -> Plan:
    """All runs in the order in which they begin; `seed` is that of an experiment that has none.

    interleaved: the first run of each cell, then the second of each, and so on. random: any order. as-written: all runs
    of a cell, then those of the next. Warm-up runs come before all others; as-written, before those of their cell. The
    runs of a cell are always in the order of their numbers.
    """
    chosen = seed if experiment.seed is None else experiment.seed
    if experiment.order == "as-written":
        cells = [cell for cell in experiment.cells for _ in range(_runs(cell))]
    else:
        warmups = _rounds({cell.id: cell.repeats.warmup for cell in experiment.cells})
        others = _rounds({cell.id: cell.repeats.most for cell in experiment.cells})
        if experiment.order == "random":
            random.Random(chosen).shuffle(others)
        by_id = {cell.id: cell for cell in experiment.cells}
        cells = [by_id[cell] for cell in (*warmups, *others)]
    numbers: Counter[str] = Counter()
    runs = []
    for cell in cells:
        numbers[cell.id] += 1
        number = numbers[cell.id]
        runs.append(Run(cell=cell.id, number=number, warmup=number <= cell.repeats.warmup))
    return Plan(seed=chosen, order=experiment.order, runs=tuple(runs))


def _runs(cell: Cell) -> int:
    return cell.repeats.warmup + cell.repeats.most


def _rounds(counts: dict[str, int]) -> list[str]:
    """Each cell as often as its count: all cells once, then those that are left once more."""
    return [cell for turn in range(max(counts.values(), default=0)) for cell, count in counts.items() if turn < count]
