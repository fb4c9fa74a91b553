"""Points on two axes, linear or logarithmic, with intervals and lines between them. As wide as `chart.SMALL`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.formats.plots import scale
from headrace.formats.plots.chart import ROW, SMALL, Axis, Chart, Size, escape, legend_rows, series_class

# Above this number of points in a series, they are one path without a title each.
_TITLED = 200
_CAP = 4.0
# Below a legend.
_GAP = 8.0


class Point(NamedTuple):
    """A point; `interval` is (low, high) on the y axis."""

    x: float
    y: float
    interval: tuple[float, float] | None = None


class Cloud(NamedTuple):
    """A series: a name and points in the order of x. `joined`: with a line between them; `dashed`: the line alone."""

    name: str
    points: Sequence[Point]
    joined: bool = False
    dashed: bool = False


def points(
    title: str,
    about: str,
    given: Sequence[Cloud],
    x: Axis,
    y: Axis,
    *,
    log_x: bool = False,
    log_y: bool = False,
    from_zero: bool = False,
) -> str:
    """A chart of points. Values on a logarithmic axis are greater than 0. `from_zero`: the y axis begins at 0."""
    names = [one.name for one in given if one.name]
    top = SMALL.top / 2 + (ROW * len(names) + _GAP if len(names) > 1 else 0)
    ends = [end for one in given for point in one.points for end in (point.y, *(point.interval or ()))]
    low, high = scale.span(ends if ends else [1.0, 2.0])
    low = min(0.0, low) if from_zero else low
    xs = [point.x for one in given for point in one.points]
    size = Size(SMALL.width, SMALL.height - SMALL.top + top, top)
    chart = Chart(title, about, scale.span(xs if xs else [1.0, 2.0]), (low, high), size, log_x=log_x, log_y=log_y)
    chart.y_marks(y)
    chart.x_marks(x)
    if len(names) > 1:
        for part in legend_rows(names, 10, 18):
            chart.add(part)
    for index, one in enumerate(given):
        _draw(chart, one, index, x, y)
    return chart.svg()


def _draw(chart: Chart, one: Cloud, index: int, x: Axis, y: Axis) -> None:
    places = [(chart.x(point.x), chart.y(point.y)) for point in one.points]
    colour = series_class(index)
    if (one.joined or one.dashed) and places:
        line = "L".join(f"{left:.1f} {top:.1f}" for left, top in places)
        chart.add(f'<path class="line {colour}{" dashed" if one.dashed else ""}" d="M{line}"/>')
    if one.dashed:
        return
    for point, (left, _) in zip(one.points, places):
        if point.interval:
            low, high = (chart.y(end) for end in point.interval)
            caps = "".join(f"M{left - _CAP:.1f} {end:.1f}h{2 * _CAP:g}" for end in (low, high))
            chart.add(f'<path class="line {colour}" d="M{left:.1f} {low:.1f}V{high:.1f}{caps}"/>')
    if len(places) > _TITLED:
        dots = "".join(f"M{left:.1f} {top:.1f}h0" for left, top in places)
        chart.add(f'<path class="line dots {colour}" d="{dots}"/>')
        return
    for point, (left, top) in zip(one.points, places):
        what = f"{x.shown(point.x)}: {y.shown(point.y)}"
        what = f"{one.name}, {what}" if one.name else what
        if point.interval:
            what += f" ({y.shown(point.interval[0])} to {y.shown(point.interval[1])})"
        chart.add(
            f'<circle class="fill {colour}" cx="{left:.1f}" cy="{top:.1f}" r="3"><title>{escape(what)}</title></circle>'
        )
