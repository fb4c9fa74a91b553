"""Progress messages of commands that wait."""

from __future__ import annotations

import time
from collections.abc import Callable

# Seconds that a command waits before it prints what it is waiting for.
SILENCE = 2.0


class News:
    """Prints what a command is waiting for: nothing in the first seconds, then each new text."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._since = clock()
        self._last = ""

    def waits_for(self, text: str) -> None:
        if text != self._last and self._clock() >= self._since + SILENCE:
            self._last = text
            self._tell(text)
