"""A connection of HTTP whose requests have to come within a time: uvicorn would wait for the rest of one for ever, and
connections that are held so could use up all descriptors.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Seconds from the begin of a connection, or of a request, until the request is whole, with its body.
REQUEST_TIME = 60.0


class TimelyConnection(HttpToolsProtocol):
    """Closed where a request is late. How long its answer takes is of no account."""

    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        # A request that was sent before the last one was answered waits for that answer.
        if self.cycle is None or self.cycle.response_complete:
            self._expect()

    def on_message_complete(self) -> None:
        self._expect_nothing()
        super().on_message_complete()

    def _expect(self) -> None:
        self._expect_nothing()
        self._due = self.loop.call_later(REQUEST_TIME, self.transport.abort)

    def _expect_nothing(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
