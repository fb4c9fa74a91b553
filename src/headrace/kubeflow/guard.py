"""Ends the local jobs of a Python process when that is killed: `python -m headrace.kubeflow.guard BASE PID`.

The process PID, whose child this is, has its jobs below the folder BASE. It ends them itself when it ends in order; a
killed one cannot. A pipe would not tell its end, as further children of it may hold the pipe's other end.
"""

from __future__ import annotations

import os
import select
import shutil
import sys

from .folder import Folder, end


def main(base: str, pid: str) -> None:
    _wait_for_parent(int(pid))
    if os.path.isdir(base):
        end(Folder(entry.path) for entry in os.scandir(base) if entry.is_dir())
        shutil.rmtree(base, ignore_errors=True)


def _wait_for_parent(pid: int) -> None:
    """Wait until our parent has ended. It has already if another process is our parent now."""
    parent = os.pidfd_open(os.getppid())
    if os.getppid() == pid:
        select.select([parent], [], [])


if __name__ == "__main__":
    main(*sys.argv[1:])
