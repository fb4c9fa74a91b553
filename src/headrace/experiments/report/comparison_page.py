"""The comparison of two experiments for a terminal, and as one HTML file that loads nothing else."""

from __future__ import annotations

from typing import Any

from headrace.experiments.report.charts import MOST_ROWS, with_unit
from headrace.experiments.report.comparison import Comparison, Pair
from headrace.experiments.report.page import flat, p_value
from headrace.experiments.report.sentences import between
from headrace.experiments.report.text import table
from headrace.formats.plots import page, rows, scale

_COLUMNS = ("ratio", "95 % interval", "p-value", "second is")
_ABOUT = (
    "The ratio is the median in the second experiment by that in the first, with a 95 % bootstrap interval. "
    "The p-value is that of a two-sided Mann-Whitney test with Holm's correction for all tests of this comparison; a "
    "difference counts if it is less than 0.05."
)


def comparison_text(found: Comparison) -> str:
    """The sentences and a table; ends with a newline."""
    columns = ("CELL", "METRIC", "RUNS", "FIRST", "SECOND", "RATIO", "95 % INTERVAL", "P", "SECOND IS")
    cells = [[pair.cell, pair.metric, *_row(pair)] for pair in found.pairs]
    return "\n".join([*(one.sentence for one in found.verdicts), *_unmatched(found), "", *table(columns, cells)]) + "\n"


def comparison_page(found: Comparison, provenances: tuple[dict[str, Any], dict[str, Any]]) -> str:
    """The page. `provenances` are those of the experiments, of which the differences are shown."""
    parts = [page.paragraph(sentence) for sentence in (*(one.sentence for one in found.verdicts), *_unmatched(found))]
    for one in found.verdicts:
        pairs = [pair for pair in found.pairs if pair.metric == one.metric]
        if not pairs:
            continue
        parts += [page.heading(one.metric), page.gallery(_chart(one.metric, pairs))]
        units = {pair.unit for pair in pairs}
        unit = units.pop() if len(units) == 1 else ""
        columns = ("cell", "runs", with_unit("first", unit), with_unit("second", unit), *_COLUMNS)
        parts.append(page.table(columns, [[pair.cell, *_row(pair)] for pair in pairs]))
        if len(pairs) > MOST_ROWS:
            parts.append(page.paragraph(f"The chart has the first {MOST_ROWS} of {len(pairs):,} cells."))
    first, second = (dict(flat(one)) for one in provenances)
    differ = [name for name in dict.fromkeys((*first, *second)) if first.get(name) != second.get(name)]
    if differ:
        parts.append(page.heading("Differences in provenance"))
        parts.append(page.table(("", "first", "second"), [[n, first.get(n, ""), second.get(n, "")] for n in differ]))
    title = f"{found.names[0]} and {found.names[1]} compared"
    return page.page(title, _ABOUT, parts)


def _row(pair: Pair) -> list[str]:
    return [
        f"{pair.runs[0]}, {pair.runs[1]}",
        scale.measured(pair.medians[0]),
        scale.measured(pair.medians[1]),
        "" if pair.ratio is None else scale.measured(pair.ratio),
        between(pair.interval),
        "too few runs" if pair.p is None else p_value(pair.p),
        pair.verdict,
    ]


def _unmatched(found: Comparison) -> list[str]:
    lines = []
    for which, cells in (("first", found.only_first), ("second", found.only_second)):
        if cells:
            names = ", ".join(cells[:5]) + (f" and {len(cells) - 5} more" if len(cells) > 5 else "")
            lines.append(f"Only in the {which} experiment: {names}.")
    if found.no_partner:
        lines.append(f"Measured in one experiment only: {', '.join(found.no_partner)}.")
    return lines


def _chart(metric: str, pairs: list[Pair]) -> list[str]:
    shown = [pair for pair in pairs if pair.ratio is not None and 1e-150 < pair.ratio < 1e150][:MOST_ROWS]
    if not shown:
        return []
    better = "less" if shown[0].better == "lower" else "more"
    about = f"The median of {metric} in the second experiment by that in the first; {better} than 1 is better."
    estimates = [
        rows.Estimate(pair.cell, pair.ratio, pair.interval if pair.interval and pair.interval[0] > 0 else None)
        for pair in shown
        if pair.ratio is not None
    ]
    return [rows.ratios(f"{metric} compared", about, estimates, f"second by first ({better} than 1 is better)")]
