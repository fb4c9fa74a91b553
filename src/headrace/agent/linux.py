"""What is particular to Linux and not in the standard library: subreaper, parent-death signal, /proc."""

from __future__ import annotations

import ctypes
import os

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        errnum = ctypes.get_errno()
        raise OSError(errnum, os.strerror(errnum))


def become_subreaper() -> None:
    """Orphans among our descendants become our children. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signum: int) -> None:
    """Get `signum` when the thread that forked us ends. Raises OSError."""
    _prctl(_PR_SET_PDEATHSIG, signum)


def children_of(pid: int) -> list[int]:
    """Direct children of a process, as far as /proc tells."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found.extend(int(child) for child in file.read().split())
    except OSError:
        pass
    return found


def descendants_of(pid: int) -> list[int]:
    """The children of a process, theirs and so on; parents come before their children."""
    found = children_of(pid)
    for child in found:
        found.extend(children_of(child))
    return found


def is_running(pid: int) -> bool:
    """Whether there is such a process that has not ended: one that nobody has collected counts as ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def environment_of(pid: int) -> dict[str, str]:
    """The environment a process was started with; empty when it is gone or another user's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read().decode("utf-8", "surrogateescape").split("\0")
    except OSError:
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)
