"""Distributions side by side, as boxes: from the first to the third quartile, with the median and the extremes."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from headrace.formats.plots.chart import Axis, Chart, escape, series


def box(title: str, about: str, given: Sequence[tuple[str, Sequence[float]]], x: str, y: Axis) -> str:
    """A box for each name and its values, which may be none."""
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
    """The least, the three quartiles and the greatest of some values, each a value that occurs (nearest rank)."""
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
    chart.add(f'<rect class="fill {series(0)}" x="{left:.1f}" y="{top:.1f}" {size}/>')
    chart.add(f'<path class="line" d="M{left:.1f} {chart.y(median):.1f}H{right:.1f}"/></g>')
