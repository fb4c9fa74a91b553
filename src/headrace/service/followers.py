"""Following a job's logs (eventlog, output) for many readers: those of one log share one stream of the broker.

200 readers of one output would otherwise cost the broker 200 responses for each line. The last 1 MiB of the stream is
kept, and each reader goes through it at its own pace. The stream is read no further than that ahead of its fastest
reader. A reader that needs lines that are no longer kept continues with a stream of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

from headrace.service.broker_link import UNREAD_LIMIT, BrokerLink, BrokerUnreachable


class _Line(NamedTuple):
    """An event of a log as JSON, and the bytes of the log up to its end."""

    text: str
    end: int


class _Log:
    """One stream of the broker and its last lines: numbers `first` to `next` of the log."""

    def __init__(self, link: BrokerLink, id: int, path: str) -> None:
        self.lines: list[_Line] = []
        self.first = 0
        self.failure: Exception | None = None
        self.ended = False
        # Where each reader is.
        self.readers: dict[object, int] = {}
        self._begin = 0
        self._total = 0
        self._news = asyncio.Event()
        self._taken = asyncio.Event()
        self.task = asyncio.ensure_future(self._read(link, id, path))

    @property
    def next(self) -> int:
        return self.first + len(self.lines)

    async def news(self) -> None:
        await self._news.wait()

    def took(self) -> None:
        """A reader has gone on."""
        self._taken.set()

    def _unread(self) -> int:
        """Bytes that the fastest reader has not taken."""
        at = max(self.readers.values(), default=0) - self.first
        return self._total - (self._begin if at <= 0 else self.lines[min(at, len(self.lines)) - 1].end)

    async def _read(self, link: BrokerLink, id: int, path: str) -> None:
        try:
            async for text in _stream(link, id, path):
                self._total += len(text)
                self.lines.append(_Line(text, self._total))
                self._wake()
                while self._unread() > UNREAD_LIMIT:
                    self._taken.clear()
                    await self._taken.wait()
                self._forget()
        except Exception as exc:
            # Raised again for each reader of the log.
            self.failure = exc
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _forget(self) -> None:
        """Drop lines that the fastest reader has taken, beyond the limit; half of it at a time."""
        if self._total - self._begin <= 2 * UNREAD_LIMIT:
            return
        most = max(self.readers.values(), default=self.next) - self.first
        count = 0
        while count < min(most, len(self.lines)) and self._total - self.lines[count].end >= UNREAD_LIMIT:
            count += 1
        if count:
            self._begin = self.lines[count - 1].end
            del self.lines[:count]
            self.first += count


class Followers:
    """The logs that are followed, by user: what one user may see is no other's."""

    def __init__(self) -> None:
        self._logs: dict[object, _Log] = {}

    async def follow(self, link: BrokerLink, id: int, path: str, skip: int = 0) -> AsyncIterator[str]:
        """The lines of a job's log after the first `skip`, as they come, to the log's end; raises as
        BrokerLink.follow does.
        """
        key = (asyncio.get_running_loop(), link.identity, id, path)
        log = self._logs.get(key)
        if log is None or log.failure is not None:
            log = self._logs[key] = _Log(link, id, path)
        reader = object()
        at = log.readers[reader] = skip
        try:
            while at >= log.first:
                if at < log.next:
                    yield log.lines[at - log.first].text
                    at += 1
                    log.readers[reader] = at
                    log.took()
                elif log.ended:
                    if log.failure is not None:
                        raise _copy_of(log.failure)
                    return
                else:
                    await log.news()
        finally:
            del log.readers[reader]
            log.took()
            if not log.readers:
                log.task.cancel()
                with contextlib.suppress(KeyError):
                    if self._logs[key] is log:
                        del self._logs[key]
        number = 0
        async for text in _stream(link, id, path):
            number += 1
            if number > at:
                yield text


async def _stream(link: BrokerLink, id: int, path: str) -> AsyncIterator[str]:
    async for answer in link.follow("job-info.eventlog-watch", {"id": id, "path": path, "flags": 0}):
        yield answer["event"]


def _copy_of(exc: Exception) -> Exception:
    """An exception for one reader, as one that is raised several times would gather their tracebacks."""
    if isinstance(exc, BrokerUnreachable):
        return BrokerUnreachable(str(exc.strerror))
    return OSError(exc.errno, exc.strerror) if isinstance(exc, OSError) else RuntimeError(str(exc))
