"""The page of `headrace simulate --html`: the table of figures, and charts for each policy.

The page is a single file that loads no other resources.
"""

from __future__ import annotations

from headrace.formats.plots.chart import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Sequence, Tuple

    from headrace.sched.queueing.simulate import Simulation

_STYLE = """\
body { margin: 1.5rem auto; padding: 0 1rem; max-width: 60rem; font: 1rem/1.45 system-ui, sans-serif;
  color: #16211f; background: #fbfcfc; }
table { border-collapse: collapse; } th, td { padding: .25rem .75rem; text-align: right;
  font-variant-numeric: tabular-nums; } th:first-child { text-align: left; font-weight: 400; }
.scroll { overflow-x: auto; } tr { border-bottom: 1px solid #8884; }
@media (prefers-color-scheme: dark) { body { color: #e5ecea; background: #111817; } }
"""


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
    from headrace.formats.plots.chart import CSS

    charts: List[str] = []
    per_node = max(1, cores // max(1, nodes))
    for name, outcome in outcomes:
        charts += [f"<h2>{escape(name)}</h2>", *_charts(name, outcome, cores, per_node)]
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{escape(label)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for label, cells in rows
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>Queue policies compared</title><style>\n{_STYLE}{CSS}</style></head><body>\n"
        f"<h1>Queue policies compared</h1>\n<p>{escape(heading)}</p>\n"
        f'<div class="scroll"><table><thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table></div>\n'
        + "\n".join(charts)
        + "\n</body></html>\n"
    )


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
