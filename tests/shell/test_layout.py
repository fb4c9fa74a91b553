"""What a job's tasks may use of a node that has more slots than tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.shell.layout import LayoutError, lay_out, task_map
from headrace.spec import jobspec_build

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
