"""The files of a run: inputs and templates before it, outputs after it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from experiments.run.cells import cell, experiment
from headrace.experiments.run.files import copy_inputs, take_outputs, work_folder
from headrace.experiments.values import Cell, Experiment


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "source/data").mkdir(parents=True)
    (tmp_path / "source/data/one").write_text("1")
    (tmp_path / "source/t.sh").write_text("echo {{size}} {{steps}} {{.Id}}")
    (tmp_path / "source/t.sh").chmod(0o755)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def made(home: Path, parameters: dict[str, int] | None = None, **job: object) -> tuple[Experiment, Cell]:
    one = cell()
    one = msgspec.structs.replace(one, job=msgspec.structs.replace(one.job, **job), parameters=parameters or {})
    return msgspec.structs.replace(experiment(one)[0], folder=str(home.parent / "source")), one


def test_inputs_and_folders_are_copied_and_templates_filled(home: Path) -> None:
    wanted = made(home, {"steps": 10}, inputs=("data",), templates=("t.sh",))
    assert copy_inputs(*wanted, home) == ""
    assert (home / "data/one").read_text() == "1"
    assert (home / "t.sh").read_text() == "echo 1 10 {{.Id}}"
    assert (home / "t.sh").stat().st_mode & 0o111


def test_an_input_that_is_gone_and_a_template_without_a_value_are_named(home: Path) -> None:
    assert copy_inputs(*made(home, inputs=("gone",)), home) == "input gone: No such file or directory"
    assert copy_inputs(*made(home, templates=("t.sh",)), home) == "template t.sh: has no value for steps"


def test_the_program_runs_in_the_folder_that_its_file_names_if_there_is_one(home: Path) -> None:
    assert work_folder(*made(home, working_dir="data"), home) == home.parent / "source/data"
    assert work_folder(*made(home, working_dir="/nonexistent/folder"), home) == home


@pytest.mark.parametrize("move", [True, False])
def test_outputs_are_kept_with_what_links_point_to(home: Path, tmp_path: Path, move: bool) -> None:
    record = tmp_path / "record"
    (home / "sub").mkdir()
    (home / "sub/a.dat").write_text("a")
    (home / "b.dat").symlink_to("sub/a.dat")
    (home / "dangling.dat").symlink_to("nowhere")
    (home / "other").write_text("not kept")
    record.mkdir()
    _, one = made(home, outputs=("**/*.dat", "sub"))
    assert take_outputs(one, home, record, move) == ""
    kept = {str(path.relative_to(record)): path.read_text() for path in record.rglob("*") if path.is_file()}
    assert kept == {"sub/a.dat": "a", "b.dat": "a"}
    assert not (record / "b.dat").is_symlink()


def test_an_output_does_not_replace_a_file_of_the_run(home: Path, tmp_path: Path) -> None:
    (home / "stdout").write_text("x")
    _, one = made(home, outputs=("std*",))
    assert take_outputs(one, home, tmp_path, True).startswith("output stdout: has the name of a file that each run has")
