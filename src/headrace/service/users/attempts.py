"""A bound for guessing passwords: so many failures of one user from one address within a minute."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

MOST_FAILURES = 5
WINDOW = 60.0
# Pairs of user and address that are remembered; the one that failed first makes room.
MOST_PAIRS = 10_000


class TooManyFailures(PermissionError):
    """The next attempt is not looked at; the text is for users, `wait` is in whole seconds."""

    def __init__(self, wait: int) -> None:
        super().__init__(f"too many failures: try again in {wait} s")
        self.wait = wait


class Attempts:
    """The failures of the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[tuple[str, str], deque[float]] = {}

    def check(self, user: str, address: str) -> None:
        """Raises TooManyFailures."""
        failures = self._failures.get((user, address))
        if failures is not None and len(failures) == MOST_FAILURES:
            wait = failures[0] + WINDOW - self._clock()
            if wait > 0:
                raise TooManyFailures(math.ceil(wait))

    def failed(self, user: str, address: str) -> None:
        if (user, address) not in self._failures and len(self._failures) >= MOST_PAIRS:
            del self._failures[next(iter(self._failures))]
        self._failures.setdefault((user, address), deque(maxlen=MOST_FAILURES)).append(self._clock())

    def succeeded(self, user: str, address: str) -> None:
        self._failures.pop((user, address), None)
