"""The frame of a chart: title, description, axes, marks and legend. Each kind of chart draws into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from headrace.plots import scale

WIDTH, HEIGHT = 720.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 16.0, 16.0, 46.0
# Classes of series, after which they begin anew.
SERIES = 6


class Axis(NamedTuple):
    """What an axis shows, and how it writes a value."""

    label: str
    shown: Callable[[float], str] = scale.number


class Chart:
    """A chart under construction: `x` and `y` turn values into places, from the least and greatest values given."""

    def __init__(self, title: str, about: str, xs: tuple[float, float], ys: tuple[float, float]) -> None:
        self._title = title
        self._about = about
        self._xs = xs if xs[1] > xs[0] else (xs[0], xs[0] + 1.0)
        marks = scale.ticks(*ys)
        self._marks = marks
        self._ys = (marks[0], marks[-1])
        self._parts: list[str] = []

    def x(self, value: float) -> float:
        low, high = self._xs
        return _LEFT + (value - low) / (high - low) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self._ys
        return HEIGHT - _BOTTOM - (value - low) / (high - low) * (HEIGHT - _TOP - _BOTTOM)

    def add(self, element: str) -> None:
        self._parts.append(element)

    def x_marks(self, axis: Axis) -> None:
        """Marks at round numbers."""
        for mark in scale.ticks(*self._xs):
            if self._xs[0] <= mark <= self._xs[1]:
                self.mark_x(self.x(mark), axis.shown(mark))
        self.label_x(axis.label)

    def mark_x(self, place: float, text: str) -> None:
        self.add(label(place, HEIGHT - _BOTTOM + 18, text, "mark", "middle"))

    def label_x(self, text: str) -> None:
        self.add(label((WIDTH + _LEFT - _RIGHT) / 2, HEIGHT - 8, text, "axis", "middle"))

    def y_marks(self, axis: Axis) -> None:
        for mark in self._marks:
            at = self.y(mark)
            self.add(f'<path class="rule" d="M{_LEFT:g} {at:.1f}H{WIDTH - _RIGHT:g}"/>')
            self.add(label(_LEFT - 6, at + 4, axis.shown(mark), "mark", "end"))
        self.add(label(_LEFT, 11, axis.label, "axis", "start"))

    def legend(self, names: Sequence[str]) -> None:
        """The names of several series, each behind its colour."""
        if len(names) < 2:
            return
        at = WIDTH - _RIGHT
        for index, name in reversed(list(enumerate(names))):
            at -= 7.0 * len(name) + 26
            self.add(f'<rect class="fill {series(index)}" x="{at:.1f}" y="3" width="10" height="10"/>')
            self.add(label(at + 14, 12, name, "mark", "start"))

    def svg(self) -> str:
        """The chart as an element of a page."""
        return (
            f'<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" '
            f'aria-label="{escape(self._title)}. {escape(self._about)}">'
            f"<title>{escape(self._title)}</title><desc>{escape(self._about)}</desc>{''.join(self._parts)}</svg>"
        )


def label(x: float, y: float, text: str, kind: str, anchor: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def series(index: int) -> str:
    """The class of a series, by its place."""
    return f"series-{index % SERIES + 1}"
