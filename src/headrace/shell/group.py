"""The process group that the tasks of one job share on one node (`-o nosetpgrp`).

Flux's tasks are then in the group of their shell, which none of them leads, and signals go to the tasks alone and not
to their children. Here one agent is the shell of all jobs of a node, and in its group a task's `kill 0` would reach
other jobs; so the tasks of a job have a group among themselves.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from headrace.process.spawn import spawn


class SharedGroup:
    """The group `number`, 0 after its last member has gone."""

    def __init__(self, children: dict[int, Callable[[int], None]]) -> None:
        """Make the group by a process that ends at once, and whose end `children` (the agent's) takes note of.

        The group exists until that process is collected, in a later turn of the agent's loop, and then as long as it
        has members: tasks are to be started in this turn. Raises OSError.
        """
        self.number = spawn(["/bin/sh", "-c", ":"], {}, ())
        children[self.number] = lambda _status: None

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
