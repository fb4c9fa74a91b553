"""Values over time: lines, and areas that are stacked upon each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.formats.plots.chart import WIDE, Axis, Chart, Size, series


class Series(NamedTuple):
    """A name, and points (x, y) in the order of x."""

    name: str
    points: Sequence[tuple[float, float]]


def line(title: str, about: str, given: Sequence[Series], x: Axis, y: Axis, size: Size = WIDE) -> str:
    """A line for each series."""
    values = [value for one in given for _, value in one.points]
    chart = Chart(title, about, _extent(given), (min(0.0, *values, 0.0), max(0.0, *values, 0.0)), size)
    chart.y_marks(y)
    chart.x_marks(x)
    for index, one in enumerate(given):
        places = [f"{chart.x(at):.1f} {chart.y(value):.1f}" for at, value in one.points]
        if places:
            chart.add(f'<path class="line {series(index)}" d="M{"L".join(places)}"/>')
    chart.legend([one.name for one in given])
    return chart.svg()


def area(title: str, about: str, given: Sequence[Series], x: Axis, y: Axis, size: Size = WIDE) -> str:
    """Areas one upon the other; all series have the same places on the x axis. Raises ValueError otherwise."""
    places = [at for at, _ in given[0].points] if given else []
    if any([at for at, _ in one.points] != places for one in given):
        raise ValueError("stacked series must have the same places on the x axis")
    floor = [0.0] * len(places)
    tops = [floor]
    for one in given:
        tops.append([below + value for below, (_, value) in zip(tops[-1], one.points, strict=True)])
    chart = Chart(title, about, _extent(given), (0.0, max([0.0, *tops[-1]])), size)
    chart.y_marks(y)
    chart.x_marks(x)
    for index in range(len(given)):
        upper = [f"{chart.x(at):.1f} {chart.y(value):.1f}" for at, value in zip(places, tops[index + 1], strict=True)]
        lower = [f"{chart.x(at):.1f} {chart.y(value):.1f}" for at, value in zip(places, tops[index], strict=True)]
        if upper:
            chart.add(f'<path class="fill {series(index)}" d="M{"L".join([*upper, *reversed(lower)])}Z"/>')
    chart.legend([one.name for one in given])
    return chart.svg()


def _extent(given: Sequence[Series]) -> tuple[float, float]:
    places = [at for one in given for at, _ in one.points]
    return min(places, default=0.0), max(places, default=1.0)
