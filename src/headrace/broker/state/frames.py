"""The frames of a journal file: what was written, what a write left unfinished, and what is damage, at any size.

A frame is a head, the payload and a line feed. The head (little-endian u32 each) has the length and the CRC-32 of the
payload, and a CRC-32 of both that begins with the frame's place in the file: so a frame that is copied to another place
is none, and a length is known to be right before the payload is read. Files are preallocated with zeros, and the line
feed is not zero: so an unfinished write is told from a finished one that was damaged later. A frame without payload is
an end mark: the journal goes on in the next file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

_LENGTH_AND_CRC = struct.Struct("<II")
_CHECK = struct.Struct("<I")
_HEAD = _LENGTH_AND_CRC.size + _CHECK.size
_LAST = b"\n"
# Bytes that are looked through or copied at a time.
_CHUNK = 1 << 20


class _Head(NamedTuple):
    length: int
    crc: int


def frame(payload: bytes, place: int) -> bytes:
    """The frame of a payload at byte `place` of its file; an end mark if the payload is empty."""
    head = _LENGTH_AND_CRC.pack(len(payload), zlib.crc32(payload))
    return head + _CHECK.pack(_check(head, place)) + payload + _LAST


def _check(head: bytes, place: int) -> int:
    return zlib.crc32(head, place & 0xFFFFFFFF)


def frames(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """(offset of the end, payload) for each whole frame at the start of a file; an end mark, with b"", is the last."""
    place = 0
    while (head := _head(file, place)) is not None:
        data = file.read(head.length + len(_LAST))
        payload = data[: head.length]
        if len(data) < head.length + len(_LAST) or data[head.length :] != _LAST or zlib.crc32(payload) != head.crc:
            return
        place += _HEAD + len(data)
        yield place, payload
        if not payload:
            return


def _head(file: BinaryIO, place: int) -> _Head | None:
    """The head at a place, None if there is none; the payload is read next."""
    file.seek(place)
    data = file.read(_HEAD)
    if len(data) < _HEAD:
        return None
    (check,) = _CHECK.unpack_from(data, _LENGTH_AND_CRC.size)
    if check != _check(data[: _LENGTH_AND_CRC.size], place):
        return None
    return _Head(*_LENGTH_AND_CRC.unpack_from(data))


def end_of_data(file: BinaryIO, place: int) -> int:
    """Where the zeros begin that a file has behind `place`, up to its end."""
    found = place
    file.seek(place)
    while chunk := file.read(_CHUNK):
        kept = len(chunk.rstrip(b"\0"))
        if kept:
            found = place + kept
        place += len(chunk)
    return found


def is_unfinished(file: BinaryIO, place: int, end: int) -> bool:
    """Whether the data from `place` to `end`, behind the last whole frame, are the beginning of a frame and no more."""
    if end - place < _HEAD:
        return True
    head = _head(file, place)
    return head is not None and end - place < _HEAD + head.length + len(_LAST)


def copy_rest(file: BinaryIO, place: int, into: BinaryIO) -> None:
    """Copy what a file has from `place` on, with its zeros as holes."""
    file.seek(place)
    while chunk := file.read(_CHUNK):
        if chunk.count(0) == len(chunk):
            into.seek(len(chunk), 1)
        else:
            into.write(chunk)
    into.truncate(into.tell())
