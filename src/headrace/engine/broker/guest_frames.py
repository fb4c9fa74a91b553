"""Frames of guests: a message that exceeds the guest's budget is refused without being kept in memory.

A frame begins with its sizes and ends with its header, which has the data for a response. So only the beginning and the
end of a refused message are kept, and the guest gets an error response as for any other request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.engine.broker.answers import RpcError
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

# Bytes kept from the beginning of a refused frame: enough for the routes and the topic of any valid request.
_HEAD = 4 << 10


class GuestFrames(m.Deframer):
    """A `Deframer` that calls `reserve(size)` before it buffers an incomplete frame of `size` bytes.

    If `reserve` raises RpcError, the frame is dropped, and `refuse(msg, error)` gets the request without its payload.
    """

    __slots__ = ("_announced", "_error", "_refuse", "_reserve", "_rest", "_skipped")

    def __init__(self, limit: int, reserve: Callable[[int], None], refuse: Callable[[Message, RpcError], None]) -> None:
        super().__init__(limit)
        self._reserve = reserve
        self._refuse = refuse
        # The size of the incomplete frame at the beginning of the buffer, or 0 if it is not known yet.
        self._announced = 0
        # For a refused frame: the number of bytes still to arrive, the bytes that are kept, and the error.
        self._rest = 0
        self._skipped = bytearray()
        self._error: RpcError | None = None

    @property
    def held(self) -> int:
        """Bytes that are buffered, or will be when the frame that has begun is complete."""
        return max(len(self._buffer), self._announced)

    def feed(self, data: bytes | memoryview) -> None:
        if self._rest:
            data = self._skip(data)
        super().feed(data)

    def _skip(self, data: bytes | memoryview) -> bytes | memoryview:
        """Drop the bytes of a refused frame; returns the bytes after it."""
        now = min(self._rest, len(data))
        self._rest -= now
        kept = self._skipped
        kept += data[:now]
        if len(kept) > _HEAD + m.HEADER_SIZE:
            del kept[_HEAD : -m.HEADER_SIZE]
        if not self._rest:
            msg, error = m.unframe_ends(bytes(kept)), self._error
            self._skipped = bytearray()
            self._error = None
            assert error is not None
            self._refuse(msg, error)
        return data[now:]

    def __iter__(self) -> Iterator[Message]:
        self._announced = 0
        yield from super().__iter__()
        size = self.unfinished
        if not size:
            return
        try:
            self._reserve(size)
            self._announced = size
        except RpcError as exc:
            self._error, self._rest = exc, size
            # The rest of the buffer belongs to this incomplete frame.
            self._skip(bytes(self._buffer[8:]))
            self._buffer.clear()
