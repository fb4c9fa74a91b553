"""The tests mirror the source: a file with logic has its test file at the same place, or says which tests cover it.

The tests of `src/headrace/ROOM/FILE.py` are `tests/ROOM/test_FILE.py` or `tests/ROOM/test_FILE_SUBJECT.py`. No two test
files have the same name, so names of the folders may stand before FILE: `test_sched_graph_pool.py` tests
`modules/sched/graph/pool.py`. A file that is its package's whole (`__init__.py`, `main.py`, `service.py`, and
`broker.py` in `broker/`) may be named as the package. A test file belongs to the source file with the longest name of
those that fit. `tests/kube` needs a Kubernetes; what tests `src/headrace/kube` without one is in `tests/kube_unit`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/headrace"
TESTS = ROOT / "tests"
# A file with fewer statements in its functions holds data, types or a few lines that its callers' tests go through.
LOGIC = 10
WHOLE = ("__init__", "main", "service")


def statements(tree: ast.AST, inside: bool = False) -> int:
    """How many statements functions have, without docstrings and the `...` of protocols."""
    found = 0
    for child in ast.iter_child_nodes(tree):
        function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        constant = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        found += inside and isinstance(child, ast.stmt) and not function and not constant
        found += statements(child, inside or function)
    return found


def names(source: str) -> set[str]:
    """What a test file of this source file may be called, without `test_` and the subject: `pool`, `graph_pool`, ..."""
    *folders, stem = source.removesuffix(".py").split("/")
    before = ["_".join(some) for size in range(len(folders) + 1) for some in combinations(folders, size)]
    found = {f"{one}_{stem}".strip("_") for one in before}
    if folders and stem in (*WHOLE, folders[-1]):
        found.update(one for one in before if one.split("_")[-1:] == folders[-1].split("_")[-1:])
    return found


def room(source: str) -> str:
    """The folder of the tests of a source file: "spec", "kube_unit/runtime"."""
    return re.sub("^kube(?=/|$)", "kube_unit", Path(source).parent.as_posix())


def owners(sources: list[str], tests: list[str]) -> dict[str, set[str]]:
    """Of each source file (paths below the roots), the test files that belong to it."""
    owned: dict[str, set[str]] = defaultdict(set)
    for test in tests:
        called = Path(test).stem.removeprefix("test_") + "_"
        fits: dict[int, set[str]] = defaultdict(set)
        for source in sources:
            if room(source) == Path(test).parent.as_posix():
                for name in names(source):
                    if called.startswith(f"{name}_"):
                        fits[len(name)].add(source)
        for source in fits[max(fits, default=0)]:
            owned[source].add(test)
    return owned


def files(root: Path, pattern: str) -> list[str]:
    return [path.relative_to(root).as_posix() for path in sorted(root.rglob(pattern))]


def test_each_file_with_logic_has_its_tests() -> None:
    # The bindings are held to Flux's own as a whole, by `tests/compat`.
    sources = [source for source in files(SOURCE, "*.py") if not source.startswith("compat/")]
    tests = files(TESTS, "test_*.py")
    owned = owners(sources, tests)
    untested = {
        source
        for source in sources
        if not owned[source] and statements(ast.parse((SOURCE / source).read_text())) >= LOGIC
    }
    elsewhere = {f"{folder}{name}": test for folder, table in ELSEWHERE.items() for name, test in table.items()}
    assert sorted(untested - elsewhere.keys()) == [], "these have neither tests of their own nor a line in ELSEWHERE"
    assert sorted(elsewhere.keys() - untested) == [], "these are gone, or have tests of their own now"
    assert sorted(set(elsewhere.values()) - set(tests)) == [], "there are no such tests"


def test_no_two_test_files_have_one_name() -> None:
    names = [Path(test).name for test in files(TESTS, "test_*.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


def test_a_name_belongs_to_the_longest_that_fits() -> None:
    sources = ["graph/pool.py", "graph/pool_size.py", "graph/service.py", "kube/pods.py"]
    tests = [
        "graph/test_pool_size.py",
        "graph/test_pool_grows.py",
        "graph/test_graph.py",
        "kube_unit/test_kube_pods.py",
    ]
    assert owners(sources, tests) == {
        "graph/pool.py": {"graph/test_pool_grows.py"},
        "graph/pool_size.py": {"graph/test_pool_size.py"},
        "graph/service.py": {"graph/test_graph.py"},
        "kube/pods.py": {"kube_unit/test_kube_pods.py"},
    }
