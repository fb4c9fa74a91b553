"""What to say of a `statedir` whose disk is too full to begin, or of a database in it that cannot be used.

Whoever reads that stands before an instance that does not start: which file it is, what is wrong with it, what can be
done, and what that costs. A file that is damaged is never changed or removed by us; somebody may be able to save it.
"""

from __future__ import annotations

import glob
import os
import sqlite3

# Room beyond its data that the journal keeps for what is still to come of active jobs when the disk is full, in all and
# for each: from `alloc` to `clean` a job takes 1.4 KiB, if it writes no output.
_RESERVE = 1 << 20
_RESERVE_JOB = 2 << 10

# With less than this (bytes) nothing that a job writes has room, only what is kept in reserve.
_NOTHING = 64 << 10
FULL = "the disk is full: make room there"


def reserve(jobs: int) -> int:
    """Bytes that are kept for what is still to come of `jobs` active jobs."""
    return _RESERVE + jobs * _RESERVE_JOB


# Bytes without which an instance does not begin: the journal's reserve, and databases with little in them.
NEEDED = reserve(64) + (384 << 10)
# A database that cannot be used on a disk with less than this (bytes) has no other fault.
_FULL = 128 << 10
# The same where its disk takes less files than SQLite makes of one.
_FILES = 3


def shortage(statedir: str) -> str:
    """Why there is too little room for the state of an instance, "" if there is enough."""
    free = room_in(statedir)
    # What an instance that was killed had reserved it finds again.
    held = sum(os.stat(path).st_blocks * 512 for path in glob.glob(glob.escape(statedir) + "/jobs/journal.*"))
    if free + held >= NEEDED:
        return ""
    return (
        f"its disk has {free >> 10} KiB free, an instance needs {NEEDED >> 10} KiB (most of it is kept in reserve, for "
        "the ends of jobs): make room there, or take a folder on another disk"
    )


def unusable(path: str | os.PathLike[str], error: Exception, lost: str) -> str:
    """Why a database cannot be used, and what helps; `lost` says what is gone without it."""
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


def full(folder: str) -> bool:
    """Whether the disk of `folder` has no room for anything that is not kept for it."""
    return room_in(folder) < _NOTHING


def room_in(folder: str | int) -> int:
    """Bytes that we may still write where `folder`, or the file of this descriptor, is."""
    room = os.statvfs(folder)
    return room.f_frsize * (room.f_bfree if os.geteuid() == 0 else room.f_bavail)
