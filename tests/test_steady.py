"""A failed test of real processes has a second try by itself, is listed, and hides no fault."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import steady

HERE = Path(__file__).parent
SYSTEM = "tests/system/test_a.py::test_a"


@pytest.mark.parametrize(
    ("failed", "again"),
    [
        ([SYSTEM, "tests/kube/test_b.py::test_b[1]"], [SYSTEM, "tests/kube/test_b.py::test_b[1]"]),
        ([SYSTEM, "tests/sched/graph/test_c.py::test_c"], []),
        ([f"{SYSTEM}[{number}]" for number in range(steady.AGAIN + 1)], []),
        ([], []),
    ],
)
def test_only_a_few_tests_of_real_processes_have_a_second_try(failed: list[str], again: list[str]) -> None:
    assert steady.may_pass_alone(failed) == again


@pytest.mark.parametrize(("count", "status"), [(1, 0), (steady.UNSTEADY, 0), (steady.UNSTEADY + 1, 1)])
def test_unsteady_tests_are_listed_and_many_of_them_fail_the_run(count: int, status: int) -> None:
    unsteady = [f"{SYSTEM}[{number}]" for number in range(count)]
    found, words = steady.verdict(unsteady)
    assert found == status
    assert words.splitlines()[1:] == [f"  {each}" for each in unsteady]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("assert True", 0, ""),
        ("assert seen.exists() or seen.touch()", 0, f"\n  {SYSTEM}\n"),
        ("assert False", 1, "1 failed test(s) again"),
    ],
)
def test_a_run_passes_if_what_failed_passes_alone(tmp_path: Path, body: str, status: int, said: str) -> None:
    (tmp_path / "tests/system").mkdir(parents=True)
    (tmp_path / "tests/steady.py").write_text((HERE / "steady.py").read_text())
    test = f"from pathlib import Path\nseen = Path(__file__).with_name('seen')\ndef test_a():\n    {body}\n"
    (tmp_path / "tests/system/test_a.py").write_text(test)
    command = [sys.executable, "tests/steady.py", "tests", "-q"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert said in done.stdout
