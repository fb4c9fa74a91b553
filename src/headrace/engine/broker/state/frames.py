"""The frames of a journal file. Tells complete frames, unfinished writes and damage apart.

A frame is a head, the payload and a line feed. The head has three little-endian u32: the length and the CRC-32 of the
payload, and a CRC-32 of both that is seeded with the frame's offset in the file. So a frame that is copied to another
offset is invalid, and a length is verified before the payload is read. Files are preallocated with zeros, and the line
feed is not zero: this distinguishes an unfinished write from a finished one that was damaged later. A frame without
payload is an end mark: the journal continues in the next file. A frame with a damaged payload is made void once the
payload was saved elsewhere: the CRC-32 of its head is then seeded with the complement of its offset.
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
# Bytes to search or copy at a time.
_CHUNK = 1 << 20


class _Head(NamedTuple):
    length: int
    crc: int
    is_void: bool


class Frame(NamedTuple):
    """A frame with its bounds in the file.

    `payload` is b"" for an end mark, and None for a void or a damaged frame.
    """

    begin: int
    end: int
    payload: bytes | None
    is_damaged: bool = False


def frame(payload: bytes, place: int) -> bytes:
    """The frame of a payload at offset `place` of its file; an end mark if the payload is empty."""
    head = _LENGTH_AND_CRC.pack(len(payload), zlib.crc32(payload))
    return head + _CHECK.pack(_check(head, place)) + payload + _LAST


def void_head(file: BinaryIO, place: int) -> bytes:
    """The head that makes the frame at offset `place` void."""
    file.seek(place)
    head = file.read(_LENGTH_AND_CRC.size)
    return head + _CHECK.pack(_check(head, ~place))


def _check(head: bytes, place: int) -> int:
    return zlib.crc32(head, place & 0xFFFFFFFF)


def frames(file: BinaryIO) -> Iterator[Frame]:
    """The frames of a file from its start, up to an end mark or to data without a valid head.

    If only zeros follow it, a damaged frame may be an unfinished write.
    """
    place = 0
    while (head := _head(file, place)) is not None:
        data = file.read(head.length + len(_LAST))
        payload = data[: head.length]
        end = place + _HEAD + len(data)
        is_complete = data[head.length :] == _LAST and zlib.crc32(payload) == head.crc
        if len(data) < head.length + len(_LAST) or not (is_complete or head.length):
            return
        if head.is_void:
            yield Frame(place, end, None)
        else:
            yield Frame(place, end, payload if is_complete else None, not is_complete)
        if not head.length:
            return
        place = end


def _head(file: BinaryIO, place: int) -> _Head | None:
    """The head at offset `place`, or None. The payload is read next."""
    file.seek(place)
    data = file.read(_HEAD)
    if len(data) < _HEAD:
        return None
    (check,) = _CHECK.unpack_from(data, _LENGTH_AND_CRC.size)
    for is_void in (False, True):
        if check == _check(data[: _LENGTH_AND_CRC.size], ~place if is_void else place):
            length, crc = _LENGTH_AND_CRC.unpack_from(data)
            return _Head(length, crc, is_void)
    return None


def end_of_data(file: BinaryIO, place: int) -> int:
    """The offset behind `place` from which the file has only zeros up to its end."""
    found = place
    file.seek(place)
    while chunk := file.read(_CHUNK):
        kept = len(chunk.rstrip(b"\0"))
        if kept:
            found = place + kept
        place += len(chunk)
    return found


def is_unfinished(file: BinaryIO, place: int, end: int) -> bool:
    """True if the data from `place` to `end`, after the last complete frame, are a partial frame."""
    if end - place < _HEAD:
        return True
    head = _head(file, place)
    return head is not None and end - place < _HEAD + head.length + len(_LAST)


def copy_part(file: BinaryIO, place: int, end: int | None, into: BinaryIO) -> None:
    """Copy the bytes of a file from `place` to `end` (None: its end), with zeros as holes."""
    file.seek(place)
    while chunk := file.read(_CHUNK if end is None else min(_CHUNK, end - file.tell())):
        if chunk.count(0) == len(chunk):
            into.seek(len(chunk), 1)
        else:
            into.write(chunk)
    into.truncate(into.tell())
