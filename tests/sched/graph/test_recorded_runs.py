"""The recorded runs of resource-query come out equal, byte for byte, except for a reviewed list.

A run is equal when its exit status and its `-t` file (or standard output, where there is none) are, but for the time
that loading took, and the counts of vertices that Fluxion visits to cancel a job.
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

from headrace.sched.graph import resource_query

DATA = Path(__file__).parents[2] / "data" / "resource-query"
GROUPS = sorted(path.name.removesuffix(".jsonl.xz") for path in (DATA / "cases").iterdir())


def without_node_numbers(text: str) -> str:
    return re.sub(r"node\d+", "node", text)


def without_what_is_left_of_job_2(text: str) -> str:
    left = " {6}------rack0.*\n {6}------rack1.*\n {6}---power0.*\n(?=INFO: =+\nINFO: EXPRESSION=.jobid-tag=2)"
    return re.sub(r"(INFO: =+\n)+", "INFO:\n", re.sub(left, "INFO: =\n", text))


def without_who_got_which(text: str) -> str:
    """How much of each type each job got, and what all jobs got together."""
    lines, every = [], []
    for line in text.splitlines():
        if line.startswith("{"):
            vertices = [vertex["metadata"] for vertex in json.loads(line)["graph"]["nodes"]]
            every += [str(sorted(vertex["paths"].items())) for vertex in vertices]
            line = str(sorted((vertex["type"], vertex.get("size", 1)) for vertex in vertices))
        lines.append(line)
    return "\n".join(lines + sorted(every))


def comparable(text: str) -> str:
    text = re.sub(r"^INFO: (?:PARTIAL )?CANCEL (PRE|POST)ORDER COUNT=.*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"(?<=^INFO: Graph Load Time: ).*", "", text, flags=re.MULTILINE)


# Runs whose choice among equals is not ours, and what is compared instead.
NOT_EQUAL: dict[tuple[str, int], Callable[[str], str]] = {
    # 72 slots, two each of the same score: the recorded choice is that of an unstable sort of more than 16 elements.
    ("t3038-resource-flexible", 7): without_node_numbers,
    # Of more than 16 equal candidates, each job gets one that the other gets in the recording: the same unstable sort.
    ("t3023-resource-update2", 0): without_who_got_which,
    # A job that gave back all it held, of types that are not counted (`-p`), is over here; in Fluxion its mark stays
    # on the vertices above until it is cancelled.
    ("t3008-resource-cancel", 4): without_what_is_left_of_job_2,
}


def runs(group: str) -> list[dict[str, Any]]:
    with lzma.open(DATA / "cases" / f"{group}.jsonl.xz", "rt") as file:
        return [json.loads(line) for line in file]


CASES = [(group, i) for group in GROUPS for i in range(len(runs(group)))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("resource-query")
    shutil.copytree(DATA / "data", path / "data")
    for packed in path.rglob("*.xz"):
        packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
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
            return rc, comparable(case["stdout"]), comparable(out.getvalue())
        written = Path(argv[argv.index("-t") + 1]).read_text()
        return rc, comparable(case["test_output"]), comparable(written)


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
