"""The page of `headrace simulate --html`: the table of figures, and charts for each policy."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Sequence, Tuple

    from headrace.sched.queueing.simulate import Simulation


def page(
    heading: str,
    columns: Sequence[str],
    rows: Sequence[Tuple[str, Sequence[str]]],
    outcomes: Sequence[Tuple[str, Simulation]],
    cores: int,
    nodes: int,
) -> str:
    """Render the page.

    `rows` are labels with a figure for each of `columns`; `outcomes` are the simulations by policy.
    `cores` and `nodes` are the size of the machine.
    """
    from headrace.formats.plots import page as html

    per_node = max(1, cores // max(1, nodes))
    parts = [html.table(["", *columns], [[label, *cells] for label, cells in rows])]
    for name, outcome in outcomes:
        parts += [html.heading(name), *_charts(name, outcome, cores, per_node)]
    return html.page("Queue policies compared", heading, parts)


def _charts(name: str, outcome: Simulation, cores: int, per_node: int) -> List[str]:
    from headrace.formats.plots.chart import Axis, Series, area, box
    from headrace.formats.plots.scale import length
    from headrace.sched.queueing.simulate_metrics import used_over_time, waits_by_size

    used = used_over_time(outcome, per_node)
    most = max((value for _, value in used), default=0.0)
    about = f"Cores requested by running jobs, of {cores}; at most {most:.0f} at a time."
    time = Axis("time since the first submission", length)
    waits = waits_by_size(outcome.runs, per_node)
    longest = max((wait for _, values in waits for wait in values), default=0.0)
    return [
        area(f"Use of the machine, {name}", about, [Series("used", used)], time, Axis("cores in use")),
        box(
            f"Waits by size, {name}",
            f"How long jobs waited, by requested cores; the longest wait is {length(longest)}.",
            waits,
            "cores of a job",
            Axis("wait", length),
        ),
    ]
