"""Resources of one node: the cores, GPUs and memory that this process may use.

A batch system that counts the machine instead of its own share oversubscribes every container it runs in. So the count
starts from the affinity mask and is reduced by every cpuset, CPU quota and memory limit between our control group and
the root, for cgroup v1 and v2 alike. Cores are physical cores as hwloc and Flux count them: two hardware threads are
one core, and the allowed cores are numbered 0..n-1.

All files are read below a root path, so that tests can build a machine out of files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from headrace.formats.spec.idset import Idset

_NVIDIA_DEVICE = re.compile(r"nvidia(\d+)$")
_V1_UNLIMITED = 1 << 60  # cgroup v1 writes "no limit" as the largest page-aligned 63-bit number
_MOST_CPUS = 8192  # the highest CPU count of a Linux build; the kernel ignores absent CPUs
_INTEL_VENDOR = "0x8086"
_DATA_CENTRE_GPU_CLASS = "0x0380"  # PCI class of display controllers without a display output


# The pid of the process that ran `discover_before_fork`, and the result.
_inherited: tuple[int, NodeResources] | None = None


class NodeResources(NamedTuple):
    """Resources of one node.

    Core ids and GPU ids (each 0..n-1), memory in bytes, and the CPU numbers of each core.
    """

    cores: Idset
    gpus: Idset
    memory: int
    core_cpus: tuple[tuple[int, ...], ...]


def discover(root: str | os.PathLike[str] = "/", affinity: Iterable[int] | None = None) -> NodeResources:
    """Count the resources that this process may use.

    `affinity` is the set of allowed CPU numbers; None reads it from the kernel.
    """
    base = os.fspath(root)
    cpus = set(os.sched_getaffinity(0) if affinity is None else affinity)
    groups = _cgroup_folders(base)
    for folder in groups["cpuset"]:
        allowed = _cpuset(folder)
        if allowed and cpus & allowed:
            cpus &= allowed
    cores = physical_cores(base, cpus)
    quota = min((q for q in map(_cpu_quota, groups["cpu"]) if q is not None), default=None)
    if quota is not None:
        cores = cores[: max(1, int(quota + 1e-6))]
    limits = [limit for limit in map(_memory_limit, groups["memory"]) if limit is not None]
    return NodeResources(
        cores=Idset(range(len(cores))),
        gpus=Idset(range(_count_gpus(base))),
        memory=min([_total_memory(base), *limits]),
        core_cpus=tuple(cores),
    )


def discover_before_fork() -> None:
    """Discover resources for processes that will be forked from this one; see `discover_after_fork`."""
    global _inherited
    _inherited = (os.getpid(), discover())


def discover_after_fork() -> NodeResources:
    """Return the resources that the parent process discovered before the fork, or discover them.

    Only the first call returns the parent's result; later calls discover again. This spares each broker of one machine
    the time and 400 kB of memory for a discovery at its start.
    """
    global _inherited
    inherited, _inherited = _inherited, None
    if inherited is not None and inherited[0] != os.getpid():
        return inherited[1]
    return discover()


def bindable_cpus() -> set[int]:
    """The CPUs that this process can be bound to.

    Requests all CPUs: the kernel drops those outside the cpuset.
    """
    bound = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(_MOST_CPUS))
    try:
        return os.sched_getaffinity(0)
    finally:
        os.sched_setaffinity(0, bound)


def physical_cores(root: str, cpus: set[int]) -> list[tuple[int, ...]]:
    """The cores that `cpus` belong to, as tuples of CPU numbers, in hwloc's order."""
    cores: dict[tuple[int, int], list[int]] = {}
    for cpu in sorted(cpus):
        topology = f"{root}/sys/devices/system/cpu/cpu{cpu}/topology"
        package, core = _read(f"{topology}/physical_package_id"), _read(f"{topology}/core_id")
        siblings = _read(f"{topology}/core_cpus_list") or _read(f"{topology}/thread_siblings_list")
        if siblings:
            key = (_int(package, 0), min(_parse_cpus(siblings) or {cpu}))
        elif package is not None and core is not None:
            key = (_int(package, 0), _int(core, cpu))
        else:
            key = (0, cpu)
        cores.setdefault(key, []).append(cpu)
    return [tuple(cores[key]) for key in sorted(cores)]


def _cgroup_folders(root: str) -> dict[str, list[str]]:
    """The cgroup folders with limits on this process, by controller, innermost first."""
    mount = f"{root}/sys/fs/cgroup"
    folders: dict[str, list[str]] = {"cpu": [], "cpuset": [], "memory": []}
    for line in (_read(f"{root}/proc/self/cgroup") or "").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and not controllers:
            chain = _chain(mount, path) + _chain(f"{mount}/unified", path)
            for found in folders.values():
                found.extend(chain)
            continue
        for name in set(controllers.split(",")) & set(folders):
            together = f"{mount}/{controllers}"
            top = together if os.path.isdir(together) else f"{mount}/{name}"
            folders[name].extend(_chain(top, path))
    return folders


def _chain(top: str, path: str) -> list[str]:
    """The existing cgroup folders from a group up to the mount point.

    `..` in a path outside the cgroup namespace is ignored.
    """
    parts = [part for part in path.split("/") if part and part != ".."]
    chain = ["/".join([top, *parts[:depth]]) for depth in range(len(parts), -1, -1)]
    return [folder for folder in chain if os.path.isdir(folder)]


def _cpu_quota(folder: str) -> float | None:
    text = _read(f"{folder}/cpu.max")
    if text is not None:
        quota, _, period = text.partition(" ")
        if quota == "max":
            return None
    else:
        quota, period = _read(f"{folder}/cpu.cfs_quota_us") or "", _read(f"{folder}/cpu.cfs_period_us") or ""
    allowed, every = _int(quota, -1), _int(period, 100000)
    return allowed / every if allowed > 0 and every > 0 else None


def _cpuset(folder: str) -> set[int]:
    for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
        text = _read(f"{folder}/{name}")
        if text:
            return _parse_cpus(text)
    return set()


def _memory_limit(folder: str) -> int | None:
    text = _read(f"{folder}/memory.max") or _read(f"{folder}/memory.limit_in_bytes")
    limit = _int(text, -1)
    return limit if 0 < limit < _V1_UNLIMITED else None


def _total_memory(root: str) -> int:
    match = re.search(r"^MemTotal:\s+(\d+) kB", _read(f"{root}/proc/meminfo") or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


def _count_gpus(root: str) -> int:
    """Count the GPUs that this process could open.

    Counts device nodes, not PCI devices, so that a container sees only its share.
    """
    nvidia = sum(1 for name in _names(f"{root}/dev") if _NVIDIA_DEVICE.match(name))
    return nvidia + _count_amd(root) + _count_intel(root)


def _count_amd(root: str) -> int:
    if not os.path.exists(f"{root}/dev/kfd"):
        return 0
    nodes = f"{root}/sys/class/kfd/kfd/topology/nodes"
    count = 0
    for name in _names(nodes):
        match = re.search(r"^drm_render_minor (\d+)", _read(f"{nodes}/{name}/properties") or "", re.MULTILINE)
        if match and int(match[1]) and os.path.exists(f"{root}/dev/dri/renderD{match[1]}"):
            count += 1
    return count


def _count_intel(root: str) -> int:
    devices = f"{root}/sys/class/drm"
    count = 0
    for name in _names(devices):
        intel = name.startswith("renderD") and _read(f"{devices}/{name}/device/vendor") == _INTEL_VENDOR
        if intel and (_read(f"{devices}/{name}/device/class") or "").startswith(_DATA_CENTRE_GPU_CLASS):
            count += os.path.exists(f"{root}/dev/dri/{name}")
    return count


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _parse_cpus(text: str) -> set[int]:
    """Parse the kernel's CPU list, `0-3,8`; pieces that are not numbers are skipped."""
    cpus: set[int] = set()
    for piece in text.split(","):
        low, _, high = piece.strip().partition("-")
        if low.isdigit() and (not high or high.isdigit()):
            cpus.update(range(int(low), int(high or low) + 1))
    return cpus


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return None


def _int(text: str | None, default: int) -> int:
    try:
        return int(text or "")
    except ValueError:
        return default
