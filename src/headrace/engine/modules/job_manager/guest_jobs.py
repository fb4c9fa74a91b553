"""Limits on each guest's active jobs (`[headrace.guests.limits]`): number, and size of jobspecs.

The instance owner has no limits. Sizes are kept by job id, so that each job is subtracted only once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from headrace.formats.config import guests

JOBS, BYTES = "active-jobs", "active-bytes"
_WHAT = {JOBS: "active jobs", BYTES: "bytes in the jobspecs of active jobs"}


class GuestJobs:
    """Counts the active jobs of guests. `limit(name)` returns a limit of the current configuration."""

    def __init__(self, owner: int, limit: Callable[[str], int]) -> None:
        self._owner = owner
        self._limit = limit
        self._sizes: dict[int, int] = {}
        self._used = {JOBS: Counter[int](), BYTES: Counter[int]()}

    def refusal(self, userid: int, size: int) -> str:
        """Why a job of `size` bytes is refused, or ""."""
        if userid == self._owner:
            return ""
        for name, more in ((JOBS, 1), (BYTES, size)):
            most = self._limit(name)
            if self._used[name][userid] + more > most:
                why = f"user {userid} may have {most} {_WHAT[name]} ({guests.LIMITS_KEY}.{name})"
                return f"{why}: submit again when some of them have ended"
        return ""

    def begin(self, id: int, userid: int, size: int) -> None:
        """Count a job until its end."""
        if userid != self._owner and id not in self._sizes:
            self._sizes[id] = size
            self._add(userid, 1, size)

    def end(self, id: int, userid: int) -> None:
        """Stop counting a job, if it was counted."""
        size = self._sizes.pop(id, None)
        if size is not None:
            self._add(userid, -1, -size)

    def _add(self, userid: int, jobs: int, size: int) -> None:
        for name, more in ((JOBS, jobs), (BYTES, size)):
            self._used[name][userid] += more
            if not self._used[name][userid]:
                del self._used[name][userid]
