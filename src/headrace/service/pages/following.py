"""A job's output for its page: the output so far, then server-sent events (HTML, section 9.2).

The id of a server-sent event is the number of events of the output log that were read, so a browser that reconnects
continues there (`Last-Event-ID`).
"""

from __future__ import annotations

import codecs
import json
from collections.abc import AsyncIterator, Iterable
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from headrace.formats.spec.stdio import Data
from headrace.service import jobs
from headrace.service.broker_link import BrokerLink
from headrace.service.pages.terminal import LONGEST_LINE, Run, Screen


class Piece(NamedTuple):
    """Output of one stream: complete lines, or one unfinished line.

    `writer` is the stream and the task rank that may rewrite an unfinished line; "" for complete lines.
    """

    writer: str
    stream: str
    runs: list[Run]


class _Writer:
    def __init__(self) -> None:
        self.screen = Screen()
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")


class Writers:
    """The screens of a job's writers. Each stream of each task is a writer with its own lines."""

    def __init__(self) -> None:
        self._writers: dict[str, _Writer] = {}
        self._skipped: dict[str, bytes] = {}

    def skip(self, part: Data) -> None:
        """Skip output that was shown before, but keep its unfinished line."""
        _, newline, line = (part.data or b"").rpartition(b"\n")
        kept = line if newline else self._skipped.get(_name(part), b"") + line
        if kept:
            self._skipped[_name(part)] = kept[-LONGEST_LINE:]
        else:
            self._skipped.pop(_name(part), None)

    def feed(self, part: Data) -> list[Run]:
        """Add output, and return the lines that it completed."""
        name = _name(part)
        writer = self._writers.setdefault(name, _Writer())
        if name in self._skipped:
            writer.screen.feed(writer.decoder.decode(self._skipped.pop(name)))
        done = writer.screen.feed(writer.decoder.decode(part.data or b""))
        if writer.screen.is_blank and not writer.decoder.getstate()[0]:
            del self._writers[name]
        return done

    def line(self, name: str) -> list[Run]:
        """The unfinished line of a writer."""
        writer = self._writers.get(name)
        return writer.screen.line() if writer else []

    def has_line(self, name: str) -> bool:
        return name in self._writers and self._writers[name].screen.has_line


def _name(part: Data) -> str:
    return f"{part.stream} {part.rank}"


def pieces(parts: Iterable[Data]) -> list[Piece]:
    """The pieces of output so far. An unfinished line is placed where it began."""
    writers = Writers()
    found: list[Piece] = []
    # By writer, the index in `found` of its unfinished line.
    places: dict[str, int] = {}
    for part in parts:
        name, done = _name(part), writers.feed(part)
        if done:
            piece = Piece("", part.stream, done)
            place = places.pop(name, None)
            if place is not None:
                found[place] = piece
            elif found and found[-1].stream == part.stream and not found[-1].writer:
                found[-1].runs.extend(done)
            else:
                found.append(piece)
        if writers.has_line(name) and name not in places:
            places[name] = len(found)
            found.append(Piece(name, part.stream, []))
    for name, place in places.items():
        found[place] = found[place]._replace(runs=writers.line(name))
    return [piece._replace(runs=_joined(piece.runs)) for piece in found if piece.runs]


def _joined(runs: list[Run]) -> list[Run]:
    return [Run(style, "".join(run.text for run in same)) for style, same in groupby(runs, key=itemgetter(0))]


async def events(link: BrokerLink, id: int, read: int) -> AsyncIterator[bytes]:
    """Server-sent events of a job's output after `read` events of its log, until the output ends.

    In an event, `done` has the completed lines, and `line` the writer's unfinished line, which replaces the previous
    one. Raises OSError, BadOutput.
    """
    writers = Writers()
    number = 0
    async for part in jobs.follow_output(link, id):
        number += 1
        if not part.data:
            continue
        if number <= read:
            writers.skip(part)
            continue
        done = writers.feed(part)
        name = _name(part)
        piece = {"writer": name, "stream": part.stream, "done": _joined(done), "line": writers.line(name)}
        yield f"id: {number}\ndata: {json.dumps(piece)}\n\n".encode()
    yield b"event: end\ndata:\n\n"
