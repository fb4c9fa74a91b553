"""The process group that the tasks of a job share on one node, with the shell option `nosetpgrp`.

Without this option each task leads a process group of its own. With it, the tasks of a job on a node are members of
one group that no task leads. In Flux this is the group of the job's shell process. In Headrace the agent is the shell
of all jobs of a node: in the agent's group, `kill 0` in a task would signal the tasks of other jobs. Each job therefore
gets a group of its own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from headrace.engine.process.spawn import spawn


class SharedGroup:
    """A process group for the tasks of one job on this node.

    `number` is the id of the process group, for `setpgid` and `killpg`; 0 when the group has no member any more.
    """

    def __init__(self, children: dict[int, Callable[[int], None]]) -> None:
        """Create the group. Raises OSError if no process can be started.

        A short-lived process is started as the first member, because a process group needs one; its pid is the group's
        id. `children` is the agent's table of callbacks by pid: the agent collects the process like any other child.
        Until then the group exists without tasks. The caller starts the tasks before it returns to the agent's loop.
        """
        self.number = spawn(["/bin/sh", "-c", ":"], {}, ())
        children[self.number] = lambda _status: None

    def task_exited(self) -> None:
        """Set `number` to 0 if the group is empty. Call this after each task of the group was collected.

        The kernel may give the id of an empty group to another process, which must not get this job's signals.
        """
        if self.number and is_empty(self.number):
            self.number = 0

    def kill(self, signum: int) -> None:
        """Send a signal to all members. Nothing happens if there are none, or if this process may not signal them."""
        if self.number:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.number, signum)


def is_empty(group: int) -> bool:
    """Return True if no process is a member of the process group with this id, and False if at least one is.

    Members that this process may not signal count as well.
    """
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
