"""Lines of a byte stream: of PMI-1 (RFC 13), of pipes, and of JSON with one object a line."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


class LineReader:
    """Cuts a byte stream into lines, however it arrives.

    `rest` has the bytes after the last newline. With a `limit`, a longer rest is a line as well.
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
        """Return the rest, and begin a new line: the stream has ended, or the line is too long."""
        rest = bytes(self.rest)
        self.rest.clear()
        return rest
