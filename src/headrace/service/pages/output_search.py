"""Text search in a job's output, piece by piece, so that long output needs little memory.

Each stream has its own lines. The search is for plain text and ignores case.
"""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from headrace.formats.spec.stdio import Data
from headrace.service.pages import terminal

# The maximum number of lines that are shown, and of bytes that are searched.
MOST_FOUND = 100
MOST_READ = 256 << 20
# The maximum length of the search text, in characters.
LONGEST_TEXT = 200
# Characters that are shown before and after a match. A longer text without a line end counts as a line.
_AROUND = 100
_LONGEST_LINE = 1 << 16


class Found(NamedTuple):
    """A line with a match, shortened if it is long. `number` is its number in its stream, from 1."""

    stream: str
    number: int
    before: str
    text: str
    after: str


class _Stream:
    """The unfinished line of one stream, which is not searched yet, and the number of lines before."""

    def __init__(self) -> None:
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.rest = ""
        self.lines = 0


class Search:
    """A search that gets the output in order.

    `found` has the first MOST_FOUND lines. `more` is True if there are more, or if not all output was searched.
    """

    def __init__(self, text: str) -> None:
        self.text = text[:LONGEST_TEXT]
        self.found: list[Found] = []
        self.more = False
        self.read = 0
        self._pattern = re.compile(re.escape(self.text), re.IGNORECASE)
        self._streams: dict[str, _Stream] = {}

    @property
    def ended(self) -> bool:
        """True if more output would not change the result."""
        return self.more or not self.text

    def add(self, part: Data) -> None:
        if self.ended or not part.data:
            return
        if self.read >= MOST_READ:
            self.more = True
            return
        self.read += len(part.data)
        stream = self._streams.setdefault(part.stream, _Stream())
        text = stream.rest + stream.decoder.decode(part.data)
        end = text.rfind("\n") + 1
        if not end and len(text) > _LONGEST_LINE:
            end = len(text)
        stream.rest = text[end:]
        self._look(part.stream, stream, text[:end])

    def finish(self) -> None:
        """Search the unfinished lines."""
        for name, stream in self._streams.items():
            rest, stream.rest = stream.rest, ""
            self._look(name, stream, rest)

    def _look(self, name: str, stream: _Stream, text: str) -> None:
        # Control sequences are removed first, because a change of colour may be within the text.
        text = terminal.without_controls(text)
        counted = at = 0
        while match := self._pattern.search(text, at):
            begin, end = match.span()
            if len(self.found) == MOST_FOUND:
                self.more = True
                return
            stream.lines += text.count("\n", counted, begin)
            counted = begin
            first = text.rfind("\n", 0, begin) + 1
            last = text.find("\n", end)
            last = len(text) if last < 0 else last
            before, after = text[max(first, begin - _AROUND) : begin], text[end : min(last, end + _AROUND)]
            self.found.append(
                Found(
                    name,
                    stream.lines + 1,
                    ("…" if begin - first > _AROUND else "") + before,
                    match[0],
                    after + ("…" if last - end > _AROUND else ""),
                )
            )
            # A line is shown once, however many matches it has.
            at = last
        stream.lines += text.count("\n", counted)
