"""`flux job attach --tail`: shows only the last lines of a job's earlier output.

The number of entries in the output log is read before the output is followed. Later entries are shown as they come.
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
    """Keeps the last `count` lines of a job's earlier output until all its entries have been seen."""

    def __init__(self, handle: Handle, job: int, count: int) -> None:
        request = {"id": job, "keys": ["guest.output"], "flags": 0}
        try:
            log = handle.rpc("job-info.lookup", request).get()["guest.output"]
        except FileNotFoundError:
            log = ""
        self._remaining = len(decode(log))
        self._lines: Deque[Tuple[str, bytes]] = deque(maxlen=count)

    def holds(self, stream: str, data: bytes) -> bool:
        """Keep the lines and return True if they are earlier output; False if they are to be shown now."""
        if not self._remaining:
            return False
        self._lines.extend((stream, line) for line in BytesIO(data))
        return True

    def passed(self) -> List[Tuple[str, bytes]]:
        """Count an entry of the log. After the last earlier one, return the kept lines as (stream, text)."""
        if not self._remaining:
            return []
        self._remaining -= 1
        return [] if self._remaining else list(self._lines)
