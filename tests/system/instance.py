"""Running real instances in system tests: one call, its output, and the proof that nothing was left behind."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

FLUX = shutil.which("flux", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}") or "flux"


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


def start(*args: str, timeout: float = 240, prefix: tuple[str, ...] = (), cwd: str | None = None, **env: str) -> Done:
    """`flux start ARGS` in a TMPDIR of its own, so that what is left there is its doing."""
    folder = tempfile.mkdtemp(prefix="hr-", dir="/tmp")
    try:
        ran = subprocess.run(
            [*prefix, FLUX, "start", *args],
            env=clean_env(TMPDIR=folder, HR_TEST=folder, **env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=cwd,
        )
        left = [path for path in glob.glob(folder + "/*") if os.path.basename(path).startswith("flux-")]
        left += processes_with(f"HR_TEST={folder}")
        return Done(ran.returncode, ran.stdout, ran.stderr, left)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def processes_with(setting: str) -> list[str]:
    """Live processes (pid and command) whose environment holds `setting`."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        pid = path.split("/")[2]
        try:
            with open(path, "rb") as environ, open(f"/proc/{pid}/stat") as stat:
                if setting.encode() in environ.read().split(b"\0") and stat.read().rpartition(")")[2].split()[0] != "Z":
                    with open(f"/proc/{pid}/cmdline") as cmdline:
                        found.append(f"{pid} {cmdline.read()!r}")
        except OSError:
            continue
    return found
