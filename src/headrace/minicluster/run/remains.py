"""Ends what is left of a MiniCluster on this machine if its runner was killed, and the runner's lifeline with it.

Nobody else waits for its processes then. They are found by the workspace, which all of them have in their environment.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time

from headrace.engine.process import linux

# The variable with the workspace of an instance, which its brokers and agents have; tasks have only a URI within it.
WORKSPACE = "HEADRACE_MINI_DIR"
# Seconds that a stopped instance has before it is killed, and that killed processes have.
_STOP_TIMEOUT, _KILL_TIMEOUT = 10.0, 5.0
_PAUSE = 0.05


def processes_of(work: str) -> list[int]:
    """The running processes of the instance with the workspace `work`."""
    return [pid for pid in linux.processes() if _belongs(linux.environment_of(pid), work) and linux.is_running(pid)]


def _belongs(environment: dict[str, str], work: str) -> bool:
    return environment.get(WORKSPACE) == work or environment.get("FLUX_URI", "").startswith(f"local://{work}/")


def end_remains(work: str) -> list[int]:
    """End the instance with the workspace `work`, and remove that. Returns the processes that could not be ended."""
    found = processes_of(work)
    for pid in found:
        if linux.parent_of(pid) not in found:
            # A shell only notes the signal while it waits for its child, which is `flux start`.
            for one in (pid, *linux.children_of(pid)):
                _kill(one, signal.SIGTERM)
    left = _wait(work, _STOP_TIMEOUT)
    for pid in left:
        _kill(pid, signal.SIGKILL)
    left = _wait(work, _KILL_TIMEOUT) if left else []
    if not left:
        shutil.rmtree(work, ignore_errors=True)
    return left


def _wait(work: str, seconds: float) -> list[int]:
    """Wait for the end of the instance's processes; returns those that go on after so many seconds."""
    deadline = time.monotonic() + seconds
    while (left := processes_of(work)) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    return left


def _kill(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
