"""What the runs of an experiment show, in numbers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite

from msgspec import Struct

from headrace.experiments.stats.drift import Drift, drift
from headrace.experiments.stats.medians import FEWEST, median, median_interval, outliers, quartiles
from headrace.experiments.stats.optional import MissingExtra
from headrace.experiments.stats.scaling import scaling
from headrace.experiments.values import Cell, Experiment, Metric, Plan, Result

# The metric of jobs that have none: how long the program ran; if that is unknown, how long the run took.
DURATION = Metric(name="duration", unit="s")


class Sample(Struct, frozen=True, kw_only=True):
    """A metric of a cell. `values` are in the order of the runs, whose numbers are `runs`; outliers are such numbers.

    `missing` counts completed runs without the metric. `interval` is None for fewer than five values.
    """

    metric: str
    unit: str
    better: str
    values: tuple[float, ...]
    runs: tuple[int, ...]
    median: float
    quartiles: tuple[float, float, float]
    interval: tuple[float, float] | None
    outliers: tuple[int, ...]
    missing: int


class CellSummary(Struct, frozen=True, kw_only=True):
    """A cell: numbers of its runs, without warm-up runs, and its samples by metric.

    `planned` runs include those that prove needless where a cell repeats until its interval is narrow. `phases` are
    means of seconds. `cost` and `node_hours` are medians of completed runs.
    """

    id: str
    job: str
    target: str
    size: int
    machine: str
    parameters: dict[str, str | int | float | bool]
    planned: int
    runs: int
    completed: int
    failed: int
    retried: int
    samples: dict[str, Sample]
    phases: dict[str, float]
    cost: float | None
    node_hours: float

    @property
    def series(self) -> tuple[object, ...]:
        """Cells that differ in their size alone have the same."""
        return (self.job, self.target, self.machine, *sorted((name, str(v)) for name, v in self.parameters.items()))


class ScalingPoint(Struct, frozen=True, kw_only=True):
    """Speed-up and efficiency of a cell against the smallest size of its series."""

    cell: str
    size: int
    median: float
    interval: tuple[float, float] | None
    speedup: float
    efficiency: float


class ScalingSeries(Struct, frozen=True, kw_only=True):
    """A metric of cells that differ in their size alone, smallest first."""

    metric: str
    name: str
    points: tuple[ScalingPoint, ...]


class Drifted(Struct, frozen=True, kw_only=True):
    """The drift of a metric: of all values by the median of their cell, in the order in which runs began.

    `moments` are their hours since the first run, `values` those ratios.
    """

    metric: str
    drift: Drift | None
    moments: tuple[float, ...]
    values: tuple[float, ...]


class Summary(Struct, frozen=True, kw_only=True):
    """An experiment in numbers. Times are seconds since the epoch; warm-up runs are in the totals of cost alone.

    `notes` are sentences about what the numbers do not have.
    """

    name: str
    is_running: bool
    order: str
    seed: int
    planned: int
    runs: int
    failed: int
    warmups: int
    started: float
    ended: float
    cost: float | None
    node_hours: float
    metrics: tuple[str, ...]
    cells: tuple[CellSummary, ...]
    scaling: tuple[ScalingSeries, ...]
    drifts: tuple[Drifted, ...]
    notes: tuple[str, ...]


def summarize(experiment: Experiment, plan: Plan, results: Sequence[Result], is_running: bool = False) -> Summary:
    """Summarize results, which are in the order in which the runs began."""
    counted = [result for result in results if not result.warmup]
    by_cell: dict[str, list[Result]] = {cell.id: [] for cell in experiment.cells}
    for result in counted:
        by_cell.setdefault(result.cell, []).append(result)
    planned = dict.fromkeys(by_cell, 0)
    for run in plan.runs:
        planned[run.cell] = planned.get(run.cell, 0) + (not run.warmup)
    cells = tuple(_cell(cell, planned[cell.id], by_cell[cell.id]) for cell in experiment.cells)
    metrics = tuple(dict.fromkeys(one.name for cell in experiment.cells for one in _metrics(cell)))
    shown = tuple(name for name in metrics if any(name in cell.samples for cell in cells))
    drifts, notes = _drifts(shown, cells, counted)
    costs = [result.cost for result in results if result.cost is not None]
    return Summary(
        name=experiment.name,
        is_running=is_running,
        order=plan.order,
        seed=plan.seed,
        planned=sum(planned.values()),
        runs=len(counted),
        failed=sum(cell.failed for cell in cells),
        warmups=len(results) - len(counted),
        started=min((result.started for result in results), default=0.0),
        ended=max((result.ended for result in results), default=0.0),
        cost=sum(costs) if costs else None,
        node_hours=sum(result.node_seconds for result in results) / 3600,
        metrics=shown,
        cells=cells,
        scaling=tuple(_scaling(shown, cells)),
        drifts=drifts,
        notes=notes,
    )


def _metrics(cell: Cell) -> tuple[Metric, ...]:
    return cell.job.metrics or (DURATION,)


def duration(result: Result) -> float:
    """How long the program of a run ran; if that is unknown, how long the run took."""
    began = result.phases.get("program", result.started)
    return result.phases.get("ended", result.ended) - began


def _cell(cell: Cell, planned: int, results: Sequence[Result]) -> CellSummary:
    completed = [result for result in results if result.state == "completed"]
    samples = {}
    for metric in _metrics(cell):
        sample = _sample(metric, completed, duration if metric is DURATION else _value_of(metric.name))
        if sample:
            samples[metric.name] = sample
    costs = [result.cost for result in completed if result.cost is not None]
    return CellSummary(
        id=cell.id,
        job=cell.job.name,
        target=cell.target,
        size=cell.size,
        machine=cell.machine,
        parameters=cell.parameters,
        planned=planned,
        runs=len(results),
        completed=len(completed),
        failed=len(results) - len(completed),
        retried=sum(result.attempt > 1 for result in results),
        samples=samples,
        phases=_phases(completed),
        cost=median(costs) if costs else None,
        node_hours=median([result.node_seconds / 3600 for result in completed]) if completed else 0.0,
    )


def _value_of(name: str) -> Callable[[Result], float | None]:
    return lambda result: result.metrics.get(name)


def _sample(metric: Metric, completed: Sequence[Result], value: Callable[[Result], float | None]) -> Sample | None:
    found = [(one, result.number) for result in completed if (one := value(result)) is not None and isfinite(one)]
    if not found:
        return None
    values = [one for one, _ in found]
    return Sample(
        metric=metric.name,
        unit=metric.unit,
        better=metric.better,
        values=tuple(values),
        runs=tuple(number for _, number in found),
        median=median(values),
        quartiles=quartiles(values),
        interval=median_interval(values),
        outliers=tuple(found[at][1] for at in outliers(values)),
        missing=len(completed) - len(found),
    )


def _phases(results: Iterable[Result]) -> dict[str, float]:
    """The mean seconds of each phase, which lasts until the next begins; the last one has no length.

    Means, unlike medians, add up to the length of a run. Only the first run in a MiniCluster has the phases of its
    start; for the others they are 0.
    """
    lengths: dict[str, float] = {}
    count = 0
    for result in results:
        count += bool(result.phases)
        times = sorted(result.phases.items(), key=lambda item: item[1])
        for (name, began), (_, after) in zip(times, times[1:]):
            lengths[name] = lengths.get(name, 0.0) + after - began
    return {name: total / count for name, total in lengths.items()}


def _scaling(metrics: Iterable[str], cells: Iterable[CellSummary]) -> Iterable[ScalingSeries]:
    by_series: dict[tuple[object, ...], list[CellSummary]] = {}
    for cell in cells:
        by_series.setdefault(cell.series, []).append(cell)
    several = [group for group in by_series.values() if len({cell.size for cell in group}) > 1]
    names = series_names([group[0] for group in several])
    for metric in metrics:
        for group, name in zip(several, names):
            measured = {cell.size: cell for cell in group if metric in cell.samples}
            if len(measured) < 2:
                continue
            samples = {size: cell.samples[metric] for size, cell in measured.items()}
            higher = next(iter(samples.values())).better == "higher"
            found = scaling({size: one.median for size, one in samples.items()}, higher_is_better=higher)
            points = tuple(
                ScalingPoint(
                    cell=measured[one.size].id,
                    size=one.size,
                    median=samples[one.size].median,
                    interval=samples[one.size].interval,
                    speedup=one.speedup,
                    efficiency=one.efficiency,
                )
                for one in found
            )
            if len(points) > 1:
                yield ScalingSeries(metric=metric, name=name, points=points)


def series_names(cells: Sequence[CellSummary]) -> list[str]:
    """A name for the series of each cell: its job, and whatever else the series do not have in common."""
    facts: list[Mapping[str, object]] = [
        {"job": cell.job, "target": cell.target, "machine": cell.machine, **cell.parameters} for cell in cells
    ]
    keys = dict.fromkeys(key for fact in facts for key in fact)
    differ = [key for key in keys if len({str(fact.get(key, "")) for fact in facts}) > 1]
    chosen = [key for key in differ if key != "job"]
    return [
        " ".join([str(fact["job"]), *(f"{key}={fact[key]}" for key in chosen if fact.get(key, "") != "")])
        for fact in facts
    ]


def _drifts(
    metrics: Iterable[str], cells: Iterable[CellSummary], results: Sequence[Result]
) -> tuple[tuple[Drifted, ...], tuple[str, ...]]:
    """The drift of each metric over all cells; notes name what could not be computed."""
    begun = {(result.cell, result.number): (result.position, result.started) for result in results}
    first = min((result.started for result in results), default=0.0)
    found: list[Drifted] = []
    notes: dict[str, None] = {}
    for metric in metrics:
        order = []
        for cell in cells:
            sample = cell.samples.get(metric)
            # A cell of a single run would always be at its median, one at 0 has no ratios.
            if sample and len(sample.values) > 1 and sample.median:
                order += [
                    (*begun[cell.id, number], value / sample.median)
                    for value, number in zip(sample.values, sample.runs)
                ]
        order = sorted(one for one in order if isfinite(one[2]))
        values = [value for _, _, value in order]
        tested = None
        try:
            tested = drift(values)
        except MissingExtra as exc:
            notes[f"Drift is not tested: it {exc}."] = None
        moments = tuple((started - first) / 3600 for _, started, _ in order)
        found.append(Drifted(metric=metric, drift=tested, moments=moments, values=tuple(values)))
    return tuple(found), tuple(notes)


def without_interval(summary: Summary) -> int:
    """The number of cells with fewer than five values of the first metric."""
    return sum(all(len(sample.values) < FEWEST for sample in cell.samples.values()) for cell in summary.cells)
