"""Python files that users name run as they are now."""

from __future__ import annotations

import os
import py_compile
from pathlib import Path

import pytest

from headrace.formats.spec import python_file


def test_a_file_that_was_edited_within_the_second_runs_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    for text in ("value = 1", "value = 2"):
        path.write_text(text)
        os.utime(path, (1e9, 1e9))
        if text.endswith("1"):
            py_compile.compile(str(path))
        module = python_file.load("mine", str(path))
        assert (module.value, module.__file__) == (int(text[-1]), str(path))


@pytest.mark.parametrize(
    ("text", "error"), [(None, FileNotFoundError), ("1 +", SyntaxError), ("1 / 0", ZeroDivisionError)]
)
def test_what_is_wrong_is_raised(tmp_path: Path, text: str | None, error: type[Exception]) -> None:
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(error):
        python_file.load("mine", str(path))
