"""Append-only text of jobs: guest logs of up to a gigabyte, and one file for inactive jobs.

A log is JSON lines (RFC 18). Its newest part is in memory. Once that part is larger than `KEEP`, it is appended to the
log's own file. Readers address a log by byte offset and read it in pieces that end with a line. Each finished job is
one packed record in a common spill file; only the place of the record is kept in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import time

from headrace.engine.broker.module.context import ModuleContext
from headrace.formats.spec import jobid
from headrace.formats.spec.os_error import reason

# Bytes of a log that are kept in memory, and bytes per read.
KEEP = 64 << 10
PIECE = 256 << 10
# Bytes of a log that are kept in memory while the disk is full, and seconds between attempts to write.
_MOST_HELD = 256 << 10
_ASK_AGAIN = 0.5
# Bytes of inactive jobs that are written together.
_AT_ONCE = 64 << 10


def _private(path: str, flags: int) -> int:
    """Open a file with mode 0600, because the folders above it may be accessible to guests."""
    return os.open(path, flags, 0o600)


class Log:
    """One log. `path` is its file, which is created only when the log grows."""

    __slots__ = ("_full_since", "_path", "_spilled", "_tail", "_why", "cut", "size")

    def __init__(self, path: str, spilled: int = 0) -> None:
        self._path = path
        self._spilled = spilled
        self._tail = bytearray()
        self.size = spilled
        # Why some output was dropped.
        self.cut = ""
        self._why = ""
        self._full_since = -1.0

    def append(self, lines: bytes) -> bool:
        """Append complete lines. Returns False if they are lost.

        Lines that cannot be written to the file are kept in memory up to a limit.
        """
        kept = len(self._tail)
        self.append_in_memory(lines)
        if len(self._tail) <= KEEP:
            return True
        now = time.monotonic()
        if now >= self._full_since + _ASK_AGAIN:
            try:
                self.spill()
            except OSError as exc:
                self._full_since = now
                self._why = reason(exc)
        if len(self._tail) <= _MOST_HELD:
            return True
        self._cut_to(kept)
        return False

    def append_in_memory(self, lines: bytes) -> None:
        """Append complete lines without writing to the file."""
        self._tail += lines
        self.size += len(lines)

    def trim(self, why: str) -> None:
        """Drop the part in memory, for the reason `why`."""
        self._why = why
        self._cut_to(0)

    def _cut_to(self, kept: int) -> None:
        if not self._spilled and not kept:
            # The first line is the header, which readers need.
            kept = self._tail.find(b"\n") + 1
        self.size -= len(self._tail) - kept
        # A failed spill may still refer to the old buffer.
        self._tail = self._tail[:kept]
        self.cut = self._why

    @property
    def tail(self) -> bytes:
        """The part in memory, which is not in the file."""
        return bytes(self._tail)

    def spill(self) -> None:
        """Write the part in memory to the file. Raises OSError."""
        if not self._tail:
            return
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        with open(self._path, "r+b" if self._spilled else "wb", buffering=0, opener=_private) as handle:
            # Overwrites the bytes of a write that failed halfway.
            handle.seek(self._spilled)
            view = memoryview(self._tail)
            while view:
                view = view[handle.write(view) :]
        self._spilled += len(self._tail)
        self._tail = bytearray()

    def read(self, offset: int, limit: int = PIECE) -> bytes:
        """Complete lines from `offset` on, about `limit` bytes; b"" at the end. Raises OSError."""
        if offset >= self._spilled:
            start = offset - self._spilled
            piece = bytes(self._tail[start : start + limit])
            more = start + limit < len(self._tail)
        else:
            with open(self._path, "rb") as handle:
                handle.seek(offset)
                wanted = min(limit, self._spilled - offset)
                piece = handle.read(wanted)
            if len(piece) < wanted:
                raise OSError(errno.EIO, "the file is shorter than what was written to it", self._path)
            more = offset + len(piece) < self.size
        if more:
            cut = piece.rfind(b"\n") + 1
            if not cut:
                return self.read(offset, limit * 4)
            return piece[:cut]
        return piece

    def text(self) -> bytes:
        """The whole log. Raises OSError."""
        out = []
        offset = 0
        while offset < self.size:
            piece = self.read(offset)
            if not piece:
                break
            out.append(piece)
            offset += len(piece)
        return b"".join(out)

    @property
    def spilled(self) -> int:
        """The number of bytes in the file."""
        return self._spilled

    def take_up(self) -> None:
        """Extend the log by the complete lines in the file beyond its known size. Raises OSError."""
        with open(self._path, "rb") as handle:
            end = handle.seek(0, os.SEEK_END)
            while end > self.size:
                start = max(end - PIECE, 0)
                handle.seek(start)
                newline = handle.read(end - start).rfind(b"\n")
                if newline >= 0:
                    end = start + newline + 1
                    break
                end = start
        if end > self.size:
            # The part that was in memory when the log was saved has been written to the file since.
            self._spilled = self.size = end
            self._tail = bytearray()

    def discard(self) -> None:
        """Remove the file."""
        if self._spilled:
            with contextlib.suppress(OSError):
                os.unlink(self._path)


class Spill:
    """Blobs in one unnamed file in `folder`, identified by the result of put().

    A blob stays in memory if it is very large, or if the disk has no room for it.
    """

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, f"jobs-{os.getpid()}-{id(self):x}.spill")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.unlink(path)
        self._end = 0
        self._kept: dict[int, bytes] = {}
        # Blobs that are not written yet, and their total size.
        self._waiting: dict[int, bytes] = {}
        self._size = 0

    def put(self, blob: bytes) -> int:
        """Store a blob; returns its place."""
        place = self._end << 24 | min(len(blob), 0xFFFFFF)
        if len(blob) >= 0xFFFFFF:
            self._write()
            self._kept[place] = blob
            self._end += 1
            return place
        self._waiting[place] = blob
        self._end += len(blob)
        self._size += len(blob)
        if self._size >= _AT_ONCE:
            self._write()
        return place

    def _write(self) -> None:
        try:
            written = os.pwrite(self._fd, b"".join(self._waiting.values()), self._end - self._size)
        except OSError:
            written = 0
        if written != self._size:
            self._kept.update(self._waiting)
        self._waiting = {}
        self._size = 0

    def get(self, place: int) -> bytes:
        """The blob at a place; raises OSError."""
        kept = self._waiting.get(place) or self._kept.get(place)
        if kept is not None:
            return kept
        return os.pread(self._fd, place & 0xFFFFFF, place >> 24)

    def drop(self, place: int) -> None:
        """Remove a blob. Its space in the file is not reused."""
        if place in self._waiting:
            self._write()
        self._kept.pop(place, None)

    def close(self) -> None:
        os.close(self._fd)


# Seconds between two log lines about lost output.
_LOSS_EVERY = 10.0


class LostOutput:
    """Logs which jobs lost output. Call `add` for each job and `close` at the end.

    A full disk affects many jobs at once, and a line for each would push all other lines out of the log. So the first
    job is logged at once; further jobs are only counted, in one line every ten seconds.
    """

    def __init__(self, ctx: ModuleContext) -> None:
        self._ctx = ctx
        self._jobs: set[int] = set()
        self._last = ""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, id: int, why: str) -> None:
        """Add a job; `why` is a text that begins with "output is lost"."""
        self._last = f"{jobid.encode(id)}: {why}"
        if self._timer is None:
            self._say(self._last)
        else:
            self._jobs.add(id)

    def _say(self, text: str) -> None:
        self._ctx.log(logging.WARNING, text)
        self._timer = self._ctx.call_later(_LOSS_EVERY, self._more)

    def _more(self) -> None:
        self._timer = None
        if self._jobs:
            others = len(self._jobs) - 1
            self._jobs.clear()
            self._say(f"{self._last} (and that of {others} other jobs)" if others else self._last)

    def close(self) -> None:
        """Log the jobs that were counted since the last line."""
        if self._timer is not None:
            self._timer.cancel()
            self._more()
