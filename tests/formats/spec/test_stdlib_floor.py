"""The rooms that run on hosts and in views where only an old Python is to be had: 3.8 and its standard library.

`import flux` and the commands must start there, so what these rooms import when they are imported is checked, and their
syntax and the interfaces they use are measured with vermin. What a function imports inside itself is its own affair.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import headrace

ROOMS = ("formats/spec", "wire", "cli")
HOUSE = Path(headrace.__file__).parent
FILES = sorted(path for room in ROOMS for path in (HOUSE / room).rglob("*.py"))
# `import flux` is served by files of `wire/compat`, so they import one another by that name.
ALLOWED = frozenset(sys.stdlib_module_names) | {"headrace", "flux"}


def imported_on_import(tree):
    """Names of the top-level packages that a module imports when it is itself imported."""
    waiting = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            waiting.extend(node.orelse)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def test_imports_are_found_wherever_a_module_makes_them():
    tree = ast.parse(
        "import a.b, c\nfrom d.e import f\nfrom . import g\nif TYPE_CHECKING:\n    import no\nelse:\n    import h\n"
        "try:\n    import i\nexcept ImportError:\n    import j\nclass K:\n    import k\ndef f():\n    import no\n"
    )
    assert sorted(imported_on_import(tree)) == ["a", "c", "d", "h", "i", "j", "k"]


def test_every_room_has_files():
    assert all(any((HOUSE / room) in path.parents for path in FILES) for room in ROOMS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_a_file_needs_only_the_standard_library_and_the_house(path):
    assert set(imported_on_import(ast.parse(path.read_text()))) <= ALLOWED


def test_all_files_run_on_python_3_8():
    vermin = [sys.executable, "-c", "import vermin; vermin.main()", "-t=3.8-", "--violations", "--no-tips"]
    done = subprocess.run([*vermin, *map(str, FILES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
