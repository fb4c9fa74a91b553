"""Non-blocking writes to the standard input of a child. Data that does not fit in the pipe is queued."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol


class Loop(Protocol):
    """The part of the agent's loop that a feed uses."""

    def watch_writable(self, fd: int, on_writable: Callable[[], None]) -> None: ...
    def unwatch_writable(self, fd: int) -> None: ...


class Feed:
    """The write end of a pipe, owned by this object. `on_room` is called when the queue has become empty."""

    __slots__ = ("_buffer", "_ending", "_loop", "_on_room", "_watched", "fd")

    def __init__(self, loop: Loop, fd: int, on_room: Callable[[], None] | None = None) -> None:
        self._loop = loop
        self._on_room = on_room
        self.fd = fd
        self._buffer = bytearray()
        self._ending = False
        self._watched = False

    def write(self, data: bytes) -> None:
        if self.fd >= 0 and not self._ending:
            # Set at the first write, since most tasks get no input.
            os.set_blocking(self.fd, False)
            self._buffer += data
            self._pump()

    @property
    def backlog(self) -> int:
        """Bytes in the queue."""
        return len(self._buffer)

    def end(self) -> None:
        """Close the pipe when everything is written."""
        self._ending = True
        self._pump()

    def close(self) -> None:
        """Close the pipe now and discard the queue."""
        if self.fd >= 0:
            waited = self._unwatch()
            os.close(self.fd)
            self.fd = -1
            self._buffer.clear()
            if waited and self._on_room is not None:
                self._on_room()

    def _unwatch(self) -> bool:
        """Stop waiting for room in the pipe. True if it was waiting."""
        waited, self._watched = self._watched, False
        if waited:
            self._loop.unwatch_writable(self.fd)
        return waited

    def _pump(self) -> None:
        if self.fd < 0:
            return
        try:
            while self._buffer:
                del self._buffer[: os.write(self.fd, self._buffer)]
        except BlockingIOError:
            if not self._watched:
                self._watched = True
                self._loop.watch_writable(self.fd, self._pump)
            return
        except OSError:
            # The reader has closed its end, so drop the rest, as in a shell's pipeline.
            self.close()
            return
        waited = self._unwatch()
        if self._ending:
            self.close()
        if waited and self._on_room is not None:
            self._on_room()
