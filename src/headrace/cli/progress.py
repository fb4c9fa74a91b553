"""The progress line of `flux submit --progress`: how many jobs wait, run, are done and failed."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


class Progress:
    """Counts jobs by their events and draws one line at the bottom of the terminal.

    There will be `total` jobs; unless they are `followed`, being submitted is all that is counted.
    """

    def __init__(self, total: int, followed: bool, show_rate: bool = False) -> None:
        self.total = total
        self.submitted = self.pending = self.running = self.completed = self.failed = 0
        self._followed = followed
        self._show_rate = show_rate
        self._start = time.monotonic()

    def add(self) -> None:
        """Count a job that was submitted."""
        self.submitted += 1
        self.pending += 1
        if self.submitted == 1:
            self.draw()

    def refused(self) -> None:
        """Count a job that could not be submitted."""
        self.submitted += 1
        self.failed += 1

    def event(self, name: str, context: Dict[str, Any]) -> None:
        """Move a job between the counts."""
        if name == "alloc":
            self.pending -= 1
            self.running += 1
        elif name == "finish":
            self.running -= 1
            if context["status"]:
                self.failed += 1
            else:
                self.completed += 1
        elif name == "exception" and context.get("severity") == 0 and context.get("type") in ("alloc", "dependency"):
            self.pending -= 1
            self.failed += 1

    def line(self, width: int) -> str:
        """The line for a terminal of `width` columns."""
        elapsed = time.monotonic() - self._start
        done = self.completed + self.failed if self._followed else self.submitted
        share = done / self.total if self.total else 0.0
        head = f"PD:{self.pending:<3} R:{self.running:<3} CD:{self.completed:<3} F:{self.failed:<3} │"
        if not self._followed:
            head = f"{self.submitted} jobs │"
        rate = (
            f"{done / elapsed if elapsed else 0.0:.1f} job/s"
            if self._show_rate
            else (f"{int(elapsed // 3600)}:{int(elapsed // 60 % 60):02d}:{int(elapsed % 60):02d}")
        )
        tail = f"│{share * 100:5.1f}% {rate}"
        room = max(0, width - len(head) - len(tail))
        return head + ("█" * int(share * room)).ljust(room) + tail

    def draw(self) -> None:
        columns, lines = os.get_terminal_size(1)
        # A terminal that does not know its size says 0.
        sys.stdout.write(f"\0337\033[{lines or 24};1H\033[2K{self.line(columns or 80)}\0338")
        sys.stdout.flush()

    def close(self) -> None:
        """Draw a last time and leave the cursor below."""
        self.draw()
        sys.stdout.write("\n")
        sys.stdout.flush()
