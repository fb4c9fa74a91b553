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

from headrace.engine.process import cgroups
from headrace.formats.spec.idset import Idset

_NVIDIA_DEVICE = re.compile(r"nvidia(\d+)$")
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
    limits = cgroups.limits(base)
    for allowed in limits.cpusets:
        if cpus & allowed:
            cpus &= allowed
    cores = physical_cores(base, cpus)
    if limits.cpus is not None:
        cores = cores[: max(1, int(limits.cpus + 1e-6))]
    return NodeResources(
        cores=Idset(range(len(cores))),
        gpus=Idset(range(_count_gpus(base))),
        memory=_total_memory(base) if limits.memory is None else min(_total_memory(base), limits.memory),
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
        package, core = cgroups.read(f"{topology}/physical_package_id"), cgroups.read(f"{topology}/core_id")
        siblings = cgroups.read(f"{topology}/core_cpus_list") or cgroups.read(f"{topology}/thread_siblings_list")
        if siblings:
            key = (cgroups.number(package, 0), min(cgroups.cpu_list(siblings) or {cpu}))
        elif package is not None and core is not None:
            key = (cgroups.number(package, 0), cgroups.number(core, cpu))
        else:
            key = (0, cpu)
        cores.setdefault(key, []).append(cpu)
    return [tuple(cores[key]) for key in sorted(cores)]


def _total_memory(root: str) -> int:
    match = re.search(r"^MemTotal:\s+(\d+) kB", cgroups.read(f"{root}/proc/meminfo") or "", re.MULTILINE)
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
        match = re.search(r"^drm_render_minor (\d+)", cgroups.read(f"{nodes}/{name}/properties") or "", re.MULTILINE)
        if match and int(match[1]) and os.path.exists(f"{root}/dev/dri/renderD{match[1]}"):
            count += 1
    return count


def _count_intel(root: str) -> int:
    devices = f"{root}/sys/class/drm"
    count = 0
    for name in _names(devices):
        intel = name.startswith("renderD") and cgroups.read(f"{devices}/{name}/device/vendor") == _INTEL_VENDOR
        if intel and (cgroups.read(f"{devices}/{name}/device/class") or "").startswith(_DATA_CENTRE_GPU_CLASS):
            count += os.path.exists(f"{root}/dev/dri/{name}")
    return count


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
