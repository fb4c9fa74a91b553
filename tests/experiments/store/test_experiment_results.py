"""Other tools find a row for each run, and a row is written once."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from headrace.experiments.store.results import add_results, open_results
from headrace.experiments.values import Result


def result(number: int, position: int, **others: object) -> Result:
    values = {"job": "lmp", "target": "local", "size": 2, "machine": "", "parameters": {"steps": 10}, "warmup": False}
    return Result(cell="lmp-2", number=number, position=position, **{"state": "completed", **values, **others})  # type: ignore[arg-type]


def test_other_tools_read_runs_metrics_and_phases(tmp_path: Path) -> None:
    first = result(2, 0, phases={"created": 1.0, "ended": 2.5}, metrics={"loop": 1.25}, cost=0.5)
    second = result(1, 1, warmup=True, state="failed", reason="exit 3", exit=3)
    database = open_results(tmp_path / "results.sqlite")
    add_results(database, [second, first])
    database.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "results.sqlite")) as found:
        rows = found.execute("SELECT number, warmup, state, exit, parameters, cost FROM runs ORDER BY position")
        assert rows.fetchall() == [
            (2, 0, "completed", None, '{"steps":10}', 0.5),
            (1, 1, "failed", 3, '{"steps":10}', None),
        ]
        assert found.execute("SELECT number, metric, value FROM metrics").fetchall() == [(2, "loop", 1.25)]
        phases = found.execute("SELECT number, phase, began FROM phases").fetchall()
        assert phases == [(2, "created", 1.0), (2, "ended", 2.5)]


def test_a_run_that_has_a_row_keeps_it(tmp_path: Path) -> None:
    database = open_results(tmp_path / "results.sqlite")
    add_results(database, [result(1, 0, metrics={"loop": 1.0})])
    add_results(database, [result(1, 5, metrics={"loop": 2.0})])
    assert database.rows("SELECT cell, number, metric, value FROM metrics") == [("lmp-2", 1, "loop", 1.0)]
