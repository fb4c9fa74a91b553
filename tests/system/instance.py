"""Running real instances in system tests: one call, its output, and the proof that nothing was left behind."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from waiting import PATIENCE

FLUX = shutil.which("flux", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}") or "flux"

# Seconds for a whole instance, which waits for one thing after another.
LIMIT = 2 * PATIENCE


class Done(NamedTuple):
    """A finished instance; `left` names the processes and files that outlived it."""

    rc: int
    out: str
    err: str
    left: list[str]


def clean_env(**more: str) -> dict[str, str]:
    """This environment without what an enclosing instance set."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("FLUX_", "PMI_"))}
    return {**env, "LANG": "C.UTF-8", **more}


def start(*args: str, timeout: float = LIMIT, prefix: tuple[str, ...] = (), cwd: str | None = None, **env: str) -> Done:
    """`flux start ARGS` in a TMPDIR of its own, so that what is left there is its doing.

    An instance that hangs is an AssertionError that tells its output and where each of its processes waits.
    """
    folder = tempfile.mkdtemp(prefix="hr-", dir="/tmp")
    try:
        ran = subprocess.Popen(
            [*prefix, FLUX, "start", *args],
            env=clean_env(TMPDIR=folder, HR_TEST=folder, **env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
        )
        try:
            out, err = ran.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            waits = _end_all(f"HR_TEST={folder}")
            out, err = ran.communicate()
            raise AssertionError(f"hangs for {timeout:.0f} s: {args}\n{out}\n{err}\n" + "\n".join(waits)) from None
        left = [path for path in glob.glob(folder + "/*") if os.path.basename(path).startswith("flux-")]
        left += processes_with(f"HR_TEST={folder}")
        return Done(ran.returncode, out, err, left)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _end_all(setting: str) -> list[str]:
    """Kill all processes whose environment holds `setting`; returns where in the kernel their threads waited."""
    found = []
    for process in processes_with(setting):
        pid = process.split()[0]
        for task in sorted(glob.glob(f"/proc/{pid}/task/*")):
            with contextlib.suppress(OSError), open(f"{task}/wchan") as wchan, open(f"{task}/stat") as stat:
                state = stat.read().rpartition(")")[2].split()[:2]
                found.append(f"{process} thread {os.path.basename(task)}: {' '.join(state)} {wchan.read()}")
    while left := processes_with(setting):
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process.split()[0]), signal.SIGKILL)
    return found


def processes_with(setting: str) -> list[str]:
    """Live processes (pid and command) whose environment holds `setting`."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        pid = path.split("/")[2]
        try:
            with open(path, "rb") as environ, open(f"/proc/{pid}/stat") as stat:
                if setting.encode() in environ.read().split(b"\0") and stat.read().rpartition(")")[2].split()[0] != "Z":
                    with open(f"/proc/{pid}/cmdline") as cmdline:
                        found.append(f"{pid} {cmdline.read().rstrip(chr(0))!r}")
        except OSError:
            continue
    return found
