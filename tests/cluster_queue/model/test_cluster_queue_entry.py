"""A queued job has three frozen values and at most twelve fields of progress, and each field is written in one file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import cluster_queue
from headrace.cluster_queue.model.assignment import Assignment
from headrace.cluster_queue.model.demand import Demand
from headrace.cluster_queue.model.entry import Entry, Status

ROOT = Path(str(cluster_queue.__file__)).parent
# What tells a job from others is never written.
IDENTITY = ("uid", "workload", "jobid", "queue")
VALUES = {"demand": Demand, "assignment": Assignment, "status": Status}
MOST_PROGRESS = 12
MOST_LINES = 300
# Methods and functions that change the list or dict that they are called with.
CHANGES = ("append", "extend", "insert", "insort", "remove", "pop", "popitem", "clear", "update", "setdefault", "sort")


def stored(tree: ast.AST) -> Iterator[ast.expr]:
    """The expressions that a file stores into, deletes, or changes by a call."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield node
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute) and called.attr in CHANGES:
                yield called.value
            elif isinstance(called, ast.Name) and called.id in CHANGES:
                yield from node.args[:1]


def written(source: str, is_own: bool) -> set[str]:
    """The fields of jobs that a file writes, or writes something in; in the file of the class, by `self`."""
    found = set()
    for one in stored(ast.parse(source)):
        while isinstance(one, (ast.Attribute, ast.Subscript)):
            if isinstance(one, ast.Attribute) and one.attr in Entry.__struct_fields__:
                is_self = isinstance(one.value, ast.Name) and one.value.id == "self"
                if is_self == is_own:
                    found.add(one.attr)
            one = one.value
    return found


def writers() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in Entry.__struct_fields__}
    for path in sorted(ROOT.rglob("*.py")):
        for name in written(path.read_text(), path.name == "entry.py"):
            found[name].append(str(path.relative_to(ROOT)))
    return found


def test_each_field_of_a_queued_job_is_written_in_one_file() -> None:
    found = writers()
    assert {name: files for name, files in found.items() if len(files) != (0 if name in IDENTITY else 1)} == {}


def test_a_queued_job_has_three_frozen_values_and_at_most_twelve_fields_of_progress() -> None:
    assert all(kind.__struct_config__.frozen for kind in VALUES.values())
    progress = set(Entry.__struct_fields__) - {*IDENTITY, *VALUES}
    assert len(progress) <= MOST_PROGRESS, progress


@pytest.mark.parametrize(
    "source",
    [
        "entry.slots = []",
        "entry.slots, other = [], 1",
        "del entry.slots[0]",
        "entry.slots.append(1)",
        "x.entry.slots += y",
        "insort(entry.slots, 1)",
        "entry.slots[0].pod = 1",
        "for entry.slots in (): pass",
    ],
)
def test_a_second_writer_is_found(source: str) -> None:
    assert written(source, is_own=False) == {"slots"}
    assert written("print(entry.slots, entry.slots[0].pod); self.slots = 1", is_own=False) == set()


def test_no_class_of_the_cluster_queue_is_longer_than_a_few_screens() -> None:
    lines = {}
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                lines[node.name] = (node.end_lineno or 0) - node.lineno + 1
    assert {name: number for name, number in lines.items() if number > MOST_LINES} == {}
