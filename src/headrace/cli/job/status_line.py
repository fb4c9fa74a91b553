"""The line of status that `flux job attach` shows while a job is pending: what it waits for, and for how long."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from headrace.client.reactor import Reactor, Timer

# What a job does after an event of its eventlog.
_AFTER = {
    "validate": "resolving dependencies",
    "depend": "waiting for priority assignment",
    "priority": "waiting for resources",
    "alloc": "starting",
    "prolog-start": "waiting for job prolog",
    "prolog-finish": "starting",
    "start": "started",
    "exception": "canceling due to exception",
}
_LAST = ("start", "clean")


class StatusLine:
    """Drawn on standard error by `reactor`, first after `delay` seconds, then every second."""

    def __init__(self, name: str, reactor: Reactor, delay: float) -> None:
        self._name = name
        self._text = ""
        self._begin = time.monotonic()
        self._drawn = False
        self._shown = delay == 0.0
        self._timer: Optional[Timer] = reactor.add_timer(delay or 1.0, self._tick, 1.0)

    def _tick(self) -> None:
        self._shown = True
        self._draw()

    def event(self, name: str) -> bool:
        """Take an event of the job. True when it was the last one of interest: the line is finished then."""
        self._text = _AFTER.get(name, self._text)
        if self._shown:
            self._draw()
        if name in _LAST:
            self.close()
            return True
        return False

    def _draw(self) -> None:
        if not self._text:
            return
        try:
            columns = os.get_terminal_size(2).columns or 80
        except OSError:
            columns = 80
        seconds = int(time.monotonic() - self._begin)
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        start = f"flux-job: {self._name} "
        sys.stderr.write(f"\r{start}{self._text:<{max(1, columns - len(start) - len(clock) - 1)}} {clock}\r")
        sys.stderr.flush()
        self._drawn = True

    def close(self) -> None:
        """Leave the line as it is and draw it no more."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
            if self._drawn:
                sys.stderr.write("\n")
                sys.stderr.flush()
