"""`flux job attach --tail`: of the output that is there already, only the last lines.

How much is there is asked before the output is followed: what comes after that is shown as it comes.
"""

from __future__ import annotations

from collections import deque
from io import BytesIO

from headrace.formats.spec.eventlog import decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Deque, List, Tuple

    from headrace.wire.client.handle import Handle

DEFAULT = 10


class Tail:
    """Holds the last `count` lines of a job's output until all that was there has been seen."""

    def __init__(self, handle: Handle, job: int, count: int) -> None:
        request = {"id": job, "keys": ["guest.output"], "flags": 0}
        try:
            log = handle.rpc("job-info.lookup", request).get()["guest.output"]
        except FileNotFoundError:
            log = ""
        self._left = len(decode(log))
        self._lines: Deque[Tuple[str, bytes]] = deque(maxlen=count)

    def holds(self, stream: str, data: bytes) -> bool:
        """Whether this is of the past, and so kept here."""
        if not self._left:
            return False
        self._lines.extend((stream, line) for line in BytesIO(data))
        return True

    def passed(self) -> List[Tuple[str, bytes]]:
        """One entry of the log has been seen: the lines that are left (stream, text) when it was the last one there."""
        if not self._left:
            return []
        self._left -= 1
        return [] if self._left else list(self._lines)
