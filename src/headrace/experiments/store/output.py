"""Reads files that are shown: the last lines of a run's output, and the report.

Only regular files are read, and no symbolic links, because the programs of an experiment can write to its folder.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

from headrace.experiments.values import Result, Run

from .folder import STDERR, STDOUT, Folder

# The end of an output that is read for its last lines, in bytes.
_TAIL = 8192
_LINE = 300
# Colours and other sequences of terminals (ECMA-48), and control characters but for tabs.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


def last_lines(folder: Folder, result: Result, count: int = 10) -> list[str]:
    """The last lines of a run's standard error, or of its output if that is empty, without control characters."""
    run = folder.run_folder(Run(cell=result.cell, number=result.number))
    for name in (STDERR, STDOUT):
        lines = _tail(run / name)
        if lines:
            return [line[:_LINE] + ("…" if len(line) > _LINE else "") for line in lines[-count:]]
    return []


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError, for a symbolic link and for any other kind of file, too."""
    # Without O_NONBLOCK, opening a FIFO would wait for a writer.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return open(fd, "rb")


def _tail(path: Path) -> list[str]:
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            text = file.read(_TAIL).decode(errors="replace")
    except OSError:
        return []
    return [line for line in (_ESCAPES.sub("", line) for line in re.split(r"\r?\n|\r", text)) if line.strip()]
