"""One job as bytes: for the journal, for the database, and for memory once the job is over. Pure.

A submission is mostly what the submission before it was (the environment alone is some kilobytes), so its text is kept
as the part that differs from one of a few reference texts. Records are msgpack.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import msgspec

from headrace.modules.jobs_record import Event

# A text with a larger part of its own than this becomes a reference itself, while there is room for references.
_OWN_PART = 600
_REFERENCES = 256

# (reference number, length of the common start, length of the common end, the part between), or
# (-1, 0, 0, compressed text).
Code = tuple[int, int, int, bytes]


class Texts:
    """The reference texts. `fresh` are those that are not journalled yet: [(number, text)]."""

    def __init__(self) -> None:
        self.table: list[bytes] = []
        self.fresh: list[tuple[int, bytes]] = []
        self._last = 0

    def encode(self, text: bytes) -> Code:
        """A text as its difference from a reference."""
        if self.table:
            code = _difference(self.table[self._last], text, self._last)
            if len(code[3]) <= _OWN_PART:
                return code
            for number in range(len(self.table) - 1, max(len(self.table) - 9, -1), -1):
                code = _difference(self.table[number], text, number)
                if len(code[3]) <= _OWN_PART:
                    self._last = number
                    return code
        if len(self.table) >= _REFERENCES:
            return (-1, 0, 0, zlib.compress(text, 1))
        self._last = len(self.table)
        self.table.append(text)
        self.fresh.append((self._last, text))
        return (self._last, len(text), 0, b"")

    def decode(self, code: Code) -> bytes:
        number, start, end, own = code
        if number < 0:
            return zlib.decompress(own)
        reference = self.table[number]
        return reference[:start] + own + (reference[-end:] if end else b"")

    def restore(self, number: int, text: bytes) -> None:
        """Take a reference back from the journal or the database; they come in order."""
        if number == len(self.table):
            self.table.append(text)


def _difference(reference: bytes, text: bytes, number: int) -> Code:
    start = _common(reference, text)
    end = _common(reference[start:][::-1], text[start:][::-1])
    return (number, start, end, text[start : len(text) - end])


def _common(one: bytes, other: bytes) -> int:
    """How many bytes are alike at the start; by bisection, so that the comparing is done in C."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while low + 1 < high:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


class Submission(msgspec.Struct, array_like=True):
    """What was submitted: `J` taken apart (RFC 15), and what ingest added to the jobspec."""

    head: bytes
    text: Code
    tail: bytes
    updates: dict[str, Any] | None = None


# A log's text, or how many bytes of it are in its file, or the latter and the text that has no room there.
SavedLog = bytes | int | tuple[int, bytes]


class Packed(msgspec.Struct, array_like=True):
    """A whole job."""

    submission: Submission
    events: list[Event]
    r: dict[str, Any] | None
    logs: dict[str, SavedLog]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Packed)
pack = _ENCODER.encode
unpack = _DECODER.decode


def split_j(j: str) -> tuple[bytes, bytes, bytes]:
    """(header, decoded payload, signature) of a `HEADER.PAYLOAD.SIGNATURE`; raises ValueError."""
    head, dot, rest = j.partition(".")
    payload, dot2, tail = rest.partition(".")
    if not dot or not dot2:
        raise ValueError("J is not of the form HEADER.PAYLOAD.SIGNATURE")
    try:
        return head.encode("ascii"), base64.b64decode(payload, validate=True), tail.encode("ascii")
    except (UnicodeEncodeError, ValueError) as exc:
        raise ValueError(f"J: {exc}") from None


def join_j(head: bytes, payload: bytes, tail: bytes) -> str:
    """The inverse of split_j."""
    return b".".join((head, base64.b64encode(payload), tail)).decode("ascii")


class EventLine(msgspec.Struct, omit_defaults=True):
    """One line of an eventlog (RFC 18)."""

    timestamp: float
    name: str
    context: dict[str, Any] | None = None


_JSON = msgspec.json.Encoder()


def event_line(event: Event | list[Any]) -> bytes:
    """An event as its line, newline included."""
    return _JSON.encode(EventLine(event[0], event[1], event[2])) + b"\n"
