"""Programs of ours in a Python of their own: what lies in the working directory is none of their modules."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headrace.engine.process.spawn import calling, running


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder in which somebody has put modules with names of others."""
    for name in ("json", "struct", "runpy", "pamela"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('caught')\n")
    return tmp_path


def out(argv: list[str], folder: Path, text: str = "") -> str:
    done = subprocess.run(argv, cwd=folder, input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_module_runs_with_its_arguments_and_none_of_the_working_directory(trap: Path) -> None:
    assert out(running("json.tool", "--compact"), trap, '{"a": 1}') == '{"a":1}\n'
    assert out(running("headrace.engine.process.spawn"), trap) == ""


def test_a_statement_has_arguments_and_a_folder_that_is_searched_first(trap: Path, tmp_path: Path) -> None:
    assert out(calling("import json, struct; print(sys.argv[1:])", "a", "b c"), trap) == "['a', 'b c']\n"
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "json.py").write_text("print('own')\n")
    assert out(calling("import json", first=str(tmp_path / "own")), trap) == "own\n"
