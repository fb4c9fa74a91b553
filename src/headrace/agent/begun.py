"""The trace that an agent leaves of jobs it starts without being told at that moment: a file that outlives a broker.

The journal knows of a start that the broker orders before it happens. One that was handed out ahead happens first and
is told then; if the broker is killed between the two, this file knows. It is rings of job ids (u64, little-endian),
mapped so that an entry costs no system call; what is in the page cache survives every process, and a machine that goes
down takes the tasks with it. An agent and each of its deputies have a ring of their own, all in the file, with more
places than a broker hands out starts. Behind them is where each ring goes on: a deputy may have had predecessors.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct

RINGS = 5
_PLACES = 4096
_ID = struct.Struct("<Q")
_SIZE = RINGS * _PLACES * _ID.size
_WHOLE = _SIZE + RINGS * _ID.size


def reserve(path: str) -> None:
    """See to it that the file is there, whole and on the disk, so that nothing has to be found room for later.

    What it holds stays. Raises OSError.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, _WHOLE)
    finally:
        os.close(fd)


def clear(path: str) -> None:
    """Begin anew: everything that was begun is in the journal. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.pwrite(fd, bytes(_SIZE), 0)
    finally:
        os.close(fd)


def read(path: str) -> frozenset[int]:
    """The ids in the file; none if there is no file. Raises OSError."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as handle:
        data = handle.read(_SIZE)
        whole = len(data) // _ID.size
        return frozenset(struct.unpack_from(f"<{whole}Q", data)) - {0}
    return frozenset()


class Traces:
    """The agent's end of the file that `reserve` has made, or with `ring` a deputy's. Raises OSError and ValueError if
    it cannot be mapped."""

    def __init__(self, path: str, ring: int = 0) -> None:
        self.path = path
        self._begin = ring * _PLACES
        self._next = _SIZE + ring * _ID.size
        with open(path, "r+b") as handle:
            self._map = mmap.mmap(handle.fileno(), _WHOLE)
        self._place = _ID.unpack_from(self._map, self._next)[0] % _PLACES

    def add(self, id: int) -> None:
        """Job `id` is about to be started."""
        _ID.pack_into(self._map, (self._begin + self._place) * _ID.size, id)
        self._place = (self._place + 1) % _PLACES
        _ID.pack_into(self._map, self._next, self._place)
