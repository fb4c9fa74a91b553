"""CPU and GPU affinity of tasks: maps the cores in R to processors of this machine.

If the CPU quota of a container is smaller than its affinity mask, R has fewer cores than the machine. Tasks are not
bound then, unless a map names their processors, because otherwise the tasks of all containers of the machine would
share the same first processors.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.engine.process import cgroups
from headrace.formats.spec.idset import Idset

_MODES = "on, off, per-task or map:LIST"


@functools.lru_cache(maxsize=1)
def core_processors() -> tuple[frozenset[int], ...]:
    """The allowed processors of each physical core, in R's order of cores."""
    allowed = os.sched_getaffinity(0)
    cores: dict[tuple[int, int], set[int]] = {}
    for cpu in sorted(allowed):
        base = f"/sys/devices/system/cpu/cpu{cpu}/topology"
        try:
            with open(f"{base}/physical_package_id") as package, open(f"{base}/core_id") as core:
                key = (int(package.read()), int(core.read()))
        except (OSError, ValueError):
            key = (0, cpu)
        cores.setdefault(key, set()).add(cpu)
    return tuple(frozenset(cpus) for _key, cpus in sorted(cores.items(), key=lambda item: min(item[1])))


@functools.lru_cache(maxsize=1)
def everything() -> frozenset[int]:
    """All processors that this agent may use."""
    return frozenset().union(*core_processors())


@functools.lru_cache(maxsize=1)
def is_quota_limited() -> bool:
    """True if a CPU quota allows fewer cores than the affinity mask has."""
    quota = cgroups.limits().cpus
    return quota is not None and int(quota) < len(core_processors())


def job_processors(cores: Idset) -> frozenset[int]:
    """The processors of R's `cores`; all processors if `cores` do not correspond to cores of this machine."""
    return _processors(cores.bits)


def _are_of_this_machine(cores: Idset) -> bool:
    return bool(cores) and cores.last < len(core_processors()) and not is_quota_limited()


@functools.lru_cache(maxsize=256)
def _processors(cores: int) -> frozenset[int]:
    if not _are_of_this_machine(Idset.from_bits(cores)):
        return everything()
    return frozenset().union(*(cpus for core, cpus in enumerate(core_processors()) if cores >> core & 1))


def per_task(cores: Idset, ranks: Sequence[int], option: Any) -> tuple[list[frozenset[int]], list[str]]:
    """The processors of each of the local tasks `ranks` for `-o cpu-affinity=OPTION`, and log messages.

    Raises ValueError.
    """
    if not ranks:
        return [], []
    mode, words = _cpu_mode(option)
    sets = _cpu_sets(mode, job_processors(cores), cores, len(ranks))
    notices: list[str] = []
    if mode == "per-task" and 0 < len(cores) < len(ranks):
        notices.append(f"{len(ranks)} tasks share {_count(len(cores))}: none is bound to one of its own")
    if mode != "off" and words:
        notices += [f"task {rank}: cpus: {Idset(cpus)}" for rank, cpus in zip(ranks, sets)]
    return ([everything()] * len(ranks) if "dry-run" in words else sets), notices


def _count(cores: int) -> str:
    return f"{cores} core{'s' if cores > 1 else ''}"


def wrong(options: Mapping[str, Any]) -> list[str]:
    """Warnings about unknown values of the two affinity options. Such a value is treated as "on"."""
    found = []
    cpus, gpus = options.get("cpu-affinity"), options.get("gpu-affinity")
    if not _is_mode(_cpu_mode(cpus)[0]):
        found.append(f"cpu-affinity: invalid option: {cpus}: it is {_MODES}, with verbose, or dry-run, before it")
    if gpus is not None and not _is_mode(gpus):
        found.append(f"gpu-affinity: Failed to get gpu-affinity shell option: {gpus}: it is {_MODES}")
    return found


def _cpu_mode(option: Any) -> tuple[str, set[str]]:
    """The mode in the option, and which of the words "verbose" and "dry-run" precede it."""
    mode = str(option) if option is not None else "on"
    words = set()
    while mode.startswith(("verbose", "dry-run")):
        word, _, mode = mode.partition(",")
        words.add(word)
    return mode or "on", words


def _is_mode(mode: Any) -> bool:
    return mode in ("on", "off", "per-task") or (isinstance(mode, str) and mode.startswith("map:"))


def _cpu_sets(mode: str, mine: frozenset[int], cores: Idset, ntasks: int) -> list[frozenset[int]]:
    if mode == "off":
        return [everything()] * ntasks
    if mode == "per-task":
        ids = list(cores)
        if len(ids) < ntasks or not _are_of_this_machine(cores):
            return [mine] * ntasks
        share, extra = divmod(len(ids), ntasks)
        out, start = [], 0
        for index in range(ntasks):
            size = share + (index < extra)
            out.append(job_processors(Idset(ids[start : start + size])))
            start += size
        return out
    if mode.startswith("map:"):
        sets = [_cpu_set(part) for part in mode[4:].split(";")]
        return [sets[min(index, len(sets) - 1)] for index in range(ntasks)]
    return [mine] * ntasks


def _cpu_set(text: str) -> frozenset[int]:
    """The processors in one part of a map: a list of processors, or a mask. Raises ValueError.

    A mask has hwloc's format: 32-bit words in hexadecimal, where "" means 0.
    """
    try:
        if text.startswith("0x"):
            mask = 0
            for word in text.split(","):
                mask = mask << 32 | int(word or "0", 16)
            cpus = frozenset(bit for bit in range(mask.bit_length()) if mask >> bit & 1)
        else:
            cpus = frozenset(Idset.parse(text))
    except ValueError:
        cpus = frozenset()
    if not cpus:
        raise ValueError(f"cpu-affinity: invalid cpuset '{text}'")
    # As in Flux, a user may name processors that are not the job's. Processors that the node does not have are ignored.
    if not cpus & everything():
        raise ValueError(f"cpu-affinity: no processor of cpuset {text} is on this node")
    return cpus & everything()


def gpus_per_task(gpus: Idset, ntasks: int, option: Any) -> list[str | None]:
    """CUDA_VISIBLE_DEVICES of each local task. Raises ValueError.

    The value "-1" hides all GPUs from a job without GPUs. None means that the variable is not changed.
    """
    if not ntasks:
        return []
    mode = option if _is_mode(option) else "on"
    if mode == "off":
        return [None] * ntasks
    if mode.startswith("map:"):
        maps = [_gpu_set(part) for part in mode[4:].split(";")]
        return [maps[min(index, len(maps) - 1)] for index in range(ntasks)]
    if not gpus:
        return ["-1"] * ntasks
    ids = [str(gpu) for gpu in gpus]
    if mode == "per-task" and len(ids) >= ntasks:
        share = len(ids) // ntasks
        return [",".join(ids[index * share : (index + 1) * share]) for index in range(ntasks)]
    return [",".join(ids)] * ntasks


def _gpu_set(text: str) -> str:
    try:
        return ",".join(str(gpu) for gpu in Idset.parse(text))
    except ValueError:
        raise ValueError(f"gpu-affinity: invalid list '{text}'") from None
