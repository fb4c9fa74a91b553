"""Pure rooms open no files, sockets or clocks, but for the files that architecture.md names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headrace"
ROOMS = ("formats/spec", "formats/plots", "formats/exposition", "sched")

# What each file reads, by the names that it uses for it.
READERS = {
    "formats/spec/archive.py": {"open", "os.lstat", "os.readlink"},
    "formats/spec/envrules.py": {"open", "os.path.expanduser"},
    "formats/spec/hwloc.py": {"open"},
    "formats/spec/jobid.py": {"os.environ.get"},
    "formats/spec/jobspec_build.py": {"open"},
    "formats/spec/stdlib_parts.py": {"_socket"},
    "sched/graph/query_commands.py": {"time"},
    "sched/graph/resource_query.py": {"open", "os.stat", "pathlib", "time"},
    "formats/plots/scale.py": {"time"},
}
# Modules that are for files, sockets, processes and clocks, and for nothing else.
EDGES = frozenset(
    """
    _socket asyncio datetime fcntl getpass glob http io mmap multiprocessing pathlib pwd secrets select selectors
    shutil socket sqlite3 subprocess tempfile threading time uuid
    """.split()  # noqa: SIM905
)
# Values and functions of os that touch nothing outside of the process.
PLAIN = frozenset(
    """
    os.PathLike os.fsdecode os.fsencode os.fspath os.sep os.strerror os.path.basename os.path.dirname os.path.isabs
    os.path.join os.path.normpath os.path.split os.path.splitext os.WEXITSTATUS os.WIFSIGNALED os.WTERMSIG
    """.split()  # noqa: SIM905
)


def dotted(node: ast.expr) -> str:
    """`os.path.join` for such an expression, "" for any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""


def reads(text: str) -> Iterator[str]:
    """What a file uses to reach out of the process."""
    tree = ast.parse(text)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name for alias in node.names if (name := alias.name.partition(".")[0]) in EDGES)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            name = (node.module or "").partition(".")[0]
            if name in EDGES:
                yield name
            elif name == "os":
                yield from (f"os.{alias.name}" for alias in node.names if f"os.{alias.name}" not in PLAIN)
        elif isinstance(node, ast.Call) and dotted(node.func) in ("open", "input", "exec", "eval"):
            yield dotted(node.func)
        elif isinstance(node, ast.Attribute) and id(node) not in inner:
            name = dotted(node)
            if name.startswith("os.") and name not in PLAIN:
                yield name


def files() -> dict[str, set[str]]:
    found = {}
    for room in ROOMS:
        for path in sorted((SOURCE / room).rglob("*.py")):
            used = set(reads(path.read_text()))
            if used:
                found[str(path.relative_to(SOURCE))] = used
    return found


def test_only_the_named_files_reach_out_and_each_by_the_named_means() -> None:
    assert files() == READERS


def test_the_page_of_the_house_names_them() -> None:
    page = (ROOT / "docs" / "dev" / "architecture.md").read_text()
    assert [name for name in READERS if f"`{name[:-3]}`" not in page] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import socket", ["socket"]),
        ("from time import monotonic", ["time"]),
        ("from os import listdir", ["os.listdir"]),
        ("import os\nos.path.exists(x)", ["os.path.exists"]),
        ("import os\nos.path.join(x, y)", []),
        ("with open(x) as f: pass", ["open"]),
        ("graph.open(x)", []),
    ],
)
def test_what_counts_as_reaching_out(text: str, found: list[str]) -> None:
    assert list(reads(text)) == found
