"""The frame of a chart: title, description, axes, marks and legend. Each kind of chart draws into it. Colours
are light and dark; neighbours of a legend differ in lightness, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.formats.plots import scale

_LEFT, _RIGHT, _BOTTOM = 64.0, 16.0, 46.0
# Classes of series, after which they begin anew.
SERIES = 6


class Size(NamedTuple):
    """The size of a chart in its own units, in which letters are 12 high; `top` is above the marks of the y axis."""

    width: float
    height: float
    top: float


WIDE = Size(720.0, 300.0, 18.0)
# Its letters can be read on a page of 360 px; the legend has a line of its own.
SMALL = Size(380.0, 254.0, 40.0)


class Axis(NamedTuple):
    """What an axis shows, how it writes a value, and where it has marks between two."""

    label: str
    shown: Callable[[float], str] = scale.number
    marks: Callable[[float, float], Sequence[float]] = scale.ticks


class Chart:
    """A chart under construction: `x` and `y` turn values into places, from the least and greatest values given."""

    def __init__(
        self, title: str, about: str, xs: tuple[float, float], ys: tuple[float, float], size: Size = WIDE
    ) -> None:
        self._size = size
        self._title = title
        self._about = about
        self._xs = xs if xs[1] > xs[0] else (xs[0], xs[0] + 1.0)
        marks = scale.ticks(*ys)
        self._marks = marks
        self._ys = (marks[0], marks[-1])
        self._parts: list[str] = []

    def x(self, value: float) -> float:
        low, high = self._xs
        return _LEFT + (value - low) / (high - low) * (self._size.width - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self._ys
        height = self._size.height
        return height - _BOTTOM - (value - low) / (high - low) * (height - self._size.top - _BOTTOM)

    def add(self, element: str) -> None:
        self._parts.append(element)

    def x_marks(self, axis: Axis) -> None:
        """Marks at round values."""
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
        """The names of several series, each behind its colour."""
        if len(names) < 2:
            return
        at, top = self._size.width - _RIGHT, self._size.top
        for index, name in reversed(list(enumerate(names))):
            at -= 7.0 * len(name) + 26
            self.add(f'<rect class="fill {series(index)}" x="{at:.1f}" y="{top - 17:g}" width="10" height="10"/>')
            self.add(label(at + 14, top - 8, name, "mark", "start"))

    def svg(self) -> str:
        """The chart as an element of a page."""
        return (
            f'<svg class="plot" xmlns="http://www.w3.org/2000/svg" role="img" '
            f'viewBox="0 0 {self._size.width:g} {self._size.height:g}" '
            f'aria-label="{escape(self._title)}. {escape(self._about)}">'
            f"<title>{escape(self._title)}</title><desc>{escape(self._about)}</desc>{''.join(self._parts)}</svg>"
        )


def label(x: float, y: float, text: str, kind: str, anchor: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def series(index: int) -> str:
    """The class of a series, by its place."""
    return f"series-{index % SERIES + 1}"


# html.escape comes with a table of all named characters, which is larger than all charts and would be in the view.
_SPECIAL = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def escape(text: str) -> str:
    """A text as it may stand between tags and in a quoted attribute."""
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
{_colours(_LIGHT)}@media (prefers-color-scheme: dark) {{
{_colours(_DARK)}}}
"""
