"""Which processors a task may use: R's logical cores as processors of this machine, per task where asked.

Nothing is bound when the container's CPU quota is smaller than its affinity mask: R then counts fewer cores than there
are processors, and pinning would put every container on the same first ones.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from ..spec.idset import Idset


@functools.lru_cache(maxsize=1)
def core_processors() -> tuple[frozenset[int], ...]:
    """The allowed processors of each physical core, in the order in which R numbers cores."""
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
    """All processors this agent may use."""
    return frozenset().union(*core_processors())


def job_processors(cores: Idset) -> frozenset[int]:
    """The processors of R's `cores`; all of them when R names cores this machine does not show."""
    return _processors(cores.bits)


@functools.lru_cache(maxsize=256)
def _processors(cores: int) -> frozenset[int]:
    known = core_processors()
    if not cores or cores.bit_length() > len(known):
        return everything()
    return frozenset().union(*(cpus for core, cpus in enumerate(known) if cores >> core & 1))


def per_task(cores: Idset, ntasks: int, option: Any) -> list[frozenset[int]]:
    """Processors for each of `ntasks` local tasks under `-o cpu-affinity=OPTION`. Raises ValueError."""
    text = str(option) if option is not None else "on"
    words = [word for word in text.split(",") if word not in ("verbose", "dry-run")]
    mode = ",".join(words) or "on"
    if mode in ("off", "0", "false"):
        return [everything()] * ntasks
    mine = job_processors(cores)
    if mode in ("on", "1", "true", "True"):
        return [mine] * ntasks
    if mode == "per-task":
        ids = list(cores)
        if len(ids) < ntasks or not ids or cores.last >= len(core_processors()):
            return [mine] * ntasks
        share, extra = divmod(len(ids), ntasks)
        out, start = [], 0
        for index in range(ntasks):
            size = share + (index < extra)
            out.append(job_processors(Idset(ids[start : start + size])))
            start += size
        return out
    if mode.startswith("map:"):
        maps = mode[4:].split(";")
        sets = [frozenset(Idset.parse(part)) for part in maps]
        return [sets[min(index, len(sets) - 1)] for index in range(ntasks)]
    raise ValueError(f"cpu-affinity={text}: use on, off, per-task or map:LIST")


def gpus_per_task(gpus: Idset, ntasks: int, option: Any) -> list[str | None]:
    """CUDA_VISIBLE_DEVICES of each local task: "-1" hides all when the job has none, None leaves it alone."""
    mode = str(option) if option is not None else "on"
    if mode == "off":
        return [None] * ntasks
    ids = [str(gpu) for gpu in gpus]
    if not ids:
        return ["-1"] * ntasks
    if mode == "per-task" and len(ids) >= ntasks:
        share = len(ids) // ntasks
        return [",".join(ids[index * share : (index + 1) * share]) for index in range(ntasks)]
    return [",".join(ids)] * ntasks
