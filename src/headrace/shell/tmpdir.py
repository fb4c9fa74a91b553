"""The private folders of jobs (FLUX_JOB_TMPDIR), and TMPDIR of their tasks.

Each folder is made for its job and removed after it. One that went from job to job under a new name would still be that
of the first job for whoever is in it.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

from ..spec import archive


def make(path: str) -> None:
    """Make `path` an empty folder that only its owner may enter. Raises OSError."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        # An agent that was killed has left it, and its job was queued again.
        shutil.rmtree(path)
        os.mkdir(path, 0o700)


def remove(path: str) -> None:
    """Remove the folder, with whatever its job left there."""
    try:
        # The call for an empty folder, as most are.
        os.rmdir(path)
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


def temporary(env: dict[str, str]) -> None:
    """Create the directory TMPDIR if it is missing; TMPDIR becomes /tmp where that fails."""
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
