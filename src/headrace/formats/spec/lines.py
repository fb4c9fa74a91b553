"""Lines of a byte stream: PMI-1 messages (RFC 13), output of pipes, and JSON objects on one line each."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


class LineReader:
    """Splits a byte stream that arrives in pieces into lines.

    `rest` has the bytes after the last newline. With a `limit`, a longer rest is returned as a line.
    """

    __slots__ = ("_limit", "rest")

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit
        self.rest = bytearray()

    def feed(self, data: bytes) -> List[bytes]:
        """Return the lines that `data` completes, without their newlines."""
        self.rest += data
        lines: List[bytes] = []
        if b"\n" in data:
            *lines, rest = bytes(self.rest).split(b"\n")
            self.rest = bytearray(rest)
        if self._limit and len(self.rest) > self._limit:
            lines.append(self.take_rest())
        return lines

    def take_rest(self) -> bytes:
        """Return the rest, and start a new line; for the end of the stream or a line that is too long."""
        rest = bytes(self.rest)
        self.rest.clear()
        return rest
