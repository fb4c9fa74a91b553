"""Machines built out of files: what discovery counts in each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.broker import discovery
from headrace.engine.broker.discovery import discover


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def smt(cores: int, packages: int = 1) -> dict[str, str]:
    """A machine with two threads a core, the second threads numbered after all first ones, as Linux does."""
    files = {"proc/meminfo": "MemTotal:       16000000 kB"}
    for cpu in range(2 * cores):
        core = cpu % cores
        folder = f"sys/devices/system/cpu/cpu{cpu}/topology/"
        files[folder + "physical_package_id"] = str(core * packages // cores)
        files[folder + "core_id"] = str(core % (cores // packages))
        files[folder + "thread_siblings_list"] = f"{core},{core + cores}"
    return files


def test_two_threads_are_one_core(tmp_path: Path) -> None:
    found = discover(machine(tmp_path, smt(4)), range(8))
    assert str(found.cores) == "0-3"
    assert found.core_cpus == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert found.memory == 16_000_000 * 1024


def test_without_topology_files_each_cpu_is_a_core(tmp_path: Path) -> None:
    assert str(discover(tmp_path, {0, 1, 5}).cores) == "0-2"


def test_cores_of_two_packages_may_share_their_ids(tmp_path: Path) -> None:
    files = {name: text for name, text in smt(4, packages=2).items() if "siblings" not in name}
    found = discover(machine(tmp_path, files), range(8))
    assert found.core_cpus == ((0, 4), (1, 5), (2, 6), (3, 7))


def test_the_affinity_mask_bounds_the_cores_which_are_numbered_anew(tmp_path: Path) -> None:
    found = discover(machine(tmp_path, smt(4)), {2, 6, 7})
    assert (str(found.cores), found.core_cpus) == ("0-1", ((2, 6), (7,)))


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("50000 100000", "0"),
        ("100000 100000", "0"),
        ("150000 100000", "0"),
        ("250000 100000", "0-1"),
        ("max 100000", "0-3"),
        ("junk", "0-3"),
    ],
)
def test_a_cpu_quota_counts_whole_cores_but_at_least_one(tmp_path: Path, quota: str, cores: str) -> None:
    files = {**smt(4), "proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": quota}
    assert str(discover(machine(tmp_path, files), range(8)).cores) == cores


def test_every_group_up_to_the_root_counts_with_version_2(tmp_path: Path) -> None:
    files = {
        **smt(8),
        "proc/self/cgroup": "0::/kubepods/pod1/box",
        "sys/fs/cgroup/kubepods/pod1/box/cpu.max": "max 100000",
        "sys/fs/cgroup/kubepods/pod1/cpu.max": "300000 100000",
        "sys/fs/cgroup/kubepods/pod1/memory.max": "1000000000",
        "sys/fs/cgroup/kubepods/pod1/box/memory.max": "max",
        "sys/fs/cgroup/kubepods/cpuset.cpus.effective": "0-4,8-12",
    }
    found = discover(machine(tmp_path, files), range(16))
    assert (str(found.cores), found.memory) == ("0-2", 1_000_000_000)
    assert found.core_cpus == ((0, 8), (1, 9), (2, 10))


def test_version_1_controllers_lie_in_folders_of_their_own(tmp_path: Path) -> None:
    files = {
        **smt(4),
        "proc/self/cgroup": "11:cpu,cpuacct:/docker/1\n10:cpuset:/docker/1\n9:memory:/docker/1\n1:name=systemd:/x",
        "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us": "200000",
        "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/cpuset/docker/1/cpuset.cpus": "1-3,5-7",
        "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "2000000000",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    }
    found = discover(machine(tmp_path, files), range(8))
    assert (found.core_cpus, found.memory) == (((1, 5), (2, 6)), 2_000_000_000)


def test_a_group_path_of_the_host_falls_back_to_what_is_mounted(tmp_path: Path) -> None:
    files = {
        **smt(4),
        "proc/self/cgroup": "4:cpu,cpuacct:/kubepods/unseen/here",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "100000",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }
    assert str(discover(machine(tmp_path, files), range(8)).cores) == "0"


def test_an_unlimited_version_1_quota_is_none(tmp_path: Path) -> None:
    files = {**smt(4), "proc/self/cgroup": "4:cpu:/", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"}
    assert str(discover(machine(tmp_path, files), range(8)).cores) == "0-3"


def test_gpus_are_counted_by_the_devices_we_could_open(tmp_path: Path) -> None:
    nodes = "sys/class/kfd/kfd/topology/nodes/"
    files = {
        "dev/nvidia0": "",
        "dev/nvidia1": "",
        "dev/nvidiactl": "",
        "dev/nvidia-uvm": "",
        "dev/kfd": "",
        "dev/dri/renderD128": "",
        nodes + "0/properties": "cpu_cores_count 8\ndrm_render_minor 0",
        nodes + "1/properties": "simd_count 4\ndrm_render_minor 128",
        nodes + "2/properties": "simd_count 4\ndrm_render_minor 129",
    }
    assert str(discover(machine(tmp_path, files), {0}).gpus) == "0-2"


def test_this_machine_has_at_least_a_core_and_no_more_than_its_mask() -> None:
    found = discover()
    assert 1 <= len(found.cores) == len(found.core_cpus)
    assert found.memory > 0


def test_a_forked_process_takes_what_was_found_before_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["before", "after", "later"])
    monkeypatch.setattr(discovery, "discover", lambda: next(names))
    discovery.discover_before_fork()
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writer, f"{discovery.discover_after_fork()} {discovery.discover_after_fork()}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reader, 100) == b"before after"
    assert discovery.discover_after_fork() == "after", "what this process found itself is not inherited"
    os.close(reader)
    os.close(writer)


@given(st.sets(st.integers(0, 63), min_size=1), st.integers(1, 10_000_000))
def test_cores_are_never_more_than_mask_or_quota_allow(
    tmp_path_factory: pytest.TempPathFactory, mask: set[int], quota: int
) -> None:
    root = tmp_path_factory.mktemp("machine")
    machine(root, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": f"{quota} 100000"})
    found = discover(root, mask)
    assert len(found.cores) == min(len(mask), max(1, quota // 100000))
    assert {cpu for cpus in found.core_cpus for cpu in cpus} <= mask


def test_the_cpus_that_could_be_bound_to_are_told_and_the_binding_stays() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert discovery.bindable_cpus() >= before
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        os.sched_setaffinity(0, before)
