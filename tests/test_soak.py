"""The soak's report: what is a piece, what became of it, and that one that fails keeps no other from its turn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import soak

HERE = Path(__file__).parent
REPORT = """<testsuites><testsuite>
<testcase name="test_a[0]"><system-out>--- Captured Out ---
 40 orders, none lost
</system-out></testcase>
<testcase name="test_a[1]"><failure message="assert 1 == 2&#10;more">trace</failure></testcase>
<testcase name="test_a[2]"><skipped message="no root"/></testcase>
</testsuite></testsuites>"""


def test_the_cases_of_a_test_are_one_piece() -> None:
    collected = "tests/a.py::test_x[1]\ntests/a.py::test_x[2]\ntests/b.py::test_y\n\n3 tests collected\n"
    assert soak.pieces(collected) == ["tests/a.py::test_x", "tests/b.py::test_y"]


def test_an_outcome_has_what_was_printed_and_why_it_failed() -> None:
    found = soak.outcome("t.py::test_a", REPORT, 2.0, 1.0)
    assert (found.passed, found.failed, found.skipped, found.good) == (1, 1, 1, False)
    assert found.said == [
        "40 orders, none lost",
        "test_a[1]: failure: assert 1 == 2",
        "test_a[2]: skipped: no root",
    ]


@pytest.mark.parametrize(
    "report",
    ["", "<testsuite/>", '<testsuite><testcase name="a"><skipped message=""/></testcase></testsuite>'],
)
def test_a_piece_of_which_nothing_passed_is_not_good(report: str) -> None:
    assert not soak.outcome("t.py::test_a", report, 0.0, 0.0).good


def test_the_table_has_a_row_for_each_piece() -> None:
    found = soak.outcome("t.py::test_a", REPORT, 61.2, 1.0)
    rows = soak.table([found, found], "today").splitlines()
    assert rows[0] == "today"
    said = "40 orders, none lost; test_a[1]: failure: assert 1 == 2; test_a[2]: skipped: no root"
    assert rows[4:] == [f"| `t.py::test_a` | 1 passed, 1 failed, 1 skipped | {said} | 61 s | 1 s |"] * 2


def test_a_piece_that_fails_keeps_no_other_from_its_turn(tmp_path: Path) -> None:
    """The first has the size 0, with which it fails; the second passes."""
    environ = {**os.environ, "HEADRACE_SIZES": "objects=0 documents=600", "HEADRACE_SEED": "1"}
    command = [sys.executable, str(HERE / "soak.py"), "--into", str(tmp_path)]
    command += ["--only", "test_objects_can_be_made", "--only", "test_mutated_documents", "tests/minicluster/operator"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1, done
    assert "1 of 2 pieces good" in done.stdout
    rows = (tmp_path / "result.md").read_text().splitlines()[-2:]
    assert ["1 passed" in row for row in rows] == [False, True], rows
    assert "failure" in rows[0]
