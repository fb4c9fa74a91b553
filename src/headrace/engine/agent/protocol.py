"""The frames between a broker and its exec agent.

A frame is a little-endian u32 length and a msgpack list of operations.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

Op = TypeVar("Op")

_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[dict[str, Any]]).decode


def frame(ops: Sequence[Any]) -> bytes:
    """Encode operations (`engine/process/operations.py`) as one frame."""
    body = _encode(ops)
    return _LENGTH.pack(len(body)) + body


class Reader(Generic[Op]):
    """Parses a byte stream into operations: `Op` is `ToAgent` or `FromAgent`.

    The fields of the operations are not checked. A frame may have at most `most` bytes (0: no limit).
    """

    def __init__(self, most: int = 0) -> None:
        self._buffer = bytearray()
        self._most = most

    def feed(self, data: bytes | memoryview) -> Iterator[Op]:
        """The operations completed by `data`.

        Raises msgspec.DecodeError for an invalid stream, and ValueError for a frame that is too long.
        """
        buffer = self._buffer
        buffer += data
        pos = 0
        ready: list[Any] = []
        while len(buffer) - pos >= 4:
            size = _LENGTH.unpack_from(buffer, pos)[0]
            if self._most and size > self._most:
                raise ValueError(f"a frame of {size} bytes")
            if len(buffer) - pos - 4 < size:
                break
            ready.extend(_decode(bytes(buffer[pos + 4 : pos + 4 + size])))
            pos += 4 + size
        del buffer[:pos]
        return iter(ready)
