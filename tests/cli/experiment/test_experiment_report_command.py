"""`headrace experiment report` and `compare`: what they print and write, and their errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.experiment.main import main
from headrace.cli.main import headrace
from studies import SCALING, scaled, study


def test_the_report_is_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert headrace(["experiment", "report", str(study(tmp_path))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("study: 21 of 21 planned runs") and lines[3] == ""
    assert lines[4].split() == ["CELL", "RUNS", "FAILED", "METRIC", "MEDIAN", "95", "%", "INTERVAL", "UNIT", "OUTLIERS"]
    assert [line.split()[:4] for line in lines[5:]] == [[f"lammps-{size}", "7", "0", "loop"] for size in (1, 2, 4)]


def test_files_are_written_and_nothing_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(study(tmp_path))
    html, csv = tmp_path / "r.html", tmp_path / "r.csv"
    assert headrace(["experiment", "report", path, "--html", str(html), "--csv", str(csv)]) == 0
    assert html.read_text().startswith("<!doctype html>") and csv.read_text().count("\n") == 22
    assert capsys.readouterr().out == ""
    assert headrace(["experiment", "report", path, "--csv", "-"]) == 0
    assert capsys.readouterr().out.splitlines() == csv.read_text().splitlines()


def test_json_has_the_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert headrace(["experiment", "report", str(study(tmp_path)), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == 21 and len(found["cells"]) == 3
    assert found["cells"][0]["samples"]["loop"]["values"] and found["scaling"][0]["points"][0]["speedup"] == 1


def test_two_experiments_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = study(tmp_path), study(tmp_path, name="other")
    assert headrace(["experiment", "compare", str(first), str(second), "--metric", "loop"]) == 0
    assert capsys.readouterr().out.startswith("loop: cannot say. Of 3 cells, none shows which is better")
    assert (
        headrace(["experiment", "compare", str(first), str(second), "--json", "--html", str(tmp_path / "c.html")]) == 0
    )
    assert len(json.loads(capsys.readouterr().out)["pairs"]) == 3
    assert "study and other compared" in (tmp_path / "c.html").read_text()


def test_errors_name_the_folder(tmp_path: Path) -> None:
    path = str(study(tmp_path))
    with pytest.raises(CommandError, match="nothing: is not the folder of an experiment"):
        main(["report", str(tmp_path / "nothing")])
    with pytest.raises(CommandError, match=r"no/such/r\.html: No such file"):
        main(["report", path, "--html", str(tmp_path / "no/such/r.html")])
    with pytest.raises(CommandError, match='the metric "speed"; both have: loop'):
        main(["compare", path, path, "--metric", "speed"])


def test_without_scipy_a_comparison_names_the_extra_and_a_report_does_without(tmp_path: Path) -> None:
    path = str(study(tmp_path, SCALING, scaled))
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    for name in ("numpy", "scipy"):
        (hidden / f"{name}.py").write_text("raise ImportError('hidden by the test')")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        code = "import sys; from headrace.cli.main import headrace; sys.exit(headrace())"
        env = {"PYTHONPATH": str(hidden), "PATH": "/usr/bin"}
        command = [sys.executable, "-c", code, "experiment", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    compared = run("compare", path, path)
    assert compared.returncode == 1
    assert compared.stderr == (
        "headrace-experiment: ERROR: compare needs numpy and scipy: "
        "pip install '.[experiments]' in a copy of the repository\n"
    )
    reported = run("report", path)
    assert reported.returncode == 0 and "Drift is not tested: it needs numpy and scipy" in reported.stdout
