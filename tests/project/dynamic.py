"""Imports by a call, which import-linter does not see: `__import__`, `importlib.import_module` and similar."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_MEANS = frozenset({"__import__", "import_module", "resolve_name", "run_module", "spec_from_file_location"})


def imports_by_call(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Each such call, with the expression for what is imported: `'headrace.cli'` for a literal, else as in the code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in _MEANS:
                asked = [*node.args, *(keyword.value for keyword in node.keywords)]
                yield node, ast.unparse(asked[0])
