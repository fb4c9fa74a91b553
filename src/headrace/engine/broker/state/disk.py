"""Messages about a `statedir` with too little disk space for a start, or with an unusable database.

The user's instance does not start, so a message names the file, the error, a remedy, and its cost. A damaged file is
never changed or removed, since it may be recoverable.
"""

from __future__ import annotations

import errno
import glob
import os
import sqlite3

# Bytes that the journal reserves for the further records of active jobs, in total and per job: from `alloc` to `clean`,
# a job without output takes 1.4 KiB.
_RESERVE = 1 << 20
_RESERVE_JOB = 2 << 10

# With less free space than this (bytes), jobs cannot write, and only the reserve can be used.
_NOTHING = 64 << 10
FULL = "the disk is full: make room there"
# Errors of a write for which a file system, a quota or a file size limit leaves no room.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def reserve(jobs: int) -> int:
    """The bytes to reserve for the further records of `jobs` active jobs."""
    return _RESERVE + jobs * _RESERVE_JOB


# Bytes that a start requires: the journal's reserve, and nearly empty databases.
NEEDED = reserve(64) + (384 << 10)
# A database error on a disk with less free space than this (bytes) is due to the full disk.
_FULL = 128 << 10
# The number of files that SQLite needs for one database.
_FILES = 3


def shortage(statedir: str) -> str:
    """The reason why there is too little room for the state of an instance, or "" if there is enough."""
    free = room_in(statedir)
    # The reserve of an instance that was killed is available again.
    reserved = sum(os.stat(path).st_blocks * 512 for path in glob.glob(glob.escape(statedir) + "/jobs/journal.*"))
    if free + reserved >= NEEDED:
        return ""
    return (
        f"its disk has {free >> 10} KiB free, an instance needs {NEEDED >> 10} KiB (most of it is kept in reserve, for "
        "the ends of jobs): make room there, or take a folder on another disk"
    )


def unusable(path: str | os.PathLike[str], error: Exception, lost: str) -> str:
    """The reason why a database cannot be used, with a remedy.

    `lost` names the data that would be lost without it.
    """
    path = os.fspath(path)
    text = f"{path} cannot be used: {error}"
    if type(error) is sqlite3.DatabaseError or not isinstance(error, sqlite3.Error):
        return f"{text}; it is damaged and was left as it is. To start without it: mv {path}* ELSEWHERE. {lost}"
    free = room_in(os.path.dirname(path))
    if free < _FULL:
        return f"{text}; its disk has {free >> 10} KiB free: make room there"
    files = os.statvfs(os.path.dirname(path)).f_favail
    if files < _FILES:
        return f"{text}; its disk takes {files} more files: remove some there"
    return text


def is_emptied(path: str) -> bool:
    """True if a file of a statedir is empty or missing."""
    return not os.path.exists(path) or not os.path.getsize(path)


def emptied(path: str, lost: str) -> str:
    """The log text for a database file of 0 bytes, or "". A database that was opened once is never empty."""
    return f"{path} was emptied: it has 0 bytes. {lost}" if os.path.exists(path) and is_emptied(path) else ""


def full(folder: str) -> bool:
    """True if the disk of `folder` has room only for reserved data."""
    return room_in(folder) < _NOTHING


def room_in(folder: str | int) -> int:
    """The bytes that can still be written to the disk of `folder`, or of an open file."""
    room = os.statvfs(folder)
    return room.f_frsize * (room.f_bfree if os.geteuid() == 0 else room.f_bavail)
