"""Charts with a row for each category, whose name stands above it, so that long names have room on narrow screens.

They are as wide as `chart.SMALL`, and as high as their rows need.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from headrace.formats.plots import scale
from headrace.formats.plots.chart import ROW, SMALL, Axis, escape, label, legend_rows, picture, series_class, shortened

_LEFT, _RIGHT = 10.0, SMALL.width - 14.0
# A row has a line of text and a strip; below all rows are tick marks and the axis.
_STRIP, _GAP, _FOOT = 22.0, 6.0, 44.0
_DOTS = 300


class Spread(NamedTuple):
    """A sample: its values, the quartiles, the interval of its median, and the indexes of outliers."""

    name: str
    values: Sequence[float]
    quartiles: tuple[float, float, float]
    interval: tuple[float, float] | None = None
    outliers: Collection[int] = ()


class Estimate(NamedTuple):
    """A value, and its interval (low, high)."""

    name: str
    value: float
    interval: tuple[float, float] | None = None


class _Rows:
    """A chart of rows under construction; the values of the x axis are between `low` and `high`."""

    def __init__(self, count: int, low: float, high: float, axis: Axis, legend: Sequence[str], log: bool) -> None:
        marks = list(axis.marks(low, high))
        inside = [mark for mark in marks if low <= mark <= high]
        # The axis ends where the values do, if there are marks enough for a reader.
        marks = inside if len(inside) > 1 else marks
        self._low, self._high = min(low, *marks), max(high, *marks)
        self._part = scale.log_part if log else scale.part
        self._top = ROW * len(legend) + (_GAP if legend else 0.0)
        bottom = self._top + count * (ROW + _STRIP + _GAP)
        self.height = bottom + _FOOT
        self.parts = legend_rows(legend, _LEFT, 0.0)
        for mark in marks:
            at = self.x(mark)
            strips = f"v{_STRIP:g}m0 {ROW + _GAP:g}" * count
            self.parts.append(f'<path class="rule" d="M{at:.1f} {self._top + ROW:g}{strips}"/>')
            # The texts at both ends must not leave the picture.
            anchor = "start" if at < _LEFT + 20 else "end" if at > _RIGHT - 20 else "middle"
            self.parts.append(label(at, bottom + 18, axis.shown(mark), "mark", anchor))
        self.parts.append(label((_LEFT + _RIGHT) / 2, bottom + 36, axis.label, "axis", "middle"))

    def x(self, value: float) -> float:
        return _LEFT + self._part(value, self._low, self._high) * (_RIGHT - _LEFT)

    def begin(self, place: int, name: str) -> float:
        """Write a row's name; returns the upper edge of its strip."""
        top = self._top + place * (ROW + _STRIP + _GAP)
        self.parts.append(label(_LEFT, top + 12, shortened(name), "mark", "start"))
        return top + ROW

    def path(self, kind: str, d: str, what: str = "") -> None:
        title = f"<title>{escape(what)}</title>" if what else ""
        self.parts.append(f'<path class="{kind}" d="{d}">{title}</path>')


def spreads(title: str, about: str, rows: Sequence[Spread], x: Axis, *, log: bool = False) -> str:
    """Samples: dots for values, a box from the first to the third quartile with the median, and the median's interval.

    Whiskers reach to the least and greatest value that are no outliers; outliers have a colour of their own. Of a
    sample with more than 300 values, some are drawn, among them all outliers. On a logarithmic axis, all are above 0.
    """
    ends = [end for row in rows for end in (*row.values, *(row.interval or ()))]
    chart = _Rows(len(rows), *scale.span(ends), x, (), log)
    for place, row in enumerate(rows):
        top = chart.begin(place, row.name)
        if row.values:
            _spread(chart, top, row, x)
    return picture(title, about, SMALL.width, chart.height, chart.parts)


def _spread(chart: _Rows, top: float, row: Spread, x: Axis) -> None:
    first, middle, third = row.quartiles
    what = f"{row.name}: median {x.shown(middle)}, half from {x.shown(first)} to {x.shown(third)}"
    if row.interval:
        what += f", interval of the median {x.shown(row.interval[0])} to {x.shown(row.interval[1])}"
    inside = [value for at, value in enumerate(row.values) if at not in row.outliers] or [middle]
    centre, box = top + _STRIP / 2 - 2, _STRIP - 6
    chart.path("line", f"M{chart.x(min(inside)):.1f} {centre:g}H{chart.x(max(inside)):.1f}")
    edges = f"M{chart.x(first):.1f} {centre - box / 2:g}H{chart.x(third):.1f}v{box:g}H{chart.x(first):.1f}Z"
    chart.path(f"fill pale {series_class(0)}", edges, what)
    step = max(1, len(row.values) // _DOTS)
    for index, kind in ((0, f"line dots {series_class(0)}"), (3, f"line dots {series_class(3)}")):
        dots = "".join(
            # Neighbours are spread over the strip's height, so that equal values do not hide each other.
            f"M{chart.x(value):.1f} {centre + (at * 0.618 % 1 - 0.5) * (box - 4):.1f}h0"
            for at, value in enumerate(row.values)
            if (at in row.outliers) == bool(index) and (index or at % step == 0)
        )
        if dots:
            chart.path(kind, dots)
    chart.path("line", f"M{chart.x(middle):.1f} {centre - box / 2:g}v{box:g}", what)
    if row.interval:
        low, high = (chart.x(end) for end in row.interval)
        chart.path(f"line thick {series_class(2)}", f"M{low:.1f} {top + _STRIP:g}H{max(high, low + 1):.1f}", what)


def stacks(title: str, about: str, names: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]], x: Axis) -> str:
    """A bar for each row, stacked from parts of at least 0; a row is (name, a value for each part).

    Raises ValueError if the number of values differs from the number of parts.
    """
    if any(len(values) != len(names) for _, values in rows):
        raise ValueError(f"each row must have {len(names)} values, one for each part")
    longest = max((sum(values) for _, values in rows), default=0.0)
    chart = _Rows(len(rows), 0.0, longest or 1.0, x, names, False)
    for place, (name, values) in enumerate(rows):
        top, at = chart.begin(place, name), 0.0
        for index, (part, value) in enumerate(zip(names, values)):
            left, right = chart.x(at), chart.x(at + value)
            at += value
            if value > 0:
                edges = f"M{left:.1f} {top + 1:g}H{right:.1f}v{_STRIP - 4:g}H{left:.1f}Z"
                chart.path(f"fill {series_class(index)}", edges, f"{name}, {part}: {x.shown(value)}")
    return picture(title, about, SMALL.width, chart.height, chart.parts)


def ratios(title: str, about: str, rows: Sequence[Estimate], x: str) -> str:
    """Ratios on a logarithmic axis with their intervals, and a line at 1."""
    ends = [1.0, *(end for row in rows for end in (row.value, *(row.interval or ())))]
    low, high = min(*ends, 0.99), max(*ends, 1.01)
    chart = _Rows(len(rows), low, high, Axis(x, scale.figures(low, high), scale.log_ticks), (), True)
    chart.path("line dashed", f"M{chart.x(1.0):.1f} {ROW:g}V{chart.height - _FOOT:g}")
    shown = scale.figures(low, high)
    for place, row in enumerate(rows):
        centre = chart.begin(place, row.name) + _STRIP / 2 - 2
        what = f"{row.name}: {shown(row.value)}"
        if row.interval:
            left, right = (chart.x(end) for end in row.interval)
            what += f" ({shown(row.interval[0])} to {shown(row.interval[1])})"
            caps = "".join(f"M{end:.1f} {centre - 5:g}v10" for end in (left, right))
            chart.path(f"line {series_class(0)}", f"M{left:.1f} {centre:g}H{right:.1f}{caps}", what)
        at = chart.x(row.value)
        chart.path(f"fill {series_class(0)}", f"M{at - 5:.1f} {centre:g}l5 -5l5 5l-5 5Z", what)
    return picture(title, about, SMALL.width, chart.height, chart.parts)
