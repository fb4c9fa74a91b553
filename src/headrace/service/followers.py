"""Following job logs (eventlog, output) for many readers, with one broker stream per user and log.

200 readers of one output would otherwise cost the broker 200 responses for each line. The last 1 MiB of the stream is
kept, and each reader reads it at its own pace. The stream is read at most 1 MiB ahead of its fastest reader. If a
reader's next line is no longer kept, the reader continues with a stream of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

from headrace.service.broker_link import UNREAD_LIMIT, BrokerLink, BrokerUnreachable


class _Line(NamedTuple):
    """An event of a log as JSON, and its end as an offset in the log."""

    text: str
    end: int


class _Log:
    """One stream of the broker and its last lines: those with the numbers `first` to `next` - 1."""

    def __init__(self, link: BrokerLink, id: int, path: str) -> None:
        self.lines: list[_Line] = []
        self.first = 0
        self.failure: Exception | None = None
        self.ended = False
        # For each reader, the number of the line that it reads next.
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
        """Wake the stream after a reader has advanced or stopped."""
        self._taken.set()

    def _unread(self) -> int:
        """Bytes that the fastest reader has not read yet."""
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
            # `follow` raises a copy for each reader.
            self.failure = exc
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _forget(self) -> None:
        """Drop lines that the fastest reader has read, except for the last UNREAD_LIMIT bytes.

        Lines are dropped only when more than twice as many bytes are kept, so that each call drops many lines.
        """
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
    """The followed logs. Users do not share a stream, because they may see different jobs."""

    def __init__(self) -> None:
        self._logs: dict[object, _Log] = {}

    async def follow(self, link: BrokerLink, id: int, path: str, skip: int = 0) -> AsyncIterator[str]:
        """The lines of a job's log after the first `skip`, as they arrive, until the log ends.

        Raises as BrokerLink.follow does.
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
    """A copy of an exception for one reader. A shared one would collect the tracebacks of all readers."""
    if isinstance(exc, BrokerUnreachable):
        return BrokerUnreachable(str(exc.strerror))
    return OSError(exc.errno, exc.strerror) if isinstance(exc, OSError) else RuntimeError(str(exc))
