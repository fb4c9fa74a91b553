"""What holds for the tests as a whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path


def test_no_two_files_of_tests_have_the_same_name() -> None:
    """A name in a report, or given to `pytest -k`, means one file."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
