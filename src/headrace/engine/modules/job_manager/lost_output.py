"""Log lines of the instance about lost output of jobs.

A full disk affects many jobs at once, and a line for each would displace all others in the log. So the first job gets a
line at once, and then one line every ten seconds counts the others.
"""

from __future__ import annotations

import asyncio
import logging

from headrace.engine.broker.module.context import ModuleContext
from headrace.formats.spec import jobid

# Seconds between two lines.
_EVERY = 10.0


class LostOutput:
    """`add` each job with lost output, and `close` at the end."""

    def __init__(self, ctx: ModuleContext) -> None:
        self._ctx = ctx
        self._jobs: set[int] = set()
        self._last = ""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, id: int, why: str) -> None:
        """Add a job; `why` is a text that begins with "output is lost"."""
        self._last = f"{jobid.encode(id)}: {why}"
        if self._timer is None:
            self._say(self._last)
        else:
            self._jobs.add(id)

    def _say(self, text: str) -> None:
        self._ctx.log(logging.WARNING, text)
        self._timer = self._ctx.call_later(_EVERY, self._more)

    def _more(self) -> None:
        self._timer = None
        if self._jobs:
            others = len(self._jobs) - 1
            self._jobs.clear()
            self._say(f"{self._last} (and that of {others} other jobs)" if others else self._last)

    def close(self) -> None:
        """Log the jobs that wait for the next line."""
        if self._timer is not None:
            self._timer.cancel()
            self._more()
