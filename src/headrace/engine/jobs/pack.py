"""One job as bytes: for the journal, for the database, and for inactive jobs in memory. Pure.

A submission mostly repeats the one before it (the environment alone is some kilobytes), so its text is stored as the
difference from reference texts. Jobs of one user usually differ in two places: in an argument of the command, and in a
variable of the environment, such as FLUX_JOB_CC. The text is therefore split before the environment, and each of the
two parts is stored as its difference from a reference. Records are msgpack.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import msgspec

from headrace.engine.jobs.record import Event

# The text at which a submission is split. It only affects how well a text packs.
_CUT = b'"environment"'
_REFERENCES = 256
_REFERENCE_BYTES = 8 << 20

# (reference number, length of the common start, length of the common end, the part between), or (-1, 0, 0, compressed
# text).
Code = tuple[int, int, int, bytes]


class _Known:
    """The last code of a part (first or second), with the start and end that it shares with its reference."""

    __slots__ = ("end", "last", "start")

    def __init__(self, last: Code, start: bytes, end: bytes) -> None:
        self.last = last
        self.start = start
        self.end = end

    def code(self, part: bytes) -> Code | None:
        """The difference of `part`, or None if it does not have the same start and end.

        Codes of waiting jobs stay in memory. Equal codes share one object, and so do equal numbers in them.
        """
        number, start, end, own = self.last
        if len(part) < start + end or not part.startswith(self.start) or not part.endswith(self.end):
            return None
        between = part[start : len(part) - end]
        if between != own:
            self.last = (number, start, end, between)
        return self.last


class Texts:
    """The reference texts. `fresh` are those that are not in the journal yet: [(number, text)]."""

    def __init__(self) -> None:
        self.table: list[bytes] = []
        self.fresh: list[tuple[int, bytes]] = []
        self._known: list[_Known | None] = [None, None]
        self._size = 0

    def encode(self, text: bytes) -> tuple[Code, Code | None]:
        """Encode a text as the differences of its two parts. The second is None if there is only one part."""
        cut = text.find(_CUT)
        if cut < 0:
            return self._encode(text, 0), None
        return self._encode(text[:cut], 0), self._encode(text[cut:], 1)

    def decode(self, first: Code, second: Code | None) -> bytes:
        return self._decode(first) if second is None else self._decode(first) + self._decode(second)

    def _encode(self, part: bytes, place: int) -> Code:
        # A part with more bytes of its own than this becomes a reference, while there is room.
        most = 32 + len(part) // 8
        known = self._known[place]
        if known is not None:
            code = known.code(part)
            if code is not None and len(code[3]) <= most:
                return code
            code = _difference(self.table[known.last[0]], part, known.last[0])
            if len(code[3]) <= most:
                return self._remembered(code, place)
        closest: Code | None = None
        for number in range(len(self.table) - 1, max(len(self.table) - 9, -1), -1):
            code = _difference(self.table[number], part, number)
            if len(code[3]) <= most:
                return self._remembered(code, place)
            if closest is None or len(code[3]) < len(closest[3]):
                closest = code
        if len(self.table) < _REFERENCES and self._size + len(part) <= _REFERENCE_BYTES:
            number = len(self.table)
            self.restore(number, part)
            self.fresh.append((number, part))
            return self._remembered((number, len(part), 0, b""), place)
        if closest is not None and len(closest[3]) < len(part) // 2:
            return closest
        return (-1, 0, 0, zlib.compress(part, 1))

    def _remembered(self, code: Code, place: int) -> Code:
        number, start, end, _ = code
        reference = self.table[number]
        self._known[place] = _Known(code, reference[:start], reference[-end:] if end else b"")
        return code

    def _decode(self, code: Code) -> bytes:
        number, start, end, own = code
        if number < 0:
            return zlib.decompress(own)
        reference = self.table[number]
        if start + end > len(reference):
            raise IndexError(f"reference {number} was lost")
        return reference[:start] + own + (reference[-end:] if end else b"")

    def restore(self, number: int, text: bytes) -> None:
        """Add a reference from the journal or the database, in order.

        Missing references before it are empty, so texts that use them cannot be decoded.
        """
        if number >= len(self.table):
            self.table += [b""] * (number - len(self.table)) + [text]
            self._size += len(text)


def _difference(reference: bytes, text: bytes, number: int) -> Code:
    start = _common(reference, text)
    end = _common(reference[start:][::-1], text[start:][::-1])
    return (number, start, end, text[start : len(text) - end])


def _common(one: bytes, other: bytes) -> int:
    """The number of equal bytes at the start, found by bisection, so that the comparison runs in C."""
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
    """A submission: the parts of `J` (RFC 15), and ingest's additions to the jobspec.

    The text of the jobspec is `Texts.decode(text, environment)`. Without `environment`, `text` is the whole jobspec.
    """

    head: bytes
    text: Code
    tail: bytes
    updates: dict[str, Any] | None = None
    environment: Code | None = None


# The text of a log, or the size of the log's file in bytes, or this size and the text that did not fit in the file.
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
    """Split `HEADER.PAYLOAD.SIGNATURE` into (header, decoded payload, signature). Raises ValueError."""
    head, dot, rest = j.partition(".")
    payload, dot2, tail = rest.partition(".")
    if not dot or not dot2:
        raise ValueError("J is not of the form HEADER.PAYLOAD.SIGNATURE")
    try:
        return head.encode("ascii"), _from_base64(payload), tail.encode("ascii")
    except (UnicodeEncodeError, ValueError) as exc:
        raise ValueError(f"J: {exc}") from None


def _from_base64(text: str) -> bytes:
    """Decode base64. Raises ValueError.

    msgspec decodes eight times as fast as the standard library, which is used for its message about invalid text.
    """
    try:
        return msgspec.convert(text, bytes)
    except msgspec.ValidationError:
        return base64.b64decode(text, validate=True)


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
    """The line of an event, with its newline."""
    return _JSON.encode(EventLine(event[0], event[1], event[2])) + b"\n"


_decode_line = msgspec.json.Decoder(EventLine).decode


def events_of(text: str) -> list[Event]:
    """The events of an eventlog. Raises msgspec.DecodeError.

    Only a newline ends an event: JSON may contain other characters at which `splitlines` splits.
    """
    lines = map(_decode_line, text.rstrip("\n").split("\n") if text else ())
    return [(line.timestamp, line.name, line.context) for line in lines]
