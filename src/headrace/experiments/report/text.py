"""The report of an experiment for a terminal: three sentences and a table."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import combining, east_asian_width

from headrace.experiments.report.sentences import between, few_runs, sentences
from headrace.experiments.report.summary import CellSummary, Summary
from headrace.formats.plots import scale

COLUMNS = ("CELL", "RUNS", "FAILED", "METRIC", "MEDIAN", "95 % INTERVAL", "UNIT", "OUTLIERS")


def text(summary: Summary) -> str:
    """The report, which ends with a newline."""
    rows = [row for cell in summary.cells for row in _rows(cell)]
    parts = [*sentences(summary), *summary.notes, "", *table(COLUMNS, rows)]
    return "\n".join(parts) + "\n"


def _rows(cell: CellSummary) -> list[list[str]]:
    head = [cell.id, str(cell.runs), str(cell.failed)]
    if not cell.samples:
        return [[*head, "-", "-", "-", "", ""]]
    return [
        [
            *(head if number == 0 else ("", "", "")),
            sample.metric,
            scale.measured(sample.median),
            between(sample.interval) or few_runs(cell, sample),
            sample.unit,
            str(len(sample.outliers) or ""),
        ]
        for number, sample in enumerate(cell.samples.values())
    ]


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with columns as wide as their longest cell."""
    widths = [max(map(width, column)) for column in zip(columns, *rows)]
    return [
        "  ".join(cell + " " * (most - width(cell)) for cell, most in zip(row, widths)).rstrip()
        for row in (columns, *rows)
    ]


def width(text: str) -> int:
    """The columns of a terminal that a text takes."""
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)
