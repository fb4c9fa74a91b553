"""The report of an experiment as one HTML file that loads nothing else: charts, each with its table."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from headrace.experiments.report import charts
from headrace.experiments.report.sentences import between, counted, drifts, few_runs, sentences
from headrace.experiments.report.study import Study
from headrace.experiments.report.summary import CellSummary, Summary
from headrace.experiments.store.output import last_lines
from headrace.formats.plots import page, scale

# Failed runs whose last lines are shown, and those in the table.
_QUOTED, _LISTED = 20, 200
# The longest value of the table of provenance, in characters.
_LONGEST = 400


def report_page(study: Study, summary: Summary) -> str:
    """The page."""
    first, *others = sentences(summary)
    parts: list[str] = [page.paragraph(" ".join([*others, *summary.notes]))]
    for title, content in _sections(study, summary):
        if content:
            parts += [page.heading(title), *content]
    return page.page(f"Experiment {summary.name}", first, parts)


def _sections(study: Study, summary: Summary) -> Iterator[tuple[str, list[str]]]:
    yield "Cells", [_cells(summary)]
    yield "Scaling", _scaling(summary)
    yield "Phases", _phases(summary)
    yield "Distribution of each metric", _distributions(summary)
    yield "Over time", _over_time(summary)
    yield "Cost against time", _costs(summary)
    yield "Failures", _failures(study)
    yield "How to repeat it", _repeat(study, summary)
    yield "Provenance", _provenance(study)


def _cells(summary: Summary) -> str:
    parameters = list(dict.fromkeys(name for cell in summary.cells for name in cell.parameters))
    columns = ["cell", "target", "size", *parameters, "runs", "completed", "failed", "retried"]
    rows = [
        [
            *(cell.id, cell.target, str(cell.size), *(str(cell.parameters.get(name, "")) for name in parameters)),
            *(f"{cell.runs} of {cell.planned}", str(cell.completed), str(cell.failed), str(cell.retried or "")),
        ]
        for cell in summary.cells
    ]
    return page.table(columns, rows)


def _scaling(summary: Summary) -> list[str]:
    parts = []
    for metric in dict.fromkeys(one.metric for one in summary.scaling):
        series = [one for one in summary.scaling if one.metric == metric]
        unit = charts.unit_of(summary, metric)
        rows = [
            [
                f"{one.name}, size {point.size}",
                scale.measured(point.median),
                between(point.interval) or "none",
                f"{point.speedup:.3g}",
                f"{100 * point.efficiency:.1f} %",
            ]
            for one in series
            for point in one.points
        ]
        columns = (metric, charts.with_unit("median", unit), "95 % interval", "speed-up", "efficiency")
        parts += [page.gallery(charts.scaling(metric, unit, series)), page.table(columns, rows)]
    return parts


def _phases(summary: Summary) -> list[str]:
    names = charts.phases_of(summary)
    cells = [cell for cell in summary.cells if cell.phases]
    if not names:
        return []
    rows = [[cell.id, *(_seconds(cell.phases.get(name)) for name in names)] for cell in cells]
    about = "Mean seconds from the beginning of each phase to that of the next. A run that skips a phase counts as 0."
    return [
        page.paragraph(about),
        page.gallery([charts.phases(names, cells)]),
        page.table(["cell", *(charts.PHASE_NAMES.get(name, name) for name in names)], rows),
        *_left_out(len(cells)),
    ]


def _seconds(value: float | None) -> str:
    return "" if value is None else scale.measured(value)


def _distributions(summary: Summary) -> list[str]:
    parts: list[str] = []
    if summary.metrics:
        parts.append(
            page.paragraph(
                "A dot is a run, a box reaches from the first to the third quartile with the median in it, and the bar "
                "below it is the 95 % interval of the median. Outliers (further than 1.5 interquartile ranges outside "
                "the quartiles) have a colour of their own and count like all others."
            )
        )
    for metric in summary.metrics:
        cells = [cell for cell in summary.cells if metric in cell.samples]
        parts += [
            page.gallery([charts.distribution(metric, charts.unit_of(summary, metric), cells)]),
            page.table(
                (metric, "runs", "median", "95 % interval", "quartiles", "least", "greatest", "unit", "outliers"),
                [_distribution(cell, metric) for cell in cells],
            ),
            *_left_out(len(cells)),
        ]
    return parts


def _distribution(cell: CellSummary, metric: str) -> list[str]:
    sample = cell.samples[metric]
    first, _, third = sample.quartiles
    outliers = ", ".join(f"run {number}" for number in sample.outliers[:10])
    more = f" and {len(sample.outliers) - 10} more" if len(sample.outliers) > 10 else ""
    return [
        cell.id,
        f"{len(sample.values)}" + (f" ({sample.missing} without it)" if sample.missing else ""),
        scale.measured(sample.median),
        between(sample.interval) or few_runs(cell, sample),
        between((first, third)),
        scale.measured(min(sample.values)),
        scale.measured(max(sample.values)),
        sample.unit,
        outliers + more,
    ]


def _left_out(count: int) -> list[str]:
    if count <= charts.MOST_ROWS:
        return []
    return [page.paragraph(f"The chart has the first {charts.MOST_ROWS} of {count:,} cells, the table has all.")]


def _over_time(summary: Summary) -> list[str]:
    moved = [one for one in summary.drifts if one.values]
    if not moved:
        return []
    about = (
        "Values by the median of their cell, in the order in which runs began. "
        "A trend means that the machine, not the cells, changed the results."
    )
    rows = []
    for one in moved:
        found = one.drift
        change = "" if found is None or found.change is None else f"{100 * found.change:+.1f} %"
        rows.append(
            [
                one.metric,
                str(len(one.values)),
                "" if found is None else f"{found.rho:.2f}",
                "" if found is None else p_value(found.p),
                change,
                "not tested" if found is None else "drift" if drifts(one) else "no drift found",
            ]
        )
    columns = ("metric", "runs", "rank correlation", "p-value", "last third against first", "finding")
    return [page.paragraph(about), page.gallery(charts.over_time(moved)), page.table(columns, rows)]


def p_value(p: float) -> str:
    """A p-value as papers print it."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _costs(summary: Summary) -> list[str]:
    metric = summary.metrics[0] if summary.metrics else ""
    has_cost = any(cell.cost is not None for cell in summary.cells)
    cells = [cell for cell in summary.cells if metric in cell.samples and (cell.cost is not None or not has_cost)]
    if not cells:
        return []
    what = "cost" if has_cost else "node-hours"
    rows = [
        [cell.id, scale.measured(cell.samples[metric].median), scale.measured(charts.price(cell))] for cell in cells
    ]
    columns = ("cell", charts.with_unit(metric, charts.unit_of(summary, metric)), f"{what} of a run")
    total = f"{scale.measured(summary.node_hours)} node-hours"
    total += f" at a cost of {scale.measured(summary.cost)}" if summary.cost is not None else ""
    about = f"Medians of completed runs. All runs together, with warm-up and failed ones, took {total}."
    if not has_cost:
        about += " The experiment gives no prices, so node-hours stand for the cost."
    return [
        page.paragraph(about),
        page.gallery([charts.cost(metric, charts.unit_of(summary, metric), what, cells)]),
        page.table(columns, rows),
    ]


def _failures(study: Study) -> list[str]:
    failed = [result for result in study.results if result.state != "completed"]
    if not failed:
        return [page.paragraph("No run failed.")] if study.results else []
    states = ", ".join(f"{count:,} {state}" for state, count in Counter(one.state for one in failed).most_common())
    text = f"{counted(len(failed), 'run')}, warm-up runs included: {states}."
    if len(failed) > _LISTED:
        text += f" The table has the first {_LISTED}."
    rows = [
        [
            f"{one.cell}, run {one.number}",
            one.state,
            "" if one.exit is None else str(one.exit),
            str(one.attempt),
            one.reason,
        ]
        for one in failed[:_LISTED]
    ]
    parts = [page.paragraph(text), page.table(("run", "state", "exit", "attempts", "reason"), rows)]
    for one in failed[:_QUOTED]:
        lines = last_lines(study.folder, one)
        parts.append(page.details(f"Last lines of {one.cell}, run {one.number}", "\n".join(lines) or "(no output)"))
    return parts


def _repeat(study: Study, summary: Summary) -> list[str]:
    headrace = study.provenance.get("headrace")
    version = str(headrace.get("version", "")) if isinstance(headrace, dict) else ""
    about = (
        f"Headrace {version or '(unknown version)'} ran it. The order of runs was {summary.order}, with seed "
        f"{summary.seed}. "
        "To get the same order again, give the file this seed. The files of the runs are beside this report in runs/."
    )
    return [
        page.paragraph(about),
        page.code("headrace experiment run experiment.yaml"),
        page.details("experiment.yaml", study.text),
    ]


def _provenance(study: Study) -> list[str]:
    rows = list(flat(study.provenance))
    for number, session in enumerate(study.sessions, 1):
        rows += flat(_brief(session), f"session {number}")
    found = [(name, value[:_LONGEST] + ("…" if len(value) > _LONGEST else "")) for name, value in rows]
    return [page.facts(found)] if found else []


def _brief(session: dict[str, Any]) -> dict[str, Any]:
    """A session without the objects and labels of its targets, for which its file is the place."""
    targets = session.get("targets")
    if not isinstance(targets, dict):
        return {}
    brief: dict[str, Any] = {}
    for name, target in targets.items():
        facts = target.get("facts") if isinstance(target, dict) else None
        if isinstance(facts, dict):
            nodes = facts.get("nodes")
            shown = {key: value for key, value in facts.items() if key != "objects"}
            if isinstance(nodes, list):
                shown["nodes"] = {
                    str(node.get("name")): _system(node.get("system")) for node in nodes if isinstance(node, dict)
                }
            brief[name] = shown
    return {**brief, "problems": session.get("problems", [])}


def _system(system: Any) -> str:
    """Kernel, operating system and runtime of a Kubernetes node."""
    names = ("kernelVersion", "osImage", "architecture", "containerRuntimeVersion", "kubeletVersion")
    return ", ".join(str(system[name]) for name in names if name in system) if isinstance(system, dict) else ""


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of nested objects, named by their paths."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    elif name == "created" and isinstance(value, (int, float)):
        yield name, time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(value))
    elif isinstance(value, list):
        if value:
            yield name, ", ".join(map(str, value))
    elif value not in ("", None, {}):
        yield name, str(value)
