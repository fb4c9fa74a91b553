"""The events of all jobs, from one stream of the job manager's journal for all followers.

Each follower gets the events that its user may see. The last events are kept for followers that reconnect
(Last-Event-ID). The service requests the stream as itself, because only owners may read the journal
(broker_link.OWN_TOPICS). The stream ends when it has had no follower for a while.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from headrace.service.broker_link import BrokerLink, BrokerUnreachable
from headrace.service.users.credential import Identity

# The number of events that are kept.
_MOST = 10_000
# Seconds without followers after which the stream ends.
_IDLE = 300.0


class News(NamedTuple):
    """An event (RFC 21) with its number in the Journal, its job, and the job's user (None: unknown)."""

    number: int
    id: int
    userid: int | None
    event: dict[str, Any]


class Behind(ConnectionError):
    """A follower is so far behind that its next event is no longer kept."""


class Journal:
    """The events of one stream of the broker.

    `name` is part of the ids of its events, because the numbers of each stream begin at 1.
    """

    def __init__(self, link: BrokerLink) -> None:
        self.name = secrets.token_hex(4)
        self.lost = ""
        self._kept: deque[News] = deque(maxlen=_MOST)
        self._number = 0
        self._users: dict[int, int] = {}
        self._followers = 0
        self._news = asyncio.Event()
        self._ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self._read(link))
        self._timer: asyncio.TimerHandle | None = None

    def of_this_loop(self) -> bool:
        return self._loop is asyncio.get_running_loop()

    def has(self, number: int) -> bool:
        """True if all events after this number are kept."""
        return self._number - len(self._kept) <= number <= self._number

    async def begin(self) -> int:
        """Wait until all past events are read; return the last event's number. Raises BrokerUnreachable."""
        await self._ready.wait()
        if self.lost:
            raise BrokerUnreachable(self.lost)
        return self._number

    async def follow(self, identity: Identity, after: int) -> AsyncIterator[News]:
        """The events after this number that the user may see. Raises BrokerUnreachable, Behind."""
        self._followers += 1
        if self._timer is not None:
            self._timer.cancel()
        try:
            while True:
                if not self.has(after):
                    raise Behind(f"more than {_MOST} events are not taken")
                start = len(self._kept) - (self._number - after)
                for news in list(self._kept)[start:]:
                    if identity.sees_all or news.userid == identity.userid:
                        yield news
                    after = news.number
                if after < self._number:
                    continue
                if self.lost:
                    raise BrokerUnreachable(self.lost)
                await self._news.wait()
        finally:
            self._followers -= 1
            if not self._followers and not self._loop.is_closed():
                self._timer = self._loop.call_later(_IDLE, self.close)

    def close(self) -> None:
        self._task.cancel()
        self.lost = self.lost or "no request follows the journal"

    async def _read(self, link: BrokerLink) -> None:
        try:
            async for batch in link.follow("job-manager.events-journal", {"full": False}):
                self._take(batch)
            self.lost = "the journal has ended"
        except OSError as exc:
            self.lost = str(exc.strerror or exc)
        finally:
            self._ready.set()
            self._wake()

    def _take(self, batch: dict[str, Any]) -> None:
        id, events = batch["id"], batch["events"]
        if not events:
            # An empty batch ends the past events of active jobs (RFC 21). They have given the users of these jobs.
            self._ready.set()
            return
        for event in events:
            if event["name"] == "submit":
                self._users[id] = event["context"]["userid"]
            if self._ready.is_set():
                self._number += 1
                self._kept.append(News(self._number, id, self._users.get(id), event))
            if event["name"] == "clean":
                self._users.pop(id, None)
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
