"""The charts of an experiment's report. Each returns SVG for a page that has the same numbers in a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.experiments.report.summary import CellSummary, Drifted, ScalingSeries, Summary, series_names
from headrace.experiments.values import PHASES
from headrace.formats.plots import rows, scale
from headrace.formats.plots.chart import SERIES, Axis
from headrace.formats.plots.points import Cloud, Point, points

# Cells of a chart with a row for each.
MOST_ROWS = 24
# Values of a greater size are in the tables alone: the sums of a chart would overflow.
_GREATEST = 1e150
# What happens in a phase, by the event that begins it.
PHASE_NAMES = {
    "created": "waiting for nodes",
    "scheduled": "preparation",
    "pulled": "brokers",
    "ready": "start of the program",
    "program": "program",
    "output": "program after its first output",
    "ended": "deletion",
}


def unit_of(summary: Summary, metric: str) -> str:
    """The unit of a metric; "" if jobs disagree."""
    units = {cell.samples[metric].unit for cell in summary.cells if metric in cell.samples}
    return units.pop() if len(units) == 1 else ""


def with_unit(name: str, unit: str) -> str:
    return f"{name} in {unit}" if unit else name


def scaling(metric: str, unit: str, series: Sequence[ScalingSeries]) -> list[str]:
    """The metric by size, and the efficiency by size."""
    shown = [one for one in series[:SERIES] if all(1 / _GREATEST < point.median < _GREATEST for point in one.points)]
    sizes = sorted({point.size for one in shown for point in one.points})
    if not sizes:
        return []
    x = Axis("size in nodes", scale.figure, lambda _low, _high: sizes)
    clouds = [
        Cloud(one.name, [Point(at.size, at.median, _positive(at.interval)) for at in one.points], joined=True)
        for one in shown
    ]
    if len(shown) == 1:
        first, last = shown[0].points[0], shown[0].points[-1]
        # A time falls as the size grows, a rate grows with it.
        sign = 1 if (last.median / first.median > 1) == (last.speedup > 1) else -1
        ideal = [Point(size, first.median * (size / first.size) ** sign) for size in sizes]
        clouds.append(Cloud("ideal", ideal, dashed=True))
    ends = [at.y for cloud in clouds for at in cloud.points]
    about = f"The median of {metric} at each size, with its 95 % interval. Both axes are logarithmic."
    y = Axis(with_unit(metric, unit), scale.figures(min(ends), max(ends)))
    efficiencies = [
        Cloud(one.name, [Point(at.size, 100 * at.efficiency) for at in one.points], joined=True) for one in shown
    ]
    return [
        points(f"Scaling of {metric}", about, clouds, x, y, log_x=True, log_y=True),
        points(
            f"Efficiency of {metric}",
            "The speed-up against the smallest size, by the ratio of the sizes.",
            efficiencies,
            x,
            Axis("efficiency in %", scale.figure),
            log_x=True,
            from_zero=True,
        ),
    ]


def _positive(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    """An interval that a logarithmic axis can show."""
    return interval if interval and interval[0] > 0 and interval[1] < _GREATEST else None


def phases_of(summary: Summary) -> list[str]:
    """The phases that a cell has, in order of time."""
    found = dict.fromkeys(name for cell in summary.cells for name in cell.phases)
    return sorted(found, key=lambda name: PHASES.index(name) if name in PHASES else len(PHASES))


def phases(names: Sequence[str], cells: Sequence[CellSummary]) -> str:
    """A bar for each cell, stacked from the lengths of its phases."""
    return rows.stacks(
        "Phases of a run",
        "The mean length of each phase of the completed runs of a cell.",
        [PHASE_NAMES.get(name, name) for name in names],
        [(cell.id, [max(0.0, cell.phases.get(name, 0.0)) for name in names]) for cell in cells[:MOST_ROWS]],
        Axis("seconds", scale.figure),
    )


def distribution(metric: str, unit: str, cells: Sequence[CellSummary]) -> str:
    """The runs of each cell."""
    spreads = []
    for cell in cells[:MOST_ROWS]:
        sample = cell.samples[metric]
        if max(map(abs, sample.values)) < _GREATEST:
            outliers = {at for at, number in enumerate(sample.runs) if number in sample.outliers}
            spreads.append(rows.Spread(cell.id, sample.values, sample.quartiles, sample.interval, outliers))
    low, high = scale.span(value for one in spreads for value in one.values)
    about = f"The values of {metric} of all runs of a cell, with quartiles and the interval of the median."
    # On a logarithmic axis, cells of different sizes show their relative spread.
    log = 0 < 2 * low < high
    if log:
        about += " The axis is logarithmic."
    axis = Axis(with_unit(metric, unit), scale.figures(low, high), scale.log_ticks if log else scale.ticks)
    return rows.spreads(f"Distribution of {metric}", about, spreads, axis, log=log)


def over_time(drifted: Iterable[Drifted]) -> list[str]:
    """A chart for each metric: values by the median of their cell."""
    charts = []
    for one in drifted:
        seen = [Point(hours * 3600, value) for hours, value in zip(one.moments, one.values) if abs(value) < _GREATEST]
        if not seen:
            continue
        low, high = scale.span(point.y for point in seen)
        charts.append(
            points(
                f"{one.metric} over time",
                f"Each run's {one.metric} by the median of its cell, by the time at which the run began.",
                [Cloud("", seen)],
                Axis("time since the first run", scale.length, scale.length_ticks),
                Axis(f"{one.metric} by the median of its cell", scale.figures(low, high)),
            )
        )
    return charts


def price(cell: CellSummary) -> float:
    """What a run of the cell costs, in node-hours without a price."""
    return cell.node_hours if cell.cost is None else cell.cost


def cost(metric: str, unit: str, what: str, cells: Sequence[CellSummary]) -> str:
    """The median cost of a run of each cell against the median of the metric."""
    by_series: dict[tuple[object, ...], list[CellSummary]] = {}
    for cell in cells:
        if abs(cell.samples[metric].median) < _GREATEST:
            by_series.setdefault(cell.series, []).append(cell)
    groups = list(by_series.values())
    names = series_names([group[0] for group in groups])
    # Lines join cells that differ in their size alone.
    if len(groups) > SERIES:
        groups, names = [[cell for group in groups for cell in group]], [""]
    clouds = []
    for group, name in zip(groups, names):
        ordered = sorted(group, key=lambda cell: cell.samples[metric].median)
        clouds.append(
            Cloud(
                name,
                [Point(cell.samples[metric].median, price(cell)) for cell in ordered],
                joined=bool(name),
            )
        )
    xs = [point.x for cloud in clouds for point in cloud.points]
    return points(
        f"{what.capitalize()} against {metric}",
        f"The {what} of a run of each cell against {metric}: cells to the lower left are better, if less is.",
        clouds,
        Axis(with_unit(metric, unit), scale.figures(*scale.span(xs))),
        Axis(f"{what} of a run", scale.figure),
        from_zero=True,
    )
