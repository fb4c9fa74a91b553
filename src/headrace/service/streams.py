"""Streamed responses: how many may be open, and how they end when they cannot continue."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NoReturn

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from headrace.service.jobs import BadOutput
from headrace.service.middleware import Cut

MOST_OF_USER = 64
MOST = 1000
# Seconds between two checks that the user still has access.
CHECK_INTERVAL = 10.0


class TooManyStreams(RuntimeError):
    """A user, or all users together, have the maximum number of streams. The text is for users."""


class Slots:
    """The number of open streams of each user."""

    def __init__(self) -> None:
        self._open: Counter[int] = Counter()

    def take(self, userid: int) -> None:
        """Take a slot for a stream. Raises TooManyStreams."""
        if self._open[userid] >= MOST_OF_USER:
            raise TooManyStreams(f"you have {MOST_OF_USER} open streams, the maximum for a user: close one")
        if self._open.total() >= MOST:
            raise TooManyStreams(f"the service has {MOST} open streams, its maximum: try again later")
        self._open[userid] += 1

    def give_back(self, userid: int) -> None:
        self._open[userid] -= 1
        if not self._open[userid]:
            del self._open[userid]


class Stream(StreamingResponse):
    """A response that sends its pieces as they become available.

    It holds a slot of its user until its end. It is cut when `has_access` is False: the token was revoked or has
    expired, the user was removed, or the role has changed.
    """

    def __init__(
        self,
        slots: Slots,
        userid: int,
        has_access: Callable[[], Awaitable[bool]],
        pieces: AsyncIterator[bytes],
        media_type: str,
        headers: dict[str, str] | None = None,
    ) -> None:
        slots.take(userid)
        self._slots = slots
        self._userid = userid
        self._has_access = has_access
        super().__init__(_or_cut(pieces), headers=headers, media_type=media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(super().__call__(scope, receive, send))
        try:
            while not (await asyncio.wait({sending}, timeout=CHECK_INTERVAL))[0]:
                if not await self._has_access():
                    raise Cut("the user no longer has access")
            await sending
        finally:
            self._slots.give_back(self._userid)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def _or_cut(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for piece in pieces:
            yield piece
    except (OSError, BadOutput) as exc:
        _cut(exc)


def _cut(exc: Exception) -> NoReturn:
    raise Cut(str(exc)) from None
