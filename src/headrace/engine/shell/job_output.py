"""A job's output on its way from the tasks of all nodes to the broker, with credit-based flow control.

If the unacknowledged output of a shell exceeds the window, the shell stops reading its tasks, which then block in
write(2). The lead shell returns credit for output that it has passed on to its broker. So a slow consumer slows down
the tasks of all nodes, and no broker on the path buffers more than one window for each node of the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.formats.spec import stdio

from .output import Output

if TYPE_CHECKING:
    from .reports import Reports
    from .templates import Names

# Levels of log entries (RFC 24).
FATAL, WARN, NOTICE, DEBUG = 0, 4, 5, 6
# Bytes that may be unacknowledged, and bytes for which the lead shell returns credit in one message.
_WINDOW, _CREDIT = 512 << 10, 128 << 10


class SendWindow:
    """The sender's side of flow control.

    `pause(True)` is called when the window is full, `pause(False)` once it has room again.
    """

    def __init__(self, pause: Callable[[bool], None]) -> None:
        self._pause = pause
        self._on_way = 0
        self._full = False
        self._open = False

    def sent(self, size: int) -> None:
        self._on_way += size
        self._decide()

    def taken(self, size: int) -> None:
        self._on_way -= size
        self._decide()

    def open(self) -> None:
        """Disable flow control, because the job ends and its lead shell may be gone."""
        self._open = True
        self._decide()

    def _decide(self) -> None:
        full = self._on_way > _WINDOW and not self._open
        if full != self._full:
            self._full = full
            self._pause(full)


class Credits:
    """The lead shell's side of flow control: counts the bytes of each node that it has passed on.

    `grant(nodeid, size)` returns credit to a shell.
    """

    def __init__(self, grant: Callable[[int, int], None]) -> None:
        self._grant = grant
        self._passed: dict[int, int] = {}

    def passed(self, nodeid: int, size: int) -> None:
        total = self._passed.get(nodeid, 0) + size
        if total >= _CREDIT:
            self._grant(nodeid, total)
            total = 0
        self._passed[nodeid] = total


def size_of(message: dict[str, Any]) -> int:
    """Bytes of output in a message to the lead shell."""
    if message["kind"] == "file":
        return len(message["data"])
    return sum(len(entry[2].get("data") or "") for entry in message["entries"] if entry[1] == "data")


class JobOutput:
    """The output of one job on node `nodeid`.

    `pause(on)` stops or resumes reading the tasks. `output` is None before `open`; until then, messages to `log` are
    dropped. `lost(why)` is called once if a part of an output file could not be written.
    """

    def __init__(
        self, nodeid: int, reports: Reports, pause: Callable[[bool], None], lost: Callable[[str], None]
    ) -> None:
        self._nodeid = nodeid
        self._reports = reports
        self._lost = lost
        self._is_lost = False
        self.output: Output | None = None
        self.window = SendWindow(pause)
        self._credits = Credits(lambda nodeid, size: reports.to_peer(nodeid, {"kind": "taken", "bytes": size}))

    def open(self, option: Any, names: Names, most: int | None) -> None:
        """Open the output for the shell option `output`. `most` limits its `limit`. Raises OutputError."""
        self.output = output = Output(
            option if isinstance(option, dict) else {},
            self._nodeid,
            names.size,
            names.ranks,
            names.lookup,
            self._reports.output,
            self._to_lead,
            self._file_lost,
            most,
        )
        output.open()

    def log(self, level: int, text: str, component: str | None = None) -> None:
        """Write a message of the shell to the job's log."""
        if self.output is not None:
            self.output.log(level, text, self._nodeid, component)

    def log_failure(self, note: str, component: str | None, trace: str) -> None:
        """Log why the job fails. If the output is not open, the lead shell writes a log with only this entry."""
        if self.output is not None:
            self.output.log(FATAL, note, self._nodeid, component)
        elif self._nodeid == 0:
            header = [time.time(), "header", stdio.header({"stdout": 1, "stderr": 1})]
            entry = [time.time(), "log", stdio.log(FATAL, trace or note, self._nodeid, component)]
            self._reports.output([header, entry])

    def from_peer(self, source: int, data: dict[str, Any]) -> None:
        """In the lead shell: handle output of node `source`."""
        if self.output is not None:
            self.output.from_peer(data)
        self._credits.passed(source, size_of(data))

    def close(self) -> None:
        if self.output is not None:
            self.output.close()

    def _to_lead(self, message: dict[str, Any]) -> None:
        self._reports.to_peer(0, message)
        self.window.sent(size_of(message))

    def _file_lost(self, why: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._lost(why)
