"""Linux functions that the standard library lacks: subreaper, parent-death signal, /proc."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import struct
import sys
import time
from collections.abc import Iterable

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
# capset(2): the version of its structures, which are a header of two numbers, and six numbers with the capability sets.
_CAPABILITY_VERSION = 0x20080522
# keyctl(2) and its operation. No library of a base Debian has a function for it.
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_KEYCTL_JOIN_SESSION_KEYRING = 1
# sched_setattr(2). No library has a function for it.
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_SCHED_OTHER = 0
_RESET_ON_FORK = 1
# Nanoseconds, the least value that the kernel accepts.
_SHORT_SLICE = 100_000
# Nanoseconds per clock tick.
_TICK = 10**9 // os.sysconf("SC_CLK_TCK")

# struct signalfd_siginfo (signalfd(2)): its size, and the fields number, code and sender's pid.
_SIGNAL_SIZE = 128
_SIGNAL = struct.Struct("=I4xiI")

# Flags of a process in /proc (include/linux/sched.h).
_PF_EXITING, _PF_KTHREAD = 4, 0x200000
# Seconds that execve(2) may take.
_EXEC_TIMEOUT = 0.2


# Looked up at import, before forks, since ctypes creates a class for each library and function.
_libc = ctypes.CDLL(None, use_errno=True)
_libc_prctl, _libc_syscall = _libc.prctl, _libc.syscall


def _prctl(option: int, value: int) -> None:
    if _libc_prctl(option, value, 0, 0, 0):
        errnum = ctypes.get_errno()
        raise OSError(errnum, os.strerror(errnum))


def become_subreaper() -> None:
    """Make orphans among the descendants children of this process. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signum: int) -> None:
    """Request `signum` from the kernel when the thread that forked this process ends. Raises OSError."""
    _prctl(_PR_SET_PDEATHSIG, signum)


def become_dumpable() -> None:
    """Let processes of this user read this process's files in /proc and trace it. Raises OSError."""
    _prctl(_PR_SET_DUMPABLE, 1)


def forbid_new_privileges() -> None:
    """Give this process and its descendants no privileges from set-user-ID programs. Raises OSError."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Drop all capabilities of this process. Raises OSError."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    if _libc.capset(header, (ctypes.c_uint32 * 6)()):
        errnum = ctypes.get_errno()
        raise OSError(errnum, os.strerror(errnum))


def capabilities() -> int:
    """The bit set of capabilities that this process has, or would have after execve(2) (capabilities(7))."""
    found = 0
    with open("/proc/thread-self/status") as file:
        for line in file:
            if line.startswith(("CapInh:", "CapPrm:", "CapEff:", "CapAmb:")):
                found |= int(line.split()[1], 16)
    return found


def leave_keyring() -> None:
    """Give this process a new session keyring, if the kernel supports keyrings.

    A process can read the keys in its keyring (keyrings(7)).
    """
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        _libc_syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None)


class _SchedAttr(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


_short_slices = _SchedAttr(ctypes.sizeof(_SchedAttr), _SCHED_OTHER, _RESET_ON_FORK, 0, 0, _SHORT_SLICE, 0, 0)
_sched_setattr = _SCHED_SETATTR.get(os.uname().machine)


def ask_for_short_slices() -> None:
    """Request short time slices, so that this process runs soon after it wakes.

    No effect before Linux 6.12. Children do not inherit the request. The share of the processor does not change.
    """
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    # A negative nice value is not inherited either.
    if _sched_setattr is not None and nice >= 0:
        _short_slices.nice = nice
        _libc_syscall(_sched_setattr, 0, ctypes.byref(_short_slices), 0)


def name_process(short: str, title: str = "") -> None:
    """Set the name in `ps`: `short` is the command name (15 bytes), `title` the command line.

    The title is cut to the length of the original command line. Errors are ignored.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        # Looked up before any fork, so that forks of this process know it too.
        start, end = _arguments()
        _write("/proc/self/comm", short.encode(), 0)
        if title:
            _write("/proc/self/mem", title.encode()[: end - start - 1].ljust(end - start, b"\0"), start)


def _write(path: str, data: bytes, offset: int) -> None:
    # Unbuffered, since each of many brokers does this at its start.
    fd = os.open(path, os.O_RDWR)
    try:
        if offset:
            os.lseek(fd, offset, os.SEEK_SET)
        os.write(fd, data)
    finally:
        os.close(fd)


@functools.lru_cache(maxsize=1)
def _arguments() -> tuple[int, int]:
    """The address range of this process's arguments, which is the same in its forks.

    Raises OSError or IndexError.
    """
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        # Fields are numbered from 1 in proc(5), and the third follows the name.
        fields = file.read().rpartition(")")[2].split()
    return int(fields[48 - 3]), int(fields[49 - 3])


def signal_descriptor(signals: Iterable[int]) -> int:
    """A descriptor from which `signals` can be read. They must be blocked. Raises OSError."""
    mask = sum(1 << number - 1 for number in signals)
    fd: int = _libc.signalfd(-1, mask.to_bytes(_SIGNAL_SIZE, sys.byteorder), os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        errnum = ctypes.get_errno()
        raise OSError(errnum, os.strerror(errnum))
    return fd


def read_signals(fd: int) -> list[tuple[int, int]]:
    """The signals from a `signal_descriptor`: (number, pid of the sender).

    The pid is 0 if the kernel sent the signal.
    """
    try:
        data = os.read(fd, 16 * _SIGNAL_SIZE)
    except BlockingIOError:
        return []
    found = (_SIGNAL.unpack_from(data, at) for at in range(0, len(data), _SIGNAL_SIZE))
    # Codes above 0 mean that the kernel sent the signal (sigaction(2)).
    return [(number, 0 if code > 0 else pid) for number, code, pid in found]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on (proc(5)), or [] if the process does not exist."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def parent_of(pid: int) -> int:
    """The pid of a process's parent, or 0 if the process does not exist."""
    fields = _stat(pid)
    return int(fields[4 - 3]) if fields else 0


def processes() -> list[int]:
    """The pids in /proc."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def children_of(pid: int) -> list[int]:
    """The direct children of a process, as listed in /proc."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found.extend(int(child) for child in file.read().split())
    except OSError:
        pass
    return found


def descendants_of(pid: int) -> list[int]:
    """All descendants of a process. Parents come before their children."""
    found = children_of(pid)
    for child in found:
        found.extend(children_of(child))
    return found


def is_running(pid: int) -> bool:
    """True if the process exists and has not ended. A zombie counts as ended."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in "ZX"


def is_ending(pid: int) -> bool:
    """True if a process has ended or is exiting.

    An exiting process closes its files before its children get another parent.
    """
    fields = _stat(pid)
    return not fields or fields[0] in "ZX" or bool(int(fields[9 - 3]) & _PF_EXITING)


def began(pid: int) -> int:
    """The start time of a process, in clock ticks since boot, or 0 if it does not exist."""
    fields = _stat(pid)
    return int(fields[22 - 3]) if fields else 0


def ticks() -> int:
    """The current time on the clock of `began`."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _TICK


def user_of(pid: int) -> int:
    """The real user id of a process, or -1 if it does not exist."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("Uid:"):
                return int(line.split()[1])
    return -1


def name_of(pid: int) -> str:
    """The command name of a process, or "" if it does not exist."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().rstrip("\n")
    return ""


def environment_of(pid: int) -> dict[str, str]:
    """The initial environment of a process; empty if it does not exist or belongs to another user.

    A process has no environment for a moment during execve(2); this function waits until it has.
    """
    deadline, runs = time.monotonic() + _EXEC_TIMEOUT, False
    while True:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                words = file.read().decode("utf-8", "surrogateescape").split("\0")
        except OSError:
            return {}
        if words != [""] or runs or time.monotonic() > deadline:
            return dict(word.split("=", 1) for word in words if "=" in word)
        # The data may be from before the program runs, so read it once more.
        runs = not _is_executing(pid)
        if not runs:
            time.sleep(0.001)


def _is_executing(pid: int) -> bool:
    """True if a process is between two programs (execve(2)).

    The kernel sets the address of the new program's code (`start_code` of proc(5)) after it has copied the environment.
    """
    fields = _stat(pid)
    return bool(fields) and fields[0] not in "ZX" and fields[26 - 3] == "0" and not int(fields[9 - 3]) & _PF_KTHREAD


def is_empty_group(group: int) -> bool:
    """True if no process is a member of the process group with this id.

    Members that this process may not signal count as well.
    """
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
