"""Starts each task of a job on this node, with its command, environment, processors and input."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.engine.process.spawn import limits_that_differ
from headrace.formats.spec import jobspec as specs

from . import affinity
from . import options as known
from .environment import job_environment, task_environment
from .input import opened
from .templates import expand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.engine.process.operations import Start

    from .task import Task
    from .templates import Names
    from .torch import Rendezvous


class LaunchError(Exception):
    """A task cannot be started. `code` is the job's exit code, `component` the component in the log."""

    def __init__(self, note: str, code: int, component: str | None = None) -> None:
        super().__init__(note)
        self.code = code
        self.component = component


class Launcher:
    """Starts the tasks of one node.

    `options` are the shell options, `base` is the environment of the submission, and `stdin` is the input file of each
    task or "". `notices` are messages about processors for the job's log. Raises LaunchError for an invalid affinity
    option.
    """

    def __init__(
        self,
        op: Start,
        options: Mapping[str, Any],
        names: Names,
        base: Mapping[str, Any],
        stdin: str,
        torch: Rendezvous | None,
    ) -> None:
        try:
            self._cpus, self.notices = affinity.per_task(names.cores, names.ranks, options.get("cpu-affinity"))
            self._gpus = affinity.gpus_per_task(names.gpus, len(names.ranks), options.get("gpu-affinity"))
        except ValueError as exc:
            raise LaunchError(str(exc), 1) from None
        self._names = names
        self._stdin = stdin
        self._torch = torch
        # Only these variables are templates. Other values of the submission's environment are not expanded.
        self._templates = known.templates(options)
        self._env = job_environment(base, op, names, self._templates)
        rlimit = options.get("rlimit")
        self._limits = limits_that_differ(rlimit if isinstance(rlimit, dict) else {})
        self._command = specs.command(op["jobspec"])
        self._literal = options.get("literal-args")
        self._terminals = known.pty_ranks(options)

    def start(self, task: Task, group: int) -> None:
        """Start the process of a task in process group `group` (0: its own). Raises LaunchError."""
        names, cpus = self._names, self._cpus[task.local]
        lookup = partial(names.lookup, rank=task.rank)
        env = self._environment(task)
        argv = [expand(arg, lookup) if "{{" in arg and not self._literal else arg for arg in self._command]
        try:
            # Each task gets its own descriptor, so that each reads the whole file from its start.
            file, argv = opened(self._stdin, argv)
        except OSError as exc:
            note = f"error opening input file '{self._stdin}': {exc.strerror}"
            raise LaunchError(note, 1, "input.file") from None
        try:
            terminal = self._terminals is None or task.rank in self._terminals
            bound = None if cpus == affinity.everything() else cpus
            task.start(argv, env, self._limits, file, terminal, bound, group)
        except (OSError, ValueError) as exc:
            number = exc.errno if isinstance(exc, OSError) else errno.EINVAL
            what = os.strerror(number or errno.EINVAL)
            code = 127 if number == errno.ENOENT else 126
            program = argv[0] if argv else ""
            raise LaunchError(f"task {task.rank} (host {names.host}): start failed: {program}: {what}", code) from None

    def _environment(self, task: Task) -> dict[str, str]:
        lookup = partial(self._names.lookup, rank=task.rank)
        filled = {name: expand(self._env[name], lookup) for name in self._templates if "{{" in self._env[name]}
        own = task_environment({**self._env, **filled}, task.rank, task.local, self._gpus[task.local])
        if self._torch is not None:
            names = self._names
            self._torch.add_to(
                own,
                rank=task.rank,
                local=task.local,
                size=names.size,
                local_size=len(names.ranks),
                nnodes=names.nnodes,
            )
        return own


# The adjustment of the score by which the kernel chooses the process to kill when memory runs out.
_SCORE = "/proc/self/oom_score_adj"


@contextlib.contextmanager
def oom_adjusted(value: int | None) -> Iterator[str]:
    """Give processes that are spawned in this context the `oom_score_adj` `value` (option `oom.adjust`).

    Yields an error message, or "". None keeps the agent's value. The agent sets the value on itself while it spawns
    tasks, as with CPU affinity. A task and all its children inherit it, so they have it from their first instruction.
    """
    if value is None:
        yield ""
        return
    try:
        with open(_SCORE, "r+", encoding="ascii") as file:
            before = file.read()
            file.seek(0)
            file.write(str(value))
    except OSError as exc:
        yield f"oom.adjust={value}: {exc.strerror}"
        return
    try:
        yield ""
    finally:
        with open(_SCORE, "w", encoding="ascii") as file:
            file.write(before)
