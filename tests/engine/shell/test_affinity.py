"""Processors and GPUs of tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.process import cgroups
from headrace.engine.shell import affinity
from headrace.engine.shell.affinity import everything, gpus_per_task, job_processors, per_task
from headrace.formats.spec.idset import Idset


def test_more_tasks_than_cores_are_told_to_be_unbound() -> None:
    assert per_task(Idset([0]), [0, 1], "per-task")[1] == ["2 tasks share 1 core: none is bound to one of its own"]
    assert per_task(Idset([0]), [0], "per-task")[1] == per_task(Idset([0]), [0, 1], "on")[1] == []


def test_processors_are_mapped_by_list_or_mask() -> None:
    cpus = sorted(job_processors(Idset([0])))
    mask = sum(1 << cpu for cpu in cpus)
    text = str(Idset(cpus))
    assert per_task(Idset([0]), [0, 1], f"map:{text}") == ([frozenset(cpus)] * 2, [])
    assert per_task(Idset([0]), [0], f"map:{mask:#x}")[0] == [frozenset(cpus)]
    cpu = max(everything())
    assert per_task(Idset([0]), [0], f"map:{cpu},9999")[0] == [frozenset([cpu])]
    with pytest.raises(ValueError, match="no processor of cpuset 9999 is on this node"):
        per_task(Idset([0]), [0], "map:9999")


def test_a_job_is_told_where_its_tasks_run() -> None:
    cpus = job_processors(Idset([0]))
    told = [f"task {rank}: cpus: {Idset(cpus)}" for rank in (4, 5)]
    assert per_task(Idset([0]), [4, 5], "verbose,on") == ([cpus] * 2, told)
    assert per_task(Idset([0]), [4, 5], "dry-run") == ([everything()] * 2, told)
    assert per_task(Idset([0]), [4], "odd") == ([cpus], [])


def test_a_value_that_nobody_knows_stands_for_on_and_is_told() -> None:
    modes = "on, off, per-task or map:LIST"
    for value in ("odd", 1, [1], {"verbose": True}, "verbose,odd"):
        cpus, gpus = affinity.wrong({"cpu-affinity": value, "gpu-affinity": value})
        assert cpus.startswith(f"cpu-affinity: invalid option: {value}: it is {modes}")
        assert gpus == f"gpu-affinity: Failed to get gpu-affinity shell option: {value}: it is {modes}"
    for value in ("on", "off", "per-task", "map:0"):
        assert affinity.wrong({"cpu-affinity": value, "gpu-affinity": value}) == []
    assert affinity.wrong({"cpu-affinity": "verbose,dry-run,per-task"}) == affinity.wrong({}) == []


def test_gpus_of_tasks() -> None:
    four = Idset(range(4))
    assert gpus_per_task(four, 2, "per-task") == ["0,1", "2,3"]
    assert gpus_per_task(four, 3, "map:1;2-3") == ["1", "2,3", "2,3"]
    assert gpus_per_task(Idset(), 1, None) == ["-1"]
    assert gpus_per_task(four, 1, [1]) == ["0,1,2,3"]


@pytest.mark.parametrize("option", [None, "per-task", "off", "map:0", "dry-run"])
def test_a_node_without_tasks_has_no_sets(option: str | None) -> None:
    assert per_task(Idset([0, 1]), [], option) == ([], [])
    assert gpus_per_task(Idset([0, 1]), 0, option) == []


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with eight cores of two processors each, without a CPU quota."""
    monkeypatch.setattr(cgroups, "limits", lambda: cgroups.Limits(None, [], None))
    cores = tuple(frozenset({core, core + 8}) for core in range(8))
    monkeypatch.setattr(affinity, "core_processors", lambda: cores)
    monkeypatch.setattr(affinity, "everything", lambda: frozenset(range(16)))
    _forget_machine()
    yield
    _forget_machine()


def _forget_machine() -> None:
    affinity.is_quota_limited.cache_clear()
    affinity._processors.cache_clear()


@pytest.mark.usefixtures("eight")
@given(st.sets(st.integers(0, 7), min_size=1), st.integers(1, 10))
def test_tasks_share_the_jobs_cores_evenly_and_each_core_is_one_tasks(ids: set[int], ntasks: int) -> None:
    cores = Idset(ids)
    sets, _ = per_task(cores, range(ntasks), "per-task")
    if len(ids) < ntasks:
        assert sets == [job_processors(cores)] * ntasks
    else:
        sizes = [len(cpus) for cpus in sets]
        assert sum(sizes) == len(frozenset().union(*sets)) == 2 * len(ids)
        assert max(sizes) - min(sizes) in (0, 2)


@pytest.mark.usefixtures("eight")
def test_cores_that_the_machine_does_not_show_leave_tasks_where_they_are() -> None:
    assert per_task(Idset([8]), [0], None) == ([frozenset(range(16))], [])
    assert per_task(Idset(range(9)), [0, 1], "per-task")[0] == [frozenset(range(16))] * 2


@pytest.mark.usefixtures("eight")
def test_a_mask_has_words_of_32_bits_and_nothing_for_those_that_are_0() -> None:
    assert per_task(Idset([0]), [0, 1, 2], "map:0x1,,0x3;0x00000100;15")[0] == [
        frozenset({0, 1}),
        frozenset({8}),
        frozenset({15}),
    ]
    for text in ("0x", "0x0", "0xg", "", "3-1"):
        with pytest.raises(ValueError, match=f"invalid cpuset '{text}'"):
            per_task(Idset([0]), [0], f"map:{text}")


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(("quota", "is_bound"), [(None, True), (8.0, True), (7.5, False), (2.0, False)])
def test_a_cpu_quota_below_the_machine_leaves_tasks_unbound(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, is_bound: bool
) -> None:
    monkeypatch.setattr(cgroups, "limits", lambda: cgroups.Limits(quota, [], None))
    _forget_machine()
    assert per_task(Idset([0]), [0], None)[0] == [frozenset({0, 8}) if is_bound else frozenset(range(16))]
    unbound = [frozenset(range(16))] * 2
    assert per_task(Idset([0, 1]), [0, 1], "per-task")[0] == (
        [frozenset({0, 8}), frozenset({1, 9})] if is_bound else unbound
    )
    assert per_task(Idset([0]), [0], "map:3")[0] == [frozenset({3})]
