"""The number of brokers that this machine can hold, to refuse a larger instance before the first fork.

A machine that runs out of memory or process ids during a start fails late, and affects other users. The count uses the
measured needs of a test instance's broker and agent, and the kernel's limits. A start is refused only if it certainly
does not fit: memory in use by a control group may be cache, so the group's whole limit counts as free.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from typing import NamedTuple

# A broker of a test instance and its agent: memory not shared with other brokers, and processes and threads.
BROKER_BYTES = 8 << 20
BROKER_TASKS = 4
# The processes that the initial program needs to run a command.
PROGRAM_TASKS = 2
# Open files of the process that forks all brokers: per agent, and others.
AGENT_FILES, START_FILES = 2, 16
# Open files of a broker without children, and of a broker with the most children, and the number of these children.
ALONE_FILES, PARENT_FILES, CHILDREN = 20, 30, 32
# With a limit above this, processes in use are not counted: counting them takes longer than starting a broker.
_MANY = 1000


class Limit(NamedTuple):
    """At most `brokers` fit, because of the limit named in `reason`."""

    brokers: int
    reason: str


def most_brokers(proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> Limit | None:
    """The tightest limit of this machine, or None if the kernel reports none."""
    limits = [_limit_by_memory(count, where) for count, where in _memory(proc, groups)]
    limits += [_limit_by_tasks(count, where) for count, where in _tasks(proc, groups)]
    # Brokers raise their limit of open files to the hard limit.
    limits += _limits_by_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    return min(limits, default=None)


def refusal(size: int) -> str:
    """The reason why `size` brokers do not fit this machine, and how many would; "" if they fit."""
    limit = most_brokers()
    if limit is None or size <= limit.brokers:
        return ""
    if not limit.brokers:
        return f"no broker fits this machine: {limit.reason}"
    return f"{size} brokers do not fit this machine: {limit.reason}; use {limit.brokers} or fewer"


def _limit_by_memory(count: int, where: str) -> Limit:
    each = BROKER_BYTES >> 20
    return Limit(max(count // BROKER_BYTES, 1), f"{count >> 20} MiB of memory ({where}), {each} MiB a broker")


def _limit_by_tasks(count: int, where: str) -> Limit:
    brokers = (count - PROGRAM_TASKS) // BROKER_TASKS
    return Limit(
        max(brokers, 0),
        f"{count} processes and threads ({where}), {BROKER_TASKS} a broker, {PROGRAM_TASKS} its program",
    )


def _limits_by_files(count: int) -> Iterator[Limit]:
    if count == resource.RLIM_INFINITY:
        return
    brokers = max((count - START_FILES) // AGENT_FILES, 1)
    yield Limit(brokers, f"{count} open files (ulimit -n), {AGENT_FILES} an agent and {START_FILES} others")
    if count >= PARENT_FILES + CHILDREN:
        return
    brokers = max(count - PARENT_FILES + 1, 1) if count >= ALONE_FILES else 0
    yield Limit(brokers, f"{count} open files (ulimit -n), one broker needs {ALONE_FILES}, two need {PARENT_FILES + 1}")


def _memory(proc: str, groups: str) -> Iterator[tuple[int, str]]:
    sizes = dict(line.split(":", 1) for line in _read(f"{proc}/meminfo").splitlines() if ":" in line)
    if "MemAvailable" in sizes:
        kibibytes = sum(int(sizes.get(name, "0").split()[0]) for name in ("MemAvailable", "SwapFree"))
        yield kibibytes << 10, "available"
    for names in ("memory.max", "memory.limit_in_bytes"):
        yield from _group_limits("memory", names, proc, groups)


def _tasks(proc: str, groups: str) -> Iterator[tuple[int, str]]:
    for name in ("pid_max", "threads-max"):
        text = _read(f"{proc}/sys/kernel/{name}").strip()
        if text.isdigit():
            yield int(text), f"kernel.{name}"
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    # The limit does not apply to root.
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:
        used = _tasks_of_user(proc) if soft < _MANY else 0
        yield max(soft - used, 0), f"left of {soft}, ulimit -u" if used else "ulimit -u"
    yield from _group_limits("pids", "pids.max", proc, groups)


def _tasks_of_user(proc: str) -> int:
    """The number of processes and threads that count against the limit: those of the real user."""
    count = 0
    for name in os.listdir(proc):
        if name.isdigit():
            fields = dict(line.split(":", 1) for line in _read(f"{proc}/{name}/status").splitlines() if ":" in line)
            if fields.get("Uid", "-1").split()[0] == str(os.getuid()):
                count += int(fields.get("Threads", "1"))
    return count


def _group_limits(controller: str, name: str, proc: str, groups: str) -> Iterator[tuple[int, str]]:
    """The limits of this process's control group and its parents (cgroups(7), versions 1 and 2)."""
    for line in _read(f"{proc}/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        while path:
            text = _read(f"{groups}{'/' + controllers if controllers else ''}{path.rstrip('/')}/{name}").strip()
            if text.isdigit():
                yield int(text), f"{name} of control group {path}"
            path = path.rpartition("/")[0] or ("/" if path != "/" else "")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
