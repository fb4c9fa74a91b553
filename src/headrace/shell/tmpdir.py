"""The private folders of jobs (FLUX_JOB_TMPDIR). One that comes back empty waits under another name for the next job.

Making and removing a folder costs five times what renaming it twice does, together a sixth of what a small job costs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Any

from ..spec import archive

_SPARE = 64


class Folders:
    """The folders of one agent, all below its broker's run directory."""

    def __init__(self) -> None:
        self._spare: list[str] = []

    def take(self, path: str) -> None:
        """Make `path` an empty folder that only its owner may enter. Raises OSError."""
        if self._spare and os.path.dirname(self._spare[-1]) == os.path.dirname(path):
            os.rename(self._spare.pop(), path)
        else:
            os.mkdir(path, 0o700)

    def give_back(self, path: str) -> None:
        """The job is over: its folder goes, with whatever it left there."""
        try:
            clean = not os.listdir(path) and os.stat(path).st_mode & 0o7777 == 0o700
        except OSError:
            clean = False
        if clean and len(self._spare) < _SPARE:
            # Its name stays part of it: brokers of one machine may share the run directory.
            spare = "{}/spare-{}".format(*os.path.split(path))
            with contextlib.suppress(OSError):
                os.rename(path, spare)
                self._spare.append(spare)
        else:
            shutil.rmtree(path, ignore_errors=True)

    def remove_all(self) -> None:
        """Remove what is kept for the next job."""
        for path in self._spare:
            shutil.rmtree(path, ignore_errors=True)
        self._spare.clear()


def temporary(env: dict[str, str]) -> None:
    """Have the job's TMPDIR exist; /tmp stands in for one that cannot be made."""
    path = env.get("TMPDIR")
    if path is None or os.path.isdir(path):
        return
    try:
        os.mkdir(path, 0o700)
    except OSError:
        env["TMPDIR"] = "/tmp"


def unpack(files: Any, folder: str) -> None:
    """Write the jobspec's `files` (RFC 37), if there are any, into `folder`. Raises OSError, ArchiveError."""
    if not files:
        return
    for file in archive.read(files):
        path = os.path.join(folder, file.path)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        if file.kind == "directory":
            os.makedirs(path, mode=file.perms, exist_ok=True)
        elif file.kind == "symlink":
            os.symlink(file.target, path)
        else:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, file.perms)
            with open(fd, "wb") as out:
                out.write(file.data)
            os.chmod(path, file.perms)
