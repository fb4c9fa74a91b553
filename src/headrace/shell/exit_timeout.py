"""`-o exit-timeout`: how long a job's tasks have to follow the first of them that ended (flux-shell(1)).

It is for tasks that wait for one that is gone. A job whose tasks have all ended is not late, whatever still holds it:
output that a process in the background has open, a terminal that nobody has seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable


class ExitTimeout:
    """Of one job, in its lead shell.

    `runs()` says whether a task of this node does, `ask()` has the shells of other nodes say it, and `fail(note)` ends
    the job. `after(seconds, fn)` runs fn once and cannot be taken back: it keeps nothing of a job that is over.
    """

    def __init__(
        self, note: str, runs: Callable[[], bool], ask: Callable[[], None], fail: Callable[[str], None]
    ) -> None:
        self._note = note
        self._runs = runs
        self._ask = ask
        self._fail = fail

    def set(self, after: Callable[[float, Callable[[], None]], None], seconds: float) -> None:
        own = weakref.ref(self)

        def expired() -> None:
            deadline = own()
            if deadline is not None:
                deadline._expired()

        after(seconds, expired)

    def _expired(self) -> None:
        if self._runs():
            self.missed()
        else:
            self._ask()

    def missed(self) -> None:
        """A task runs that should have ended."""
        self._fail(self._note)
