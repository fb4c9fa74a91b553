"""When a broker probes its children, because a connection has ended and ZeroMQ does not tell which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# Seconds after which ZeroMQ refuses to send to a child that is gone.
_DELAY = 0.05


class Probes:
    """Calls `probe` at once when a connection has ended, and once more later: ZeroMQ forgets a peer only then.

    Connections that end meanwhile share the later probe.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, probe: Callable[[], None]) -> None:
        self._loop = loop
        self._probe = probe
        self._timer: asyncio.TimerHandle | None = None
        # Whether connections have ended since the first probe.
        self._more = False

    def connection_ended(self) -> None:
        if self._timer is not None:
            self._more = True
            return
        self._timer = self._loop.call_later(_DELAY, self._delayed)
        self._probe()

    def _delayed(self) -> None:
        self._timer = None
        if self._more:
            self._more = False
            self.connection_ended()
        else:
            self._probe()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
