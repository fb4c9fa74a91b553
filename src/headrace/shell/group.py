"""The process group that the tasks of one job share on one node (`-o nosetpgrp`).

Flux's tasks are then in the group of their shell. Here one agent is the shell of all jobs of a node, and in its group
a task's `kill 0` would reach other jobs; so the tasks of a job have a group among themselves, led by the first one.
"""

from __future__ import annotations

import contextlib
import os


class SharedGroup:
    """The group `number`, 0 until the first task has started and after the last member has gone."""

    def __init__(self) -> None:
        self.number = 0

    def joined(self, pid: int) -> None:
        """A task was started in the group, or in one of its own if there was none."""
        self.number = self.number or pid

    def task_exited(self) -> None:
        """A task was collected. The kernel may give the number of an empty group to another process: forget it."""
        if self.number and is_empty(self.number):
            self.number = 0

    def kill(self, signum: int) -> None:
        if self.number:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.number, signum)


def is_empty(group: int) -> bool:
    """Whether a process group has no member."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
