"""The time and cost of an experiment, from the runs of an earlier one. Without those, they are unknown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from msgspec import Struct

from headrace.experiments.file.templates import show
from headrace.experiments.values import Experiment, Result


class Estimate(Struct, frozen=True, kw_only=True):
    """Of one run of a cell, or of several runs: seconds one after the other, node-hours, and cost.

    None is unknown: no earlier run of the same kind, or no price. `unknown` is the number of cells without a time.
    """

    seconds: float | None = None
    node_hours: float | None = None
    cost: float | None = None
    unknown: int = 0


def of_cells(experiment: Experiment, earlier: Iterable[Result]) -> dict[str, Estimate]:
    """One run of each cell, by the cell's id: the median of the earlier completed runs with the same values.

    Job, size, machine and parameters have to be the same. Runs on the same target are preferred.
    """
    seconds: dict[tuple[str, ...], list[float]] = {}
    for result in earlier:
        if result.state == "completed" and not result.warmup and result.ended > result.started:
            spent = result.ended - result.started
            key = _key(result.job, result.size, result.machine, result.parameters, result.target)
            for part in (key, key[:-1]):
                seconds.setdefault(part, []).append(spent)
    targets = {target.name: target for target in experiment.targets}
    found = {}
    for cell in experiment.cells:
        key = _key(cell.job.name, cell.size, cell.machine, cell.parameters, cell.target)
        times = seconds.get(key) or seconds.get(key[:-1])
        if not times:
            found[cell.id] = Estimate(unknown=1)
            continue
        spent = statistics.median(times)
        cost = targets[cell.target].cost(cell.machine, spent * cell.size)
        found[cell.id] = Estimate(seconds=spent, node_hours=spent * cell.size / 3600, cost=cost)
    return found


def in_total(experiment: Experiment, one: dict[str, Estimate]) -> Estimate:
    """All runs, warm-up runs included, and as many as a cell may need: the sum over the cells that are known."""
    seconds = hours = cost = 0.0
    unknown = priced = 0
    for cell in experiment.cells:
        estimate, runs = one[cell.id], cell.repeats.warmup + cell.repeats.most
        unknown += estimate.unknown
        seconds += runs * (estimate.seconds or 0)
        hours += runs * (estimate.node_hours or 0)
        cost += runs * (estimate.cost or 0)
        priced += estimate.cost is not None
    if unknown == len(experiment.cells):
        return Estimate(unknown=unknown)
    return Estimate(seconds=seconds, node_hours=hours, cost=cost if priced else None, unknown=unknown)


def _key(
    job: str, size: int, machine: str, parameters: dict[str, str | int | float | bool], target: str
) -> tuple[str, ...]:
    return (job, str(size), machine, *(f"{name}={show(parameters[name])}" for name in sorted(parameters)), target)
