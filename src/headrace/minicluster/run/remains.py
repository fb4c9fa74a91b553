"""Ends the processes of a local MiniCluster whose runner was killed (`kill -9`, out of memory).

The lifeline is a process that waits for the end of the runner. It has a session of its own, so that no terminal ends
it. It reads a pipe whose other end the runner holds; the pipe is closed when the runner ends. If the lifeline was
killed, too, the processes are found by the workspace, which is in the environment of each.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator

from headrace.engine.process import linux

# Brokers and agents have the instance's workspace in this variable. Tasks have only a URI inside the workspace.
WORKSPACE = "HEADRACE_MINI_DIR"
# Seconds to wait for the end of a stopped instance before it is killed, and then for the end of killed processes.
_STOP_TIMEOUT, _KILL_TIMEOUT = 10.0, 5.0
_PAUSE = 0.05


def processes_of(work: str) -> list[int]:
    """The running processes of the instance with the workspace `work`."""
    return [pid for pid in linux.processes() if _belongs(linux.environment_of(pid), work) and linux.is_running(pid)]


def _belongs(environment: dict[str, str], work: str) -> bool:
    return environment.get(WORKSPACE) == work or environment.get("FLUX_URI", "").startswith(f"local://{work}/")


def end_remains(work: str) -> list[int]:
    """End the instance with the workspace `work` and remove the workspace.

    Return processes that did not end.
    """
    found = processes_of(work)
    for pid in found:
        if linux.parent_of(pid) not in found:
            # A shell handles the signal only after its child, `flux start`, has ended, so the child gets it, too.
            for one in (pid, *linux.children_of(pid)):
                _kill(one, signal.SIGTERM)
    remaining = _wait(work, _STOP_TIMEOUT)
    for pid in remaining:
        _kill(pid, signal.SIGKILL)
    remaining = _wait(work, _KILL_TIMEOUT) if remaining else []
    if not remaining:
        shutil.rmtree(work, ignore_errors=True)
    return remaining


def _wait(work: str, seconds: float) -> list[int]:
    """Wait at most `seconds` for the end of the instance's processes; return those that still run."""
    deadline = time.monotonic() + seconds
    while (remaining := processes_of(work)) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    return remaining


def _kill(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


@contextlib.contextmanager
def lifeline(when_killed: Callable[[int], None]) -> Iterator[Callable[[int], None]]:
    """Run `when_killed(number)` in another process if this one is killed or fails inside the block.

    Yields a function that sets the number, which is 0 until then. Enter the block before any thread exists, because it
    forks. Raises OSError.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    guard = os.fork()
    if guard == 0:
        try:
            os.close(writing)
            os.setsid()
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(signum, signal.SIG_IGN)
            words = _read_all(reading).split()
            if b"end" not in words:
                when_killed(int(words[-1]) if words else 0)
        finally:
            os._exit(0)
    os.close(reading)
    try:
        yield lambda number: _say(writing, str(number))
        _say(writing, "end")
    finally:
        os.close(writing)
        os.waitpid(guard, 0)


def _say(pipe: int, word: str) -> None:
    os.write(pipe, word.encode() + b"\n")


def _read_all(pipe: int) -> bytes:
    out = b""
    while data := os.read(pipe, 4096):
        out += data
    return out
