"""Pure rooms open no files, sockets or clocks, but for the files that architecture.md names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from dynamic import imports_by_call

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headrace"
ROOMS = (
    "formats",
    "sched",
    "k8s/objects",
    "k8s/metrics_api.py",
    "minicluster/api",
    "minicluster/operator/admission.py",
    "minicluster/operator/builders",
    "minicluster/operator/core",
    "minicluster/operator/crd.py",
    "flux_jobs/read",
    "flux_jobs/operator/policy",
    "flux_jobs/operator/updates.py",
    "experiments/file",
    "experiments/plan",
    "cluster_queue/admission.py",
    "cluster_queue/crd.py",
    "cluster_queue/cycle",
    "cluster_queue/model",
    "cluster_queue/policies.py",
    "cluster_queue/workloads",
    "service/statistics.py",
)

# What each file reads, by the names that it uses for it.
READERS = {
    "experiments/file/load.py": {"open", "os.path.abspath", "os.path.exists"},
    "experiments/plan/order.py": {"random"},
    "formats/config/files.py": {"open", "os.listdir", "os.path.exists", "os.path.isdir"},
    "formats/config/guests.py": {"os.path.realpath", "os.stat"},
    "formats/spec/archive.py": {"open", "os.lstat", "os.readlink"},
    "formats/spec/envrules.py": {"open", "os.path.expanduser"},
    "formats/spec/hwloc.py": {"open"},
    "formats/spec/jobid.py": {"os.environ.get"},
    "formats/spec/jobspec_build.py": {"open"},
    "formats/spec/python_file.py": {"an import by a call"},
    "formats/spec/rlimits.py": {"resource"},
    "formats/spec/stdlib_parts.py": {"_socket"},
    "formats/spec/treeobj.py": {"an import by a call"},
    "sched/graph/query_commands.py": {"time"},
    "sched/graph/resource_query.py": {"open", "os.stat", "pathlib", "time"},
    "sched/queueing/simulate_trace.py": {"random"},
    "formats/plots/scale.py": {"time"},
    "k8s/objects/timestamps.py": {"datetime"},
}
# Modules that are for files, sockets, processes, clocks and chance, and for nothing else.
EDGES = frozenset(
    """
    _io _posixsubprocess _socket _thread asyncio bz2 concurrent ctypes datetime fcntl getpass glob gzip http
    importlib.resources io linecache lzma mmap multiprocessing pathlib platform posix pwd random resource runpy secrets
    select selectors shelve shutil socket socketserver sqlite3 ssl subprocess tarfile tempfile threading time
    urllib.request uuid zipfile zipimport
    """.split()  # noqa: SIM905
)
# Functions that reach out, of modules that have others.
REACHING = frozenset({"open", "input", "exec", "eval", "breakpoint", "codecs.open", "tokenize.open"})
# Values and functions of os and pathlib that touch nothing outside of the process.
PLAIN = frozenset(
    """
    os.PathLike os.fsdecode os.fsencode os.fspath os.path os.sep os.strerror os.path.basename os.path.dirname
    os.path.isabs os.path.join os.path.normpath os.path.split os.path.splitext os.WEXITSTATUS os.WIFSIGNALED
    os.WTERMSIG pathlib.PurePosixPath
    """.split()  # noqa: SIM905
)


def names_of_imports(tree: ast.AST) -> dict[str, str]:
    """What each name of an import stands for: `o` for `os` after `import os as o`."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else ""
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return {name: full or name for name, full in names.items()}


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    """`os.path.join` for such an expression, with names as imports gave them; "" for any other."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and (before := dotted(node.value, names)):
        return f"{before}.{node.attr}"
    return ""


def edge(module: str) -> list[str]:
    """The name of EDGES for a module or a name in it; none for any other."""
    parts = module.split(".")
    return [one for n in range(len(parts)) if (one := ".".join(parts[: n + 1])) in EDGES][:1]


def reaching(name: str) -> list[str]:
    """The name of a value or function by which code reaches out; none for any other."""
    name = name.removeprefix("builtins.")
    return [name] if name in REACHING or (name.partition(".")[0] == "os" and name not in PLAIN) else []


def reads(text: str) -> Iterator[str]:
    """What a file uses to reach out of the process."""
    tree = ast.parse(text)
    names = names_of_imports(tree)
    own = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    own |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name for alias in node.names for name in edge(alias.name))
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield from [] if full in PLAIN else edge(full) or reaching(full)
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and id(node) not in inner:
            # A name that an import bound is reported there; a name of a module alone may go anywhere.
            name = dotted(node, names)
            if isinstance(node, ast.Attribute) or (node.id == name and name not in own) or name == "os":
                yield from reaching(name)
    for _, asked in imports_by_call(tree):
        module = ast.literal_eval(asked) if asked[:1] in "'\"" else ""
        yield from edge(module) or ([] if module not in ("", "os", "builtins") else [module or "an import by a call"])


def files() -> dict[str, set[str]]:
    found = {}
    for room in ROOMS:
        place = SOURCE / room
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
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
        ("import os as o\no.stat(x)", ["os.stat"]),
        ("import os.path as p\np.exists(x)", ["os.path.exists"]),
        ("from os import path as p\np.join(x)\np.isfile(x)", ["os.path.isfile"]),
        ("import os\nf(os)", ["os"]),
        ("import urllib.request", ["urllib.request"]),
        ("from urllib import request", ["urllib.request"]),
        ("from urllib.parse import quote", []),
        ("import random as r", ["random"]),
        ("import posix, ssl, gzip", ["posix", "ssl", "gzip"]),
        ("import codecs\ncodecs.open(x)", ["codecs.open"]),
        ("from codecs import open as o\no(x)", ["codecs.open"]),
        ("import builtins as b\nb.open(x)", ["open"]),
        ("from pathlib import PurePosixPath", []),
        ("from pathlib import Path, PurePosixPath", ["pathlib"]),
        ("read = open", ["open"]),
        ("def f(input): return input", []),
        ("__import__('socket')", ["socket"]),
        ("from importlib import import_module\nimport_module('os')", ["os"]),
        ("__import__(x)", ["an import by a call"]),
    ],
)
def test_what_counts_as_reaching_out(text: str, found: list[str]) -> None:
    assert list(reads(text)) == found
