"""Charts as SVG: lines and areas, bars and histograms, boxes.

`Chart` has the parts that all kinds of charts share: title, description, axes, tick marks and legend. There are colours
for light and dark mode. Neighbouring colours of a legend also differ in lightness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import NamedTuple

from headrace.formats.plots import scale

_LEFT, _RIGHT, _BOTTOM = 64.0, 16.0, 46.0
# The number of classes for series; further series reuse them from the first.
SERIES = 6


class Size(NamedTuple):
    """The size of a chart in SVG units (text is 12 units high); `top` is the height above the plot area."""

    width: float
    height: float
    top: float


WIDE = Size(720.0, 300.0, 18.0)
# Its text is readable on a screen 360 px wide; `top` leaves a separate line for the legend.
SMALL = Size(380.0, 254.0, 40.0)
# The height of a line of text.
ROW = 16.0


class Axis(NamedTuple):
    """An axis: its label, the format of a value, and the positions of tick marks between two values."""

    label: str
    shown: Callable[[float], str] = scale.number
    marks: Callable[[float, float], Sequence[float]] = scale.ticks


class Chart:
    """A chart under construction.

    `x` and `y` convert values to coordinates; `xs` and `ys` are (least, greatest). On a logarithmic axis, values are
    greater than 0.
    """

    def __init__(
        self,
        title: str,
        about: str,
        xs: tuple[float, float],
        ys: tuple[float, float],
        size: Size = WIDE,
        *,
        log_x: bool = False,
        log_y: bool = False,
    ) -> None:
        self._size = size
        self._title = title
        self._about = about
        self._xs = xs if xs[1] > xs[0] else (xs[0], xs[0] + 1.0)
        marks = scale.log_ticks(*ys) if log_y else scale.ticks(*ys)
        self._marks = marks
        self._ys = (marks[0], marks[-1])
        self._part_x = scale.log_part if log_x else scale.part
        self._part_y = scale.log_part if log_y else scale.part
        self._parts: list[str] = []

    def x(self, value: float) -> float:
        return _LEFT + self._part_x(value, *self._xs) * (self._size.width - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        height = self._size.height
        return height - _BOTTOM - self._part_y(value, *self._ys) * (height - self._size.top - _BOTTOM)

    def add(self, element: str) -> None:
        self._parts.append(element)

    def x_marks(self, axis: Axis) -> None:
        """Add the tick marks and the label of the x axis."""
        for mark in axis.marks(*self._xs):
            if self._xs[0] <= mark <= self._xs[1]:
                self.mark_x(self.x(mark), axis.shown(mark))
        self.label_x(axis.label)

    def mark_x(self, place: float, text: str) -> None:
        self.add(label(place, self._size.height - _BOTTOM + 18, text, "mark", "middle"))

    def label_x(self, text: str) -> None:
        self.add(label((self._size.width + _LEFT - _RIGHT) / 2, self._size.height - 8, text, "axis", "middle"))

    def y_marks(self, axis: Axis) -> None:
        for mark in self._marks:
            at = self.y(mark)
            self.add(f'<path class="rule" d="M{_LEFT:g} {at:.1f}H{self._size.width - _RIGHT:g}"/>')
            self.add(label(_LEFT - 6, at + 4, axis.shown(mark), "mark", "end"))
        self.add(label(_LEFT, 11, axis.label, "axis", "start"))

    def legend(self, names: Sequence[str]) -> None:
        """Add a legend with the name and colour of each series, if there are several."""
        if len(names) < 2:
            return
        at, top = self._size.width - _RIGHT, self._size.top
        for index, name in reversed(list(enumerate(names))):
            at -= 7.0 * len(name) + 26
            self.add(f'<rect class="fill {series_class(index)}" x="{at:.1f}" y="{top - 17:g}" width="10" height="10"/>')
            self.add(label(at + 14, top - 8, name, "mark", "start"))

    def svg(self) -> str:
        """The chart as an `<svg>` element for a page."""
        return picture(self._title, self._about, self._size.width, self._size.height, self._parts)


def picture(title: str, about: str, width: float, height: float, parts: Iterable[str]) -> str:
    """An `<svg>` element of some elements, with its title and description."""
    return (
        f'<svg class="plot" xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width:g} {height:g}" '
        f'aria-label="{escape(title)}. {escape(about)}">'
        f"<title>{escape(title)}</title><desc>{escape(about)}</desc>{''.join(parts)}</svg>"
    )


def legend_rows(names: Sequence[str], left: float, top: float) -> list[str]:
    """A legend with a row of `ROW` units for each series, for names of any length."""
    parts = []
    for index, name in enumerate(names):
        at = top + index * ROW
        parts.append(f'<rect class="fill {series_class(index)}" x="{left:g}" y="{at + 3:g}" width="10" height="10"/>')
        parts.append(label(left + 14, at + 12, shortened(name), "mark", "start"))
    return parts


def shortened(text: str, most: int = 48) -> str:
    """A text without its end if it is wider than `most` letters; those of East Asia are twice as wide."""
    width = 0
    for place, one in enumerate(text):
        width += 2 if one >= "\N{CJK RADICAL REPEAT}" else 1
        if width > most:
            return text[: place - 1] + "…"
    return text


def label(x: float, y: float, text: str, kind: str, anchor: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def series_class(index: int) -> str:
    """The CSS class of a series, by its index."""
    return f"series-{index % SERIES + 1}"


# html.escape is not used: package html has a table of all named characters, which is larger than this package, and it
# would have to be part of the view.
_SPECIAL = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def escape(text: str) -> str:
    """Escape text for use between tags and in a quoted attribute."""
    return text.translate(_SPECIAL)


_LIGHT = ("#00695c", "#e08a00", "#3949ab", "#b3261e", "#6a8f00", "#7b3fa0")
_DARK = ("#5fd0bf", "#ffc24d", "#9fa8ff", "#ff9a90", "#c2e05a", "#d7a6f5")


def _colours(colours: tuple[str, ...]) -> str:
    return "".join(
        f".plot .fill.series-{n} {{ fill: {colour}; }} .plot .line.series-{n} {{ stroke: {colour}; }}\n"
        for n, colour in enumerate(colours, 1)
    )


CSS = f"""\
.plot {{ width: 100%; height: auto; font: 12px system-ui, sans-serif; }}
.plot text {{ fill: currentColor; }}
.plot .axis {{ font-weight: 600; }}
.plot .rule {{ stroke: currentColor; stroke-opacity: .2; }}
.plot .line {{ fill: none; stroke: currentColor; stroke-width: 1.5; }}
.plot .dots {{ fill: none; stroke-width: 4; stroke-linecap: round; stroke-opacity: .6; }}
.plot .thick {{ stroke-width: 4; }} .plot .dashed {{ stroke-dasharray: 5 4; }} .plot .pale {{ fill-opacity: .3; }}
{_colours(_LIGHT)}@media (prefers-color-scheme: dark) {{
{_colours(_DARK)}}}
"""


class Series(NamedTuple):
    """A name, and points (x, y) in the order of x."""

    name: str
    points: Sequence[tuple[float, float]]


def line(title: str, about: str, given: Sequence[Series], x: Axis, y: Axis, size: Size = WIDE) -> str:
    """A line chart with a line for each series."""
    values = [value for one in given for _, value in one.points]
    chart = Chart(title, about, _extent(given), (min(0.0, *values, 0.0), max(0.0, *values, 0.0)), size)
    chart.y_marks(y)
    chart.x_marks(x)
    for index, one in enumerate(given):
        places = [f"{chart.x(at):.1f} {chart.y(value):.1f}" for at, value in one.points]
        if places:
            chart.add(f'<path class="line {series_class(index)}" d="M{"L".join(places)}"/>')
    chart.legend([one.name for one in given])
    return chart.svg()


def area(title: str, about: str, given: Sequence[Series], x: Axis, y: Axis, size: Size = WIDE) -> str:
    """A stacked area chart. Raises ValueError unless all series have the same x values."""
    places = [at for at, _ in given[0].points] if given else []
    if any([at for at, _ in one.points] != places for one in given):
        raise ValueError("stacked series must have the same places on the x axis")
    floor = [0.0] * len(places)
    tops = [floor]
    for one in given:
        tops.append([below + value for below, (_, value) in zip(tops[-1], one.points)])
    chart = Chart(title, about, _extent(given), (0.0, max([0.0, *tops[-1]])), size)
    chart.y_marks(y)
    chart.x_marks(x)
    for index in range(len(given)):
        upper = [f"{chart.x(at):.1f} {chart.y(value):.1f}" for at, value in zip(places, tops[index + 1])]
        lower = [f"{chart.x(at):.1f} {chart.y(value):.1f}" for at, value in zip(places, tops[index])]
        if upper:
            chart.add(f'<path class="fill {series_class(index)}" d="M{"L".join([*upper, *reversed(lower)])}Z"/>')
    chart.legend([one.name for one in given])
    return chart.svg()


def _extent(given: Sequence[Series]) -> tuple[float, float]:
    places = [at for one in given for at, _ in one.points]
    return min(places, default=0.0), max(places, default=1.0)


def bars(
    title: str,
    about: str,
    categories: Sequence[str],
    given: Sequence[tuple[str, Sequence[float]]],
    x: str,
    y: Axis,
    size: Size = WIDE,
) -> str:
    """A bar chart with a bar for each category and series; a series is (name, a value for each category).

    Raises ValueError if the number of values differs from the number of categories.
    """
    if any(len(values) != len(categories) for _, values in given):
        raise ValueError(f"each series must have {len(categories)} values, one for each category")
    highest = max((value for _, values in given for value in values), default=0.0)
    chart = Chart(title, about, (0.0, float(max(1, len(categories)))), (0.0, max(0.0, highest)), size)
    chart.y_marks(y)
    width = 0.8 / max(1, len(given))
    for place, category in enumerate(categories):
        chart.mark_x(chart.x(place + 0.5), category)
        for index, (name, values) in enumerate(given):
            what = f"{category}, {name}: {y.shown(values[place])}" if name else f"{category}: {y.shown(values[place])}"
            left = place + 0.1 + index * width
            chart.add(_bar(chart, left, left + width, values[place], what, index))
    chart.label_x(x)
    chart.legend([name for name, _ in given])
    return chart.svg()


def histogram(title: str, about: str, values: Sequence[float], edges: Sequence[float], x: Axis, y: Axis) -> str:
    """A histogram: the number of values in each [edge, next edge); the last bar includes its upper edge.

    Values outside the edges are not counted.
    """
    counts = [0] * (len(edges) - 1)
    for value in values:
        for place in range(len(counts)):
            last = place == len(counts) - 1
            if edges[place] <= value < edges[place + 1] or (last and value == edges[-1]):
                counts[place] += 1
    chart = Chart(title, about, (0.0, float(len(counts))), (0.0, float(max(counts, default=0))))
    chart.y_marks(y)
    for place, count in enumerate(counts):
        what = f"{x.shown(edges[place])} to {x.shown(edges[place + 1])}: {count}"
        chart.add(_bar(chart, place + 0.02, place + 0.98, count, what, 0))
    for place, edge in enumerate(edges):
        chart.mark_x(chart.x(place), x.shown(edge))
    chart.label_x(x.label)
    return chart.svg()


def _bar(chart: Chart, left: float, right: float, value: float, what: str, index: int) -> str:
    top, bottom = chart.y(value), chart.y(0.0)
    return (
        f'<rect class="fill {series_class(index)}" x="{chart.x(left):.1f}" y="{top:.1f}" '
        f'width="{chart.x(right) - chart.x(left):.1f}" height="{max(0.0, bottom - top):.1f}">'
        f"<title>{escape(what)}</title></rect>"
    )


def box(title: str, about: str, given: Sequence[tuple[str, Sequence[float]]], x: str, y: Axis) -> str:
    """A box plot with a box for each name; a name without values gets no box."""
    highest = max((value for _, values in given for value in values), default=0.0)
    lowest = min((value for _, values in given for value in values), default=0.0)
    chart = Chart(title, about, (0.0, float(max(1, len(given)))), (min(0.0, lowest), max(0.0, highest)))
    chart.y_marks(y)
    for place, (name, values) in enumerate(given):
        chart.mark_x(chart.x(place + 0.5), name)
        if values:
            _draw(chart, place, name, quartiles(values), y)
    chart.label_x(x)
    return chart.svg()


def quartiles(values: Sequence[float]) -> tuple[float, float, float, float, float]:
    """The minimum, the three quartiles and the maximum, each one of the values (nearest-rank method)."""
    ordered = sorted(values)
    least, first, median, third, greatest = (
        ordered[max(0, ceil(share * len(ordered)) - 1)] for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    )
    return least, first, median, third, greatest


def _draw(chart: Chart, place: int, name: str, five: tuple[float, float, float, float, float], y: Axis) -> None:
    least, first, median, third, greatest = five
    left, middle, right = (chart.x(place + share) for share in (0.25, 0.5, 0.75))
    what = f"{name}: from {y.shown(least)} to {y.shown(greatest)}, half from {y.shown(first)} to {y.shown(third)}"
    chart.add(f'<g class="box"><title>{escape(what)}, median {y.shown(median)}</title>')
    chart.add(f'<path class="line" d="M{middle:.1f} {chart.y(least):.1f}V{chart.y(greatest):.1f}"/>')
    top, height = chart.y(third), chart.y(first) - chart.y(third)
    size = f'width="{right - left:.1f}" height="{height:.1f}"'
    chart.add(f'<rect class="fill {series_class(0)}" x="{left:.1f}" y="{top:.1f}" {size}/>')
    chart.add(f'<path class="line" d="M{left:.1f} {chart.y(median):.1f}H{right:.1f}"/></g>')
