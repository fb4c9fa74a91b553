"""Starts handed out ahead of time: a queue of the kernel's that an agent fills and its deputies empty with it.

Whoever has a place free takes the next start, each start is taken once, and in order, without a word between them.
"""

from __future__ import annotations

import contextlib
import mmap
import socket
import struct
from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from .protocol import Op

_ID = struct.Struct("<Q")
# Bytes of the largest start that is put into the queue, and of the room that the queue asks for.
_LARGEST = 1 << 17
_ROOM = 1 << 20
_decode = msgspec.msgpack.Decoder(Op).decode


class Handout:
    """Starts, each a job id and a packed operation. Those that find no room wait in the process that added them."""

    def __init__(self) -> None:
        self._in, self._out = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._in.setblocking(False)
        self._out.setblocking(False)
        with contextlib.suppress(OSError):
            self._in.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
        self._later: deque[tuple[int, bytes]] = deque()
        # There only as far as somebody wrote, and not shared with processes forked from this one.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._buffer = memoryview(mmap.mmap(-1, _ID.size + _LARGEST, flags=private))

    def fileno(self) -> int:
        """The descriptor that starts are taken from."""
        return self._out.fileno()

    def inherited(self) -> None:
        """In a process that was forked: what waits for room is not ours to start."""
        self._later.clear()

    def add(self, starts: Iterable[tuple[int, bytes]]) -> None:
        self._later.extend(starts)
        self._fill()

    def take(self) -> Op | None:
        """The next start, None if there is none."""
        packed = self._next()
        if packed is not None:
            op: Op = _decode(packed[_ID.size :])
            if self._later:
                self._fill()
            return op
        # One that is too large to be put into the queue keeps its turn.
        if not self._later:
            return None
        _id, start = self._later.popleft()
        self._fill()
        return _decode(start)

    def drain(self) -> Iterator[int]:
        """Take everything; the ids."""
        while (packed := self._next()) is not None:
            yield _ID.unpack_from(packed)[0]
        while self._later:
            yield self._later.popleft()[0]

    def _next(self) -> memoryview | None:
        try:
            size = self._out.recv_into(self._buffer)
        except BlockingIOError:
            return None
        return self._buffer[:size] if size else None

    def _fill(self) -> None:
        # No room, or never for one as large, where the system allows sockets little: it waits here.
        with contextlib.suppress(OSError):
            while self._later and len(self._later[0][1]) <= _LARGEST:
                self._in.send(_ID.pack(self._later[0][0]) + self._later[0][1])
                self._later.popleft()
