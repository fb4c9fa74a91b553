"""The line of `--progress`: numbers of pending, running, completed and failed jobs."""

from __future__ import annotations

import os
import sys
import time

from headrace.formats.spec.job_exception import is_fatal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Set


class Progress:
    """Counts jobs by their events and draws one line at the bottom of the terminal.

    `total` is the expected number of jobs. Unless the jobs are `followed`, only submissions are counted. The clock
    starts at `elapsed` seconds.
    """

    def __init__(self, total: int, followed: bool, show_rate: bool = False, elapsed: float = 0.0) -> None:
        self.total = total
        self.submitted = self.pending = self.running = self.completed = self.failed = 0
        self._followed = followed
        # Ids of pending jobs, and of running jobs.
        self._waits: Set[int] = set()
        self._runs: Set[int] = set()
        self._show_rate = show_rate
        self._start = time.monotonic() - elapsed

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

    def event(self, job: int, name: str, context: Dict[str, Any]) -> None:
        """Update the counts for an event of a job."""
        if name == "submit":
            self._waits.add(job)
        elif name == "alloc":
            self._move(job, self._waits)
            self._runs.add(job)
            self.running += 1
        elif name == "finish":
            self._move(job, self._runs)
            if context["status"]:
                self.failed += 1
            else:
                self.completed += 1
        elif name == "clean" or (is_fatal(name, context) and job in self._waits):
            # The job ended without a finish event, or a fatal exception came before it ran.
            self.failed += self._move(job, self._waits) or self._move(job, self._runs)

    def _move(self, job: int, counted: Set[int]) -> bool:
        """Remove a job from a count. Returns False if it was not counted there."""
        if job not in counted:
            return False
        counted.remove(job)
        if counted is self._waits:
            self.pending -= 1
        else:
            self.running -= 1
        return True

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
        # A terminal of unknown size reports 0.
        sys.stdout.write(f"\0337\033[{lines or 24};1H\033[2K{self.line(columns or 80)}\0338")
        sys.stdout.flush()

    def close(self) -> None:
        """Draw the line a last time and move the cursor below it."""
        self.draw()
        sys.stdout.write("\n")
        sys.stdout.flush()
