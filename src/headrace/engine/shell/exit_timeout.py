"""`-o exit-timeout`: how long the other tasks of a job may run after its first task has exited (flux-shell(1)).

The timeout ends tasks that wait for the one that exited. It does not apply once all tasks have exited, even if the job
is still open because a background process holds its output, or because no client has attached to its terminal.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable


class ExitTimeout:
    """The timeout of one job, in its lead shell.

    `runs()` tells whether a task of this node runs, `ask()` asks the shells of the other nodes, and `fail(note)` ends
    the job. `after(seconds, fn)` calls fn once and cannot be cancelled; fn holds no reference to a job that is over.
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
        """The timeout has expired and a task still runs."""
        self._fail(self._note)
