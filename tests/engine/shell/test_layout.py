"""What a job's tasks may use of a node that has more slots than tasks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.shell.layout import LayoutError, lay_out, task_map
from headrace.formats.spec import jobspec_build

HOSTS = ["a", "b"]


def layout(nodeid: int, jobspec: dict[str, Any], cores: str = "0-3", gpus: str = "") -> Any:
    children = {"core": cores, **({"gpu": gpus} if gpus else {})}
    r = {"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": children}]}}
    return lay_out(jobspec, r, HOSTS, nodeid)


def command(ntasks: int, **more: Any) -> dict[str, Any]:
    return jobspec_build.from_command(["true"], ntasks, num_nodes=2, environment={}, cwd="/", **more)


def test_a_slot_without_a_task_is_left_out_and_named() -> None:
    spec = command(3, cores_per_task=2)
    assert str(layout(0, spec).mine.cores) == "0-3"
    assert layout(0, spec).adjusted == []
    assert str(layout(1, spec).mine.cores) == "0-1"
    assert layout(1, spec).adjusted == ["adjusted cores from 0-3 to 0-1"]


def test_gpus_are_left_out_with_their_slot() -> None:
    placed = layout(1, command(3, gpus_per_task=1), cores="0-1", gpus="2-3")
    assert placed.adjusted == ["adjusted cores from 0-1 to 0", "adjusted gpus from 2-3 to 2"]
    assert str(placed.mine.gpus) == "2"


@pytest.mark.parametrize(
    "spec", [command(4, cores_per_task=2), command(3, cores_per_task=2, exclusive=True)], ids=["full", "exclusive"]
)
def test_other_jobs_have_all_that_they_got(spec: dict[str, Any]) -> None:
    assert layout(1, spec).adjusted == []
    assert str(layout(1, spec).mine.cores) == "0-3"


def test_of_a_range_of_slots_there_are_as_many_as_the_resources_hold() -> None:
    slot = {"type": "slot", "count": {"min": 1, "max": 64}, "label": "task", "with": [{"type": "core", "count": 2}]}
    for resources in ([slot], [{"type": "node", "count": 2, "with": [slot]}]):
        assert layout(0, {**command(2), "resources": resources}).counts == [2, 2]


def test_a_hostfile_is_relative_to_the_jobs_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "hosts").write_text("b\na,a\n")
    monkeypatch.chdir(tmp_path)
    expected = [[1, 2], [0, 3]]
    for path, where in (("hosts", str(folder)), (f"{folder}/hosts", "/nosuch")):
        made = task_map([2, 2], f"hostfile:{path}", ["a", "b"], where)
        assert [list(made.node_tasks(node)) for node in range(2)] == expected
    with pytest.raises(LayoutError, match="No such file"):
        task_map([2, 2], "hostfile:hosts", ["a", "b"], str(tmp_path))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (os.mkfifo, "it is not a regular file"),
        (os.mkdir, "it is not a regular file"),
        (lambda path: Path(path).write_bytes(b"a\n" * (9 << 20)), "it has more than 16 MiB"),
        (lambda path: Path(path).write_text("a[0-1048574]\nb,b\n"), "more than 1048576 hosts in it"),
        (lambda path: Path(path).write_text("c\n"), "c is not a host of this job"),
        (lambda path: Path(path).write_text("\n"), "no hosts in it"),
    ],
    ids=["fifo", "folder", "size", "hosts", "other", "empty"],
)
def test_a_hostfile_that_is_none_is_refused_at_once(tmp_path: Path, make: Callable[[str], Any], why: str) -> None:
    make(str(tmp_path / "hosts"))
    with pytest.raises(LayoutError, match=f"taskmap=hostfile:hosts: {why}"):
        task_map([2, 2], "hostfile:hosts", ["a", "b"], str(tmp_path))


def test_tasks_beyond_the_slots_are_dealt_out_to_the_nodes() -> None:
    for total, counts in ((3, [2, 1]), (4, [2, 2]), (7, [4, 3]), (2000001, [1000001, 1000000])):
        spec = command(4)
        spec["tasks"][0]["count"] = {"total": total}
        spec["resources"] = [{"type": "slot", "count": 4, "label": "task", "with": [{"type": "core", "count": 2}]}]
        assert layout(0, spec).counts == counts


@pytest.mark.parametrize(
    ("total", "why"),
    [
        (1 << 22, "a node has 2097152 tasks of the job, no more than 1048576 are possible"),
        ((1 << 31) - 1, "the job has 2147483647 tasks, no more than 16777216 are possible"),
        (1 << 40, "the job has 1099511627776 tasks"),
    ],
)
def test_more_tasks_than_can_run_are_refused_at_once(total: int, why: str) -> None:
    spec = command(4)
    spec["tasks"][0]["count"] = {"total": total}
    with pytest.raises(LayoutError, match=why):
        layout(0, spec)


def test_a_map_that_puts_more_tasks_on_a_node_than_can_run_is_refused() -> None:
    spec = command(2)
    spec["attributes"]["system"]["shell"] = {"options": {"taskmap": "manual:[[0,1,1048577,1],[1,1,1048575,1]]"}}
    spec["tasks"][0]["count"] = {"total": 1 << 21}
    with pytest.raises(LayoutError, match="a node has 1048577 tasks"):
        layout(0, spec)
