"""The status line of `flux job attach` for a pending job: what the job waits for, and for how long."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from headrace.wire.client.handle import Handle, Rpc
    from headrace.wire.client.reactor import Reactor, Timer

# The state of a job, as Flux words it, after an event of its eventlog.
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
# The state in which a stopped queue holds a job back.
_KEPT_BACK = _AFTER["priority"]
# Flux's name for the queue of an instance without queues.
_ANONYMOUS = "default"


class StatusLine:
    """Draws the line on standard error, first after `delay` seconds, then every second.

    `reactor` runs the timer; `handle` is used to ask whether the queue of `job` is stopped.
    """

    def __init__(self, handle: Handle, job: int, name: str, reactor: Reactor, delay: float) -> None:
        self._handle = handle
        self._job = job
        self._name = name
        # The job's queue if it is stopped, otherwise ""; and True while a request for that is pending.
        self._stopped = ""
        self._asking = False
        self._text = ""
        self._begin = time.monotonic()
        self._drawn = False
        self._shown = delay == 0.0
        self._timer: Optional[Timer] = reactor.add_timer(delay or 1.0, self._tick, 1.0)

    def _tick(self) -> None:
        self._shown = True
        self._look()
        self._draw()

    def _look(self) -> None:
        """Ask for the job's queue, which may have changed, and then whether the queue is stopped."""
        if self._text != _KEPT_BACK or self._asking:
            return
        self._asking = True

        def of_job(call: Rpc) -> None:
            queue = _answer(call).get("job", {}).get("queue", "")
            request = {"name": queue} if queue else {}
            self._handle.rpc("job-manager.queue-status", request, 0).then(lambda status: of_queue(queue, status))

        def of_queue(queue: str, call: Rpc) -> None:
            self._asking = False
            stopped = not _answer(call).get("start", True)
            self._stopped = (queue or _ANONYMOUS) if stopped else ""
            if self._timer is not None and self._shown:
                self._draw()

        self._handle.rpc("job-list.list-id", {"id": self._job, "attrs": ["queue"]}).then(of_job)

    def event(self, name: str) -> bool:
        """Update the line for an event of the job.

        Returns True, and closes the line, if the job is not pending now.
        """
        self._text = _AFTER.get(name, self._text)
        if self._shown:
            self._look()
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
        text = self._text
        if self._stopped and text == _KEPT_BACK:
            text = f"{text} ({self._stopped} queue stopped)"
        sys.stderr.write(f"\r{start}{text:<{max(1, columns - len(start) - len(clock) - 1)}} {clock}\r")
        sys.stderr.flush()
        self._drawn = True

    def close(self) -> None:
        """Stop drawing and leave the line as it is."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
            if self._drawn:
                sys.stderr.write("\n")
                sys.stderr.flush()


def _answer(call: Rpc) -> Dict[str, Any]:
    """The response, or {} for an error, which means that the queue is not known."""
    try:
        return call.get() or {}
    except OSError:
        return {}
