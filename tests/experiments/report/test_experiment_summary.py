"""The numbers of an experiment, worked out by hand, and its three sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.experiments.report.sentences import sentences
from headrace.experiments.report.study import read
from headrace.experiments.report.summary import Summary
from headrace.experiments.stats import drift
from headrace.experiments.stats.optional import MissingExtra
from headrace.experiments.store.folder import FolderError
from headrace.experiments.values import Cell, Run
from studies import SCALING, scaled, study, valued


def summary_of(folder: Path, *given: Any, **others: Any) -> Summary:
    return read(str(study(folder, *given, **others))).summary()


def test_a_cell_has_the_numbers_of_its_completed_runs(tmp_path: Path) -> None:
    values = {"lammps-1": [4.0, 8, 5, 7, 6, 30, 6], "lammps-2": [3.0, 3, 3, 3, 3, 3, 3], "lammps-4": []}
    summary = summary_of(tmp_path, SCALING, valued(values))
    one, two, four = summary.cells
    sample = one.samples["loop"]
    assert (sample.median, sample.quartiles, sample.outliers) == (6, (5.5, 6, 7.5), (6,))
    assert sample.values == (4, 8, 5, 7, 6, 30, 6) and sample.interval is not None
    assert sample.interval[0] < 6 < sample.interval[1] < 30
    assert two.samples["loop"].interval == (3, 3)
    assert (four.runs, four.completed, four.failed, four.samples) == (7, 0, 7, {})
    assert (summary.runs, summary.planned, summary.failed) == (21, 21, 7)
    (series,) = summary.scaling
    assert [(at.size, at.speedup, at.efficiency) for at in series.points] == [(1, 1, 1), (2, 2, 1)]


def test_warm_up_runs_cost_but_do_not_count(tmp_path: Path) -> None:
    def outcome(cell: Cell, run: Run, position: int) -> dict[str, Any]:
        return {**scaled(cell, run, position), "cost": 2.0, "metrics": {"loop": 99.0 if run.warmup else 1.0}}

    summary = summary_of(tmp_path, SCALING.replace("repeats: 7", "repeats: 6\n    warmup: 2"), outcome)
    assert (summary.runs, summary.warmups, summary.cost) == (18, 6, 48)
    assert all(cell.samples["loop"].values == (1.0,) * 6 and cell.cost == 2 for cell in summary.cells)


def test_a_job_without_metrics_is_measured_by_the_time_of_its_program(tmp_path: Path) -> None:
    def outcome(cell: Cell, run: Run, position: int) -> dict[str, Any]:
        return {"started": 10.0, "ended": 17.0, "phases": {"created": 10.0, "program": 12.0, "ended": 15.0}}

    summary = summary_of(tmp_path, "experiment: {size: 1}\njobs: {a: {command: x, repeats: 2}}", outcome)
    (cell,) = summary.cells
    assert cell.samples["duration"].values == (3, 3) and cell.phases == {"created": 2, "program": 3}


def test_phases_are_means_that_add_up_to_the_length_of_a_run(tmp_path: Path) -> None:
    def outcome(cell: Cell, run: Run, position: int) -> dict[str, Any]:
        first = {"created": 0.0, "pulled": 9.0} if run.number == 1 else {"created": 8.0}
        return {"phases": {**first, "program": 10.0, "ended": 13.0}}

    (cell,) = summary_of(tmp_path, "experiment: {size: 1}\njobs: {a: {command: x, repeats: 2}}", outcome).cells
    assert cell.phases == {"created": (9 + 2) / 2, "pulled": 0.5, "program": 3}
    assert sum(cell.phases.values()) == (13 + 5) / 2


def test_runs_that_lack_an_optional_metric_are_counted(tmp_path: Path) -> None:
    def outcome(cell: Cell, run: Run, position: int) -> dict[str, Any]:
        return {**scaled(cell, run, position), "metrics": {"loop": 1.0} if run.number > 2 else {}}

    assert all(cell.samples["loop"].missing == 2 for cell in summary_of(tmp_path, SCALING, outcome).cells)


def test_a_drift_over_all_cells_is_found_and_said(tmp_path: Path) -> None:
    def warming(cell: Cell, run: Run, position: int) -> dict[str, Any]:
        found = scaled(cell, run, position)
        return {**found, "metrics": {"loop": found["metrics"]["loop"] * (1 + position / 50)}}

    (found,) = summary_of(tmp_path, SCALING, warming, name="warming").drifts
    assert found.drift is not None and found.drift.p < 1e-4 and found.drift.change == pytest.approx(0.3, abs=0.1)
    said = sentences(read(str(tmp_path / "warming")).summary())[2]
    assert said.startswith("All medians have 95 % intervals; values drifted while the experiment ran (loop by +")
    steady = summary_of(tmp_path, name="steady")
    assert sentences(steady)[2] == "All medians have 95 % intervals; no drift was found while the experiment ran."


def test_the_sentences_say_what_ran_what_came_out_and_how_far_to_trust_it(tmp_path: Path) -> None:
    values = {f"lammps-{size}": [12.0 / size] * 4 for size in (1, 2)}
    summary = summary_of(tmp_path, SCALING.replace("repeats: 7", "repeats: 4"), valued(values))
    first, second, third = sentences(summary)
    assert first.startswith("study: 12 of 12 planned runs in 3 cells on local ended within ")
    assert first.endswith("; 4 of them failed.")
    assert second == (
        "The median of loop of lammps goes from 12.00 s at size 1 to 6.000 s at size 2: "
        "a speed-up of 2, which is an efficiency of 100 %."
    )
    assert third == "No cell has five completed runs, so no medians have intervals; drift was not tested."


def test_a_folder_without_runs_has_a_summary(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, ended=0)
    first, second, _ = sentences(summary)
    assert first == "study: 0 of 21 planned runs in 3 cells on local ended."
    assert second == "No run has completed, so there is nothing to measure."


def test_without_scipy_the_drift_is_not_tested_and_the_summary_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise MissingExtra

    monkeypatch.setattr(drift, "scipy_stats", missing)
    summary = summary_of(tmp_path)
    how = "pip install '.[experiments]' in a copy of the repository"
    assert summary.notes == (f"Drift is not tested: it needs numpy and scipy: {how}.",)
    assert sentences(summary)[2].endswith("drift was not tested.")


def test_a_damaged_result_is_named_and_no_folder_is_an_error(tmp_path: Path) -> None:
    path = study(tmp_path, ended=3)
    (path / "results.sqlite").write_bytes(b"SQLite format 3\0 truncated")
    assert len(read(str(path)).results) == 3
    (path / "runs/lammps-1/1/result.json").write_text('{"cell": "lamm')
    with pytest.raises(FolderError, match=r"lammps-1/1/result\.json"):
        read(str(path))
    with pytest.raises(FolderError, match="not the folder of an experiment"):
        read(str(tmp_path / "nothing"))
