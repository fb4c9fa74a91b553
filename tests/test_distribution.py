"""Pieces of `tests/kube` name files that are there, each in one piece."""

from __future__ import annotations

from pathlib import Path

import distribution

ROOT = Path(__file__).parent.parent


def test_each_piece_names_files_that_are_there_and_no_file_twice() -> None:
    names = [name for names in distribution.TOGETHER.values() for name in names]
    assert len(set(names)) == len(names)
    assert [name for name in names if not (ROOT / f"tests/kube/test_{name}.py").exists()] == []


def test_a_file_that_no_piece_names_is_one_by_itself() -> None:
    assert distribution.piece("tests/kube/test_trainjobs.py") == "trainer"
    assert distribution.piece("tests/kube/test_hello.py") == "tests/kube/test_hello.py"
    assert distribution.piece("tests/sched/graph/test_usage.py") == "tests/sched/graph/test_usage.py"
