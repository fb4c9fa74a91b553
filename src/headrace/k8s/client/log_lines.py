"""Joins several streams of one container's log: each line appears once, without its time stamp.

A log that is followed may need several streams, one after another. The log API can continue only from `sinceTime`,
which reaches the kubelet in whole seconds, so each further stream begins with lines that were already read. They are
recognized by the stamps of `timestamps=true`. Source: API reference of Kubernetes 1.34 (core/v1, log of a Pod). Pure.
"""

from __future__ import annotations

import re
import sys
from collections import Counter

# The stamp before each line: RFC 3339 with a fraction of a second, and a blank.
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d) ")
_PART_OF_STAMP = re.compile(rb"[-+.:\dTZ]*")
# A line or a part of a line. A carriage return does not end a line.
_PART = re.compile(rb"[^\n]*\n|[^\n]+")


class Lines:
    """The joined lines of a container's log streams.

    `since` is the `sinceTime` of the next stream, "" at first.
    """

    def __init__(self) -> None:
        self.since = ""
        # The stamps of the lines within the second `since`, and those that the present stream has yet to repeat.
        self._known: Counter[bytes] = Counter()
        self._repeated: Counter[bytes] = Counter()
        # The stamp of the last new line, and how many of its bytes were returned: a stream may be cut within a line.
        self._last = b""
        self._passed = 0
        # The start of a line whose stamp is not complete yet.
        self._head = b""
        # True if the last part did not end its line.
        self._is_within = False
        # How many bytes of the present line are still to be skipped, because they were returned before.
        self._skip = 0

    def restart(self) -> None:
        """Expect another stream, which begins at `since`."""
        self._repeated = self._known.copy()
        self._head, self._is_within = b"", False

    def new_of(self, chunk: bytes) -> bytes:
        """The new bytes in the next chunk of the stream; an incomplete line is returned as far as it goes."""
        return b"".join(map(self._new_of_part, _PART.findall(chunk)))

    def _new_of_part(self, part: bytes) -> bytes:
        if not self._is_within:
            part = self._head + part
            stamp = _STAMP.match(part)
            self._head = part if not stamp and _PART_OF_STAMP.fullmatch(part) else b""
            if self._head:
                return b""
            self._begin(stamp)
            part = part[stamp.end() :] if stamp else part
        self._is_within = not part.endswith(b"\n")
        new = part[self._skip :]
        self._skip -= min(self._skip, len(part))
        self._passed += len(new)
        return new

    def _begin(self, stamp: re.Match[bytes] | None) -> None:
        """Begin another line. A line without a stamp is the kubelet's own, such as an error."""
        self._skip = 0
        if not stamp:
            self._last = b""
            return
        if self._repeated[stamp[0]]:
            self._repeated[stamp[0]] -= 1
            was_cut = stamp[0] == self._last and not self._repeated[stamp[0]]
            self._skip = self._passed if was_cut else sys.maxsize
            return
        second = (stamp[1] + stamp[2]).decode()
        if second != self.since:
            self.since = second
            self._known.clear()
        self._known[stamp[0]] += 1
        self._last, self._passed = stamp[0], 0
