"""The room as a whole: services use it without a command line and without a terminal."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from headrace.wire import query

FILES = sorted(Path(query.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_is_printed_and_no_argument_is_parsed(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            modules = [getattr(node, "module", None), *(alias.name for alias in node.names)]
            assert "argparse" not in modules
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called != "print"
            assert not (called.startswith("sys.std") and called.endswith(("write", "read", "flush"))), called
