"""The runs of an experiment as CSV, a line each, for pandas and spreadsheets."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from io import StringIO

from headrace.experiments.values import PHASES, Result

_PLAIN = (
    *("cell", "number", "warmup", "job", "target", "size", "machine", "state", "reason", "exit", "attempt", "position"),
    *("started", "ended", "nodes", "node_seconds", "cost"),
)


def runs_csv(results: Sequence[Result]) -> str:
    """A header and a line for each run, with lines ended by CR LF (RFC 4180).

    Columns of parameters, metrics and phases are named `parameter.NAME`, `metric.NAME` and `phase.NAME`; what a run
    lacks is empty. Times are seconds since the epoch.
    """
    parameters = _names(result.parameters for result in results)
    metrics = _names(result.metrics for result in results)
    phases = sorted(_names(result.phases for result in results), key=_place)
    out = StringIO()
    writer = csv.writer(out)
    writer.writerow(
        [
            *_PLAIN,
            *(f"parameter.{name}" for name in parameters),
            *(f"metric.{name}" for name in metrics),
            *(f"phase.{name}" for name in phases),
        ]
    )
    for result in results:
        plain = [getattr(result, column) for column in _PLAIN]
        writer.writerow(
            [
                *(int(value) if isinstance(value, bool) else value for value in plain),
                *(result.parameters.get(name) for name in parameters),
                *(result.metrics.get(name) for name in metrics),
                *(result.phases.get(name) for name in phases),
            ]
        )
    return out.getvalue()


def _names(given: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in given for name in names))


def _place(phase: str) -> int:
    return PHASES.index(phase) if phase in PHASES else len(PHASES)
