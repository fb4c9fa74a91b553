"""The recorded runs of resource-query come out equal, byte for byte, except for a reviewed list.

A run is equal when its exit status and its `-t` file (or standard output, where there is none) are.
"""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.graph import resource_query

DATA = Path(__file__).parent.parent / "data" / "resource-query"
GROUPS = sorted(path.name.removesuffix(".jsonl.xz") for path in (DATA / "cases").iterdir())


def without_node_numbers(text: str) -> str:
    return re.sub(r"node\d+", "node", text)


def without_placement(text: str) -> str:
    return re.sub(r"\n *-+rack\d+\S+", "", without_node_numbers(text))


# Runs whose choice among equals is not ours, and what is compared instead.
NOT_EQUAL: dict[tuple[str, int], Callable[[str], str]] = {
    # 72 slots, two each of the same score: the recorded choice is that of an unstable sort of more than 16 elements.
    ("t3038-resource-flexible", 7): without_node_numbers,
    # Counts of 2 to 64 by ^4 are 2 and 16. The recorded search is over at 16, finds them in a rack nobody has used,
    # and comes to the racks with two nodes left at the end; so it tries racks with most free cores first. Runs 10 and
    # 11 of the group, whose jobs share their nodes, stay in a rack that has fewer free cores than all others, and what
    # tells the two apart is not known. Sizes and moments are equal.
    ("t3009-resource-minmax", 14): without_placement,
}


def runs(group: str) -> list[dict[str, Any]]:
    with lzma.open(DATA / "cases" / f"{group}.jsonl.xz", "rt") as file:
        return [json.loads(line) for line in file]


CASES = [(group, i) for group in GROUPS for i in range(len(runs(group)))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("resource-query")
    shutil.copytree(DATA / "data", path / "data")
    return path


_LOADED: dict[str, list[dict[str, Any]]] = {}


def run(case: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    """The exit status of a run, what it should have written and what it wrote."""
    for name, text in case["files"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    argv = case["argv"]
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.chdir(folder)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        rc = resource_query.main(argv, io.StringIO(case["stdin"]))
        if case["test_output"] is None:
            return rc, case["stdout"], out.getvalue()
        return rc, case["test_output"], Path(argv[argv.index("-t") + 1]).read_text()


@pytest.mark.parametrize(("group", "index"), CASES, ids=[f"{group}-{i}" for group, i in CASES])
def test_recorded_run_comes_out_equal(group: str, index: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = _LOADED.setdefault(group, runs(group))[index]
    rc, expected, written = run(case, folder, monkeypatch)
    assert rc == case["rc"]
    reviewed = NOT_EQUAL.get((group, index))
    if reviewed is None:
        assert written == expected
    else:
        assert written != expected, "this run has become equal: take it off the list"
        assert reviewed(written) == reviewed(expected)
