"""`headrace experiment plan`, `init` and `list`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from headrace.cli.main import headrace
from headrace.experiments.file import read
from headrace.experiments.plan import plan
from headrace.experiments.store.folder import Folder
from headrace.experiments.values import Result, Run

TEXT = """\
matrix: {size: [1, 2], machine: [m5]}
targets: {here: {price: 36}}
budget: {cost: 1, node-hours: 0}
parameters: {steps: [10, 20]}
warmup: 1
repeats: 5
operator: {branch: main}
jobs: {lammps: {command: "lmp -v steps {{steps}}\\n  -in in.lmp"}}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "exp.yaml"
    path.write_text(TEXT)
    return str(path)


def write_results(file: str, folder: Path, seconds: float) -> None:
    experiment = read(file)
    made = Folder(folder)
    made.create(b"", experiment, plan(experiment), {})
    run = Run(cell="lammps-1-steps=10", number=1)
    result = Result(
        cell=run.cell,
        number=run.number,
        warmup=False,
        job="lammps",
        target="here",
        size=1,
        machine="m5",
        parameters={"steps": 10},
        state="completed",
        started=5.0,
        ended=5.0 + seconds,
    )
    made.begin(run)
    made.commit(run, result)


def test_plan_shows_cells_runs_and_order(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert headrace(["experiment", "plan", file]) == 0
    told = capsys.readouterr()
    assert told.err == f"{file}:7: operator: has no effect: the cluster is yours, or made by `up` of its target\n"
    assert (
        told.out
        == """\
CELL               TARGET  MACHINE  NODES  RUNS  COMMAND
lammps-1-steps=10  here    m5       1      1+5   lmp -v steps 10 -in in.lmp
lammps-1-steps=20  here    m5       1      1+5   lmp -v steps 20 -in in.lmp
lammps-2-steps=10  here    m5       2      1+5   lmp -v steps 10 -in in.lmp
lammps-2-steps=20  here    m5       2      1+5   lmp -v steps 20 -in in.lmp

cells: 4
runs: 24, 4 of them to warm up
order: interleaved: lammps-1-steps=10/1, lammps-1-steps=20/1, lammps-2-steps=10/1, lammps-2-steps=20/1,
       lammps-1-steps=10/2, lammps-1-steps=20/2, lammps-2-steps=10/2, lammps-2-steps=20/2,
       lammps-1-steps=10/3, lammps-1-steps=20/3, lammps-2-steps=10/3, lammps-2-steps=20/3, and 12
       more (--json lists all)
time: unknown (--from DIR estimates it from earlier results)
cost: unknown (it needs a time, and a price of the target)
budget: 1 cost
budget: 0 node-hours: no run would begin
"""
    )


def test_plan_estimates_from_earlier_results(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    earlier = tmp_path / "earlier"
    write_results(file, earlier, 60)
    assert headrace(["experiment", "plan", file, "--from", str(earlier), "--only", "steps=10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == [
        "lammps-1-steps=10  here    m5       1      1+5   1m    0.6   lmp -v steps 10 -in in.lmp",
        "lammps-2-steps=10  here    m5       2      1+5               lmp -v steps 10 -in in.lmp",
    ]
    assert lines[-4:-1] == [
        "time: 6m one run after the other, 0.1 node-hours, and 1 cells of unknown time",
        "cost: 3.6, and 1 cells of unknown cost",
        "budget: 1 cost: the estimate exceeds it, not all runs would begin",
    ]
    assert headrace(["experiment", "plan", file, "--from", str(tmp_path)]) == 1
    assert "is not the folder of an experiment" in capsys.readouterr().err
    assert not (tmp_path / "results.sqlite").exists()


def test_plan_as_json_has_all_runs(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert headrace(["experiment", "plan", file, "--json", "--target", "here", "--only", "size=2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["order"], found["seed"]) == ("exp", "interleaved", None)
    assert [cell["id"] for cell in found["cells"]] == ["lammps-2-steps=10", "lammps-2-steps=20"]
    assert found["cells"][0]["parameters"] == {"steps": 10}
    assert len(found["runs"]) == 12
    assert found["runs"][2] == {"cell": "lammps-2-steps=10", "number": 2, "warmup": False}
    assert found["estimate"] == {"seconds": None, "node_hours": None, "cost": None}


def test_errors_name_file_line_and_key(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert headrace(["experiment", "plan", file, "--target", "there"]) == 1
    assert capsys.readouterr().err.endswith(f'{file}: there is no target "there": use here\n')
    Path(file).write_text("jobs: {a: {command: x}}\nrepeat: 3\n")
    assert headrace(["experiment", "plan", file]) == 1
    assert capsys.readouterr().err == f"{file}:2: repeat: is not a known key (did you mean repeats?)\n"
    assert headrace(["experiment", "plan", "gone.yaml"]) == 1
    assert capsys.readouterr().err == "headrace-experiment: ERROR: gone.yaml: No such file or directory\n"


def test_options_are_those_of_flux_submit(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(file).write_text(
        "jobs:\n  a: {command: x, options: -o mpi=pmi2 --exclusive}\n  b: {command: x, options: --exclusve}\n"
    )
    assert headrace(["experiment", "plan", file]) == 1
    rule = "options: unrecognized arguments: --exclusve (did you mean --exclusive?)"
    assert capsys.readouterr().err == f"{file}:3: jobs.b: {rule}\n"


def test_init_writes_a_file_that_can_be_planned_and_overwrites_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert headrace(["experiment", "init"]) == 0
    assert headrace(["experiment", "plan", "experiment.yaml"]) == 0
    told = capsys.readouterr()
    assert "cells: 4\nruns: 24, 4 of them to warm up\n" in told.out
    assert told.err == ""
    assert headrace(["experiment", "init"]) == 1
    assert "experiment.yaml exists: remove it, or choose another name" in capsys.readouterr().err


def test_init_takes_a_file_of_flux_cloud_with_its_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "# ours\nmatrix: {size: [2]}\nminicluster: {name: a, namespace: b, users: []}\njobs: {a: {command: x}}\n"
    Path("experiments.yaml").write_text(text)
    assert headrace(["experiment", "init", "new.yaml", "--from", "flux-cloud", "experiments.yaml"]) == 0
    written = Path("new.yaml").read_text()
    assert written.endswith(text)
    assert "\n#   minicluster.users: has no effect: the MiniClusters of" in written
    new, old = read("new.yaml").cells[0], read("experiments.yaml").cells[0]
    assert new.job.line == old.job.line + len(written.splitlines()) - 4
    assert msgspec.structs.replace(new, job=old.job) == old
    assert headrace(["experiment", "init", "x.yaml", "--from", "jube", "experiments.yaml"]) == 2
    Path("experiments.yaml").write_text("jobs: 3\n")
    assert headrace(["experiment", "init", "x.yaml", "--from", "flux-cloud", "experiments.yaml"]) == 1
    assert "experiments.yaml:1: jobs: must be a mapping, not 3" in capsys.readouterr().err
    assert not os.path.exists("x.yaml")


def test_list_shows_the_experiments_below_a_folder(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = read(file)
    for name in ("one", "deep/er/two"):
        Folder(tmp_path / name).create(b"", experiment, plan(experiment), {})
    (tmp_path / "three").mkdir()
    (tmp_path / "three/experiment.yaml").write_text("")
    assert headrace(["experiment", "list", str(tmp_path), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["folder"] for one in found] == [f"{tmp_path}/deep/er/two", f"{tmp_path}/one"]
    assert found[0] == {**found[0], "name": "exp", "state": "interrupted", "planned": 24, "done": 0, "failed": 0}
    (tmp_path / "one/plan.json").write_text("{")
    assert headrace(["experiment", "list", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert "one/plan.json: " in told.err
    assert [line.split() for line in told.out.splitlines()] == [
        ["FOLDER", "STATE", "PLANNED", "DONE", "FAILED", "NAME"],
        [f"{tmp_path}/deep/er/two", "interrupted", "24", "0", "0", "exp"],
    ]
    assert headrace(["experiment", "list", str(tmp_path / "gone")]) == 1
