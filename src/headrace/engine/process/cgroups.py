"""Limits of this process's control groups: CPU quota, allowed CPUs and memory, for cgroup v1 and v2.

All files are read below a root path, so that tests can build a machine out of files.
"""

from __future__ import annotations

import os
from typing import NamedTuple

_V1_UNLIMITED = 1 << 60  # cgroup v1 writes "no limit" as the largest page-aligned 63-bit number


class Limits(NamedTuple):
    """The limits on a process.

    `cpus` is the smallest CPU quota, in CPUs, and `memory` the smallest limit in bytes; None means no limit. `cpusets`
    are the allowed CPU numbers of each group that restricts them, innermost first.
    """

    cpus: float | None
    cpusets: list[set[int]]
    memory: int | None


def limits(root: str = "") -> Limits:
    """The limits of every control group from this process's own up to the mount point."""
    groups = _cgroup_folders(root)
    quotas = [quota for quota in map(_cpu_quota, groups["cpu"]) if quota is not None]
    memory = [limit for limit in map(_memory_limit, groups["memory"]) if limit is not None]
    cpusets = [cpus for cpus in map(_cpuset, groups["cpuset"]) if cpus]
    return Limits(min(quotas, default=None), cpusets, min(memory, default=None))


def _cgroup_folders(root: str) -> dict[str, list[str]]:
    """The cgroup folders with limits on this process, by controller, innermost first."""
    mount = f"{root}/sys/fs/cgroup"
    folders: dict[str, list[str]] = {"cpu": [], "cpuset": [], "memory": []}
    for line in (read(f"{root}/proc/self/cgroup") or "").splitlines():
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
    text = read(f"{folder}/cpu.max")
    if text is not None:
        quota, _, period = text.partition(" ")
        if quota == "max":
            return None
    else:
        quota, period = read(f"{folder}/cpu.cfs_quota_us") or "", read(f"{folder}/cpu.cfs_period_us") or ""
    allowed, every = number(quota, -1), number(period, 100000)
    return allowed / every if allowed > 0 and every > 0 else None


def _cpuset(folder: str) -> set[int]:
    for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
        text = read(f"{folder}/{name}")
        if text:
            return cpu_list(text)
    return set()


def _memory_limit(folder: str) -> int | None:
    text = read(f"{folder}/memory.max") or read(f"{folder}/memory.limit_in_bytes")
    limit = number(text, -1)
    return limit if 0 < limit < _V1_UNLIMITED else None


def cpu_list(text: str) -> set[int]:
    """Parse the kernel's CPU list, `0-3,8`; pieces that are not numbers are skipped."""
    cpus: set[int] = set()
    for piece in text.split(","):
        low, _, high = piece.strip().partition("-")
        if low.isdigit() and (not high or high.isdigit()):
            cpus.update(range(int(low), int(high or low) + 1))
    return cpus


def read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return None


def number(text: str | None, default: int) -> int:
    try:
        return int(text or "")
    except ValueError:
        return default
