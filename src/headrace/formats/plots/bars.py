"""Amounts side by side: bars by category, and how often values of a range occur (histogram)."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.formats.plots.chart import WIDE, Axis, Chart, Size, escape, series


def bars(
    title: str,
    about: str,
    categories: Sequence[str],
    given: Sequence[tuple[str, Sequence[float]]],
    x: str,
    y: Axis,
    size: Size = WIDE,
) -> str:
    """For each category a bar of each series: (name, a value for each category). Raises ValueError for another number
    of values.
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
    """How many values lie in [edge, next edge), the last bar with its upper edge. Values outside are not counted."""
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
        f'<rect class="fill {series(index)}" x="{chart.x(left):.1f}" y="{top:.1f}" '
        f'width="{chart.x(right) - chart.x(left):.1f}" height="{max(0.0, bottom - top):.1f}">'
        f"<title>{escape(what)}</title></rect>"
    )
