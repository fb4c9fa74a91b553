"""Append-only text for jobs: guest logs that may grow to a gigabyte, and one file that finished jobs move into.

A log is JSON lines (RFC 18). Its newest part is in memory, the older part in a file of its own once it is larger than
`KEEP`; readers address it by byte offset and read it in pieces that end with a line. Finished jobs are one packed
record each in a common spill file, of which only the place is kept in memory.
"""

from __future__ import annotations

import contextlib
import os
import time

from headrace.spec.os_error import reason

# Bytes of a log that stay in memory, and bytes that a reader is given at a time.
KEEP = 64 << 10
PIECE = 256 << 10
# Bytes that stay in memory while the disk has no room for them; and seconds until it is asked again.
_MOST_HELD = 256 << 10
_ASK_AGAIN = 0.5
# Bytes of finished jobs that are written together.
_AT_ONCE = 64 << 10


class Log:
    """One log. `path` is where it goes when it grows; nothing is created before."""

    __slots__ = ("_full_since", "_path", "_spilled", "_tail", "_why", "cut", "size")

    def __init__(self, path: str, spilled: int = 0) -> None:
        self._path = path
        self._spilled = spilled
        self._tail = bytearray()
        self.size = spilled
        # Why something was left out.
        self.cut = ""
        self._why = ""
        self._full_since = -1.0

    def append(self, lines: bytes) -> bool:
        """Add whole lines, which stay in memory when the file cannot be written; False if that is too full for them."""
        held = len(self._tail)
        self.hold(lines)
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
        self._cut_to(held)
        return False

    def hold(self, lines: bytes) -> None:
        """Like append, but never into the file."""
        self._tail += lines
        self.size += len(lines)

    def trim(self, why: str) -> None:
        """Give up what is in no file."""
        self._why = why
        self._cut_to(0)

    def _cut_to(self, held: int) -> None:
        if not self._spilled and not held:
            # What kind of log it is: readers want that.
            held = self._tail.find(b"\n") + 1
        self.size -= len(self._tail) - held
        # A spill that failed may still hold on to the old one.
        self._tail = self._tail[:held]
        self.cut = self._why

    @property
    def tail(self) -> bytes:
        """What is in no file."""
        return bytes(self._tail)

    def spill(self) -> None:
        """Move what is in memory into the file; raises OSError."""
        if not self._tail:
            return
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        with open(self._path, "r+b" if self._spilled else "wb", buffering=0) as handle:
            # A write that failed half way is written over.
            handle.seek(self._spilled)
            view = memoryview(self._tail)
            while view:
                view = view[handle.write(view) :]
        self._spilled += len(self._tail)
        self._tail = bytearray()

    def read(self, offset: int, limit: int = PIECE) -> bytes:
        """Whole lines from `offset` on, about `limit` bytes; b"" at the end. Raises OSError."""
        if offset >= self._spilled:
            start = offset - self._spilled
            piece = bytes(self._tail[start : start + limit])
            more = start + limit < len(self._tail)
        else:
            with open(self._path, "rb") as handle:
                handle.seek(offset)
                piece = handle.read(min(limit, self._spilled - offset))
            more = offset + len(piece) < self.size
        if more:
            cut = piece.rfind(b"\n") + 1
            if not cut:
                return self.read(offset, limit * 4)
            return piece[:cut]
        return piece

    def text(self) -> bytes:
        """All of it; raises OSError."""
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
        """How many bytes are in the file."""
        return self._spilled

    def discard(self) -> None:
        """Remove the file."""
        if self._spilled:
            with contextlib.suppress(OSError):
                os.unlink(self._path)


class Spill:
    """Blobs in one unnamed file in `folder`; what put() returns finds them again.

    A blob that the disk has no room for, or that is very large, stays in memory.
    """

    def __init__(self, folder: str) -> None:
        path = os.path.join(folder, f"jobs-{os.getpid()}-{id(self):x}.spill")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.unlink(path)
        self._end = 0
        self._kept: dict[int, bytes] = {}
        # What is still to be written, at the end of the file, and how much of it there is.
        self._waiting: dict[int, bytes] = {}
        self._size = 0

    def put(self, blob: bytes) -> int:
        """Keep a blob; returns its place."""
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
        """Forget a blob; its room in the file is only given back with the file."""
        if place in self._waiting:
            self._write()
        self._kept.pop(place, None)

    def close(self) -> None:
        os.close(self._fd)
