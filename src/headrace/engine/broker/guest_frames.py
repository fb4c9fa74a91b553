"""The frames of a guest: a message for which the guest's budget is too small is refused without being kept.

The sizes of a frame come first and its header, with what an answer needs, last. So of a message that is refused the
beginning and the end are kept while the rest goes by, and the guest is told why, as for any other request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.engine.broker.answers import RpcError
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

# Bytes at the beginning of a refused frame that are kept: the routes and the topic of any request of use.
_HEAD = 4 << 10


class GuestFrames(m.Deframer):
    """A `Deframer` that asks `reserve(size)` before it keeps an unfinished frame of `size` bytes.

    Where that raises RpcError the bytes of the frame are dropped, and `refuse(msg, error)` gets the request without its
    payload.
    """

    __slots__ = ("_announced", "_error", "_refuse", "_reserve", "_rest", "_skipped")

    def __init__(self, limit: int, reserve: Callable[[int], None], refuse: Callable[[Message, RpcError], None]) -> None:
        super().__init__(limit)
        self._reserve = reserve
        self._refuse = refuse
        # The size of the unfinished frame at the beginning of the buffer, 0 where none is known.
        self._announced = 0
        # Of a refused frame: the bytes that are still to come, the kept ones, and why.
        self._rest = 0
        self._skipped = bytearray()
        self._error: RpcError | None = None

    @property
    def held(self) -> int:
        """Bytes that are kept, or will be for the frame that has begun."""
        return max(len(self._buffer), self._announced)

    def feed(self, data: bytes | memoryview) -> None:
        if self._rest:
            data = self._skip(data)
        super().feed(data)

    def _skip(self, data: bytes | memoryview) -> bytes | memoryview:
        """Drop what belongs to a refused frame; returns what is behind it."""
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
            # All bytes that are left belong to one unfinished frame.
            self._skip(bytes(self._buffer[8:]))
            self._buffer.clear()
