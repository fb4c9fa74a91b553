"""The tasks of one job on this node, and their shared process group (shell option `nosetpgrp`)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from headrace.engine.process import linux
from headrace.engine.process.spawn import spawn

from .task import Task


class SharedGroup:
    """A process group for the tasks of one job on this node. No task leads it.

    In Flux this is the group of the job's shell process. In Headrace the agent is the shell of all jobs of a node. If
    the agent's group were used, `kill 0` in a task would signal the tasks of other jobs.

    `number` is the id of the process group, for `setpgid` and `killpg`; 0 once the group is empty.
    """

    def __init__(self, children: dict[int, Callable[[int], None]]) -> None:
        """Create the group. Raises OSError if no process can be started.

        A process group needs a first member, so a short-lived process is started; its pid is the group's id. Until the
        agent collects the process like any other child, the group exists even without tasks. The caller starts the
        tasks before it returns to the agent's event loop. `children` is the agent's table of callbacks by pid.
        """
        self.number = spawn(["/bin/sh", "-c", ":"], {}, ())
        children[self.number] = lambda _status: None

    def task_exited(self) -> None:
        """Set `number` to 0 if the group is empty. Called after each task of the group was collected.

        The kernel may give the id of an empty group to another process, which must not get this job's signals.
        """
        if self.number and linux.is_empty_group(self.number):
            self.number = 0

    def kill(self, signum: int) -> None:
        """Send a signal to all members, if there are any and this process may signal them."""
        if self.number:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.number, signum)


class LocalTasks:
    """All tasks of a job on this node, in rank order. `all` is filled when they are started."""

    def __init__(self) -> None:
        self.all: list[Task] = []
        # None if each task leads its own process group.
        self.group: SharedGroup | None = None

    def share_group(self, children: dict[int, Callable[[int], None]]) -> None:
        """Create the shared process group; `children` is the agent's table of callbacks. Raises OSError."""
        self.group = SharedGroup(children)

    @property
    def group_number(self) -> int:
        """The id of the shared process group; 0 if each task has its own."""
        return 0 if self.group is None else self.group.number

    @property
    def running(self) -> bool:
        """True if the process of a task is running."""
        return any(task.pid > 0 for task in self.all)

    @property
    def closed(self) -> bool:
        """True if every task and all its streams have ended."""
        return all(task.closed for task in self.all)

    def descendants(self) -> set[int]:
        """The descendants of running tasks.

        Must be called before a signal is sent, because children are reparented when their parent ends.
        """
        return {pid for task in self.all if task.pid > 0 for pid in linux.descendants_of(task.pid)}

    def signal(self, signum: int) -> None:
        """Signal the process group of every task. SIGKILL is also sent to all members of the shared group."""
        if signum == signal.SIGKILL and self.group is not None:
            self.group.kill(signum)
        for task in self.all:
            task.kill(signum)

    def pause_output(self, on: bool) -> None:
        """Stop reading the output of all tasks (`on`), or resume it."""
        for task in self.all:
            task.pause_output(on)

    def close_ended(self) -> None:
        """Close the streams of tasks that have ended, even if other processes still have them open."""
        for task in self.all:
            if task.pid <= 0:
                task.close_streams()

    def abandon_unstarted(self) -> None:
        """Close the tasks that were not started, after a failure."""
        for task in self.all:
            if not task.pid:
                task.never_ran()

    def task_exited(self) -> None:
        if self.group is not None:
            self.group.task_exited()

    def kill_group(self) -> None:
        """Kill the background processes in the shared group. A task's own group is killed when it closes."""
        if self.group is not None:
            self.group.kill(signal.SIGKILL)
            self.group = None
