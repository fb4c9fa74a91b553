"""The initial program (rc2): the user's command, a script, or an interactive shell.

The instance runs around it. The scripts before and after it (`broker.rc1_path`, `broker.rc3_path`) run the same way, on
every broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headrace.engine.process import linux
from headrace.engine.process.spawn import spawn
from headrace.formats.spec import credential
from headrace.formats.spec.lines import LineReader
from headrace.formats.spec.pmix import is_of_one_job
from headrace.formats.spec.wait_status import exit_code, strsignal
from headrace.wire.client.usershell import user_shell

from .signals import YOUNG

if TYPE_CHECKING:
    from ..process import operations
    from .parts import BrokerBase

# Variables of a job, a launcher or this instance that programs must not inherit. With the launchers' variables, an
# mpiexec in the program would mistake our launcher for its own (flux-environment(7)).
_NOT_OURS = (
    "FLUX_JOB_ID",
    "FLUX_JOB_NNODES",
    "FLUX_JOB_SIZE",
    "FLUX_JOB_TMPDIR",
    "FLUX_KVS_NAMESPACE",
    "FLUX_PMI_LIBRARY_PATH",
    "FLUX_PROXY_REMOTE",
    "FLUX_RC1_PATH",
    "FLUX_RC3_PATH",
    "FLUX_TASK_LOCAL_ID",
    "FLUX_TASK_RANK",
    "I_MPI_PMI_LIBRARY",
)
_LAUNCHERS = ("PMI_", "SLURM_")


def _is_file(word: str) -> bool:
    """True if the command is the path of a program, such as a batch script, to execute without a shell."""
    return os.path.isfile(word) and os.access(word, os.X_OK)


# The name of the initial program in the log.
INITIAL = "rc2.0"


class Program:
    """One run of the initial program or a script.

    `done(status, log text)` is called once, with the exit status that a shell would report.
    """

    def __init__(
        self,
        broker: BrokerBase,
        command: list[str] | None,
        done: Callable[[int, str], None],
        name: str = INITIAL,
        output: LoggedOutput | None = None,
    ) -> None:
        self._broker = broker
        self._done = done
        self._name = name
        self._output = output
        shell = user_shell(broker.env)
        if not command:
            self.argv = [shell]
        elif len(command) == 1 and not _is_file(command[0]):
            self.argv = [shell, "-c", command[0]]
        elif len(command) == 1:
            self.argv = [command[0] if "/" in command[0] else f"./{command[0]}"]
        else:
            self.argv = list(command)
        self.title = " ".join(command) if command else shell
        self._pid = 0
        self._pidfd = -1
        self._own_group = False
        self._begin = 0.0

    @property
    def running(self) -> bool:
        return self._pid != 0

    def start(self) -> None:
        """Start the program. Raises OSError."""
        broker = self._broker
        env = {
            name: value
            for name, value in broker.env.items()
            if name not in _NOT_OURS and not name.startswith(_LAUNCHERS) and not is_of_one_job(name)
        }
        if self._name != INITIAL:
            # rc scripts do not get the variables of the enclosing job, as in Flux. The initial program keeps them: its
            # processes can be found by these variables even after they have left its process group.
            env = {name: value for name, value in env.items() if not name.startswith(("FLUX_JOB_", "FLUX_TASK_"))}
        env["FLUX_URI"] = broker.attrs.get("local-uri")
        # FLUX_ENCLOSING_ID names the job that this instance is, not the job of an enclosing instance.
        env.pop("FLUX_ENCLOSING_ID", None)
        if broker.attrs.get("jobid"):
            env["FLUX_ENCLOSING_ID"] = broker.attrs.get("jobid")
            # A guest's job uses these to talk to the enclosing instance. This instance belongs to the owner.
            for name in credential.VARIABLES:
                env.pop(name, None)
        self._begin = time.monotonic()
        # At a terminal, the program runs in the broker's foreground process group. Elsewhere it gets its own group, so
        # that the group can be signalled.
        self._own_group = sys.stdin is None or not os.isatty(0)
        # Announce the program before its pid is known: the broker could be killed between the fork and the next
        # message.
        self._tell_agent({"op": "program", "pid": 0, "uri": env["FLUX_URI"], "since": linux.ticks()})
        # subprocess is not used here: its child loses a signal that arrives between fork and exec.
        try:
            group = 0 if self._own_group else os.getpgrp()
            fds = self._output.fds if self._output is not None else ()
            self._pid = spawn(self.argv, env, fds, group=group, runs_text=self._name != INITIAL)
        finally:
            if self._output is not None:
                self._output.started()
            self._tell_agent({"op": "program", "pid": self._pid})
        self._pidfd = os.pidfd_open(self._pid)
        broker.loop.add_reader(self._pidfd, self._ended)

    def tell_agent(self) -> None:
        """Tell a new agent about the program."""
        self._tell_agent({"op": "program", "pid": self._pid})

    def _tell_agent(self, op: operations.Program) -> None:
        """Tell the agent about the program. The agent kills it if the broker is killed."""
        if self._broker.agent is not None:
            self._broker.agent.send(op)
            self._broker.agent.flush()

    def interrupt(self) -> None:
        """Pass on a SIGINT of the broker, unless the terminal sends it to the program itself."""
        if self._own_group or time.monotonic() - self._begin < YOUNG:
            self._signal(signal.SIGINT)

    def stop(self) -> None:
        """Send SIGHUP to the program and its descendants, and SIGKILL after five seconds."""
        self._signal(signal.SIGHUP)
        self._broker.loop.call_later(5, self._signal, signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if not self._pid:
            return
        if self._own_group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, number)
            return
        # The program shares the broker's process group, possibly with other commands of a pipeline.
        for pid in (self._pid, *linux.descendants_of(self._pid)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _ended(self) -> None:
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if not pid:
            return
        self._broker.loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pid = 0
        self._tell_agent({"op": "program", "pid": 0})
        if self._output is not None:
            self._output.close()
        took = time.monotonic() - self._begin
        what = strsignal(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else "Exited"
        code = exit_code(status)
        title = self.title if len(self.title) < 200 else shlex.quote(self.title[:200]) + "…"
        self._done(code, f"{self._name}: {title} {what} (rc={code}) {took:.1f}s")


# Bytes without a newline after which a line of output is cut.
_LONGEST_LINE = 1 << 16


class LoggedOutput:
    """The output of a command as lines of the broker's log, since the broker's own output may be unread.

    Two pipes carry the command's stdout and stderr. Their lines are logged under `name`, with level info and err.
    """

    def __init__(self, broker: BrokerBase, name: str) -> None:
        """Open the pipes. Raises OSError if there are no descriptors."""
        self._broker = broker
        self._name = name
        self._levels: dict[int, int] = {}
        self._lines: dict[int, LineReader] = {}
        # (broker's write end, the command's descriptor) pairs for the command to inherit.
        self.fds: list[tuple[int, int]] = []
        for number, level in ((1, logging.INFO), (2, logging.ERROR)):
            reader, writer = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(reader, False)
            self._levels[reader] = level
            self._lines[reader] = LineReader(_LONGEST_LINE)
            self.fds.append((writer, number))

    def started(self) -> None:
        """Close the write ends, once the command has inherited them or has failed to start."""
        for writer, _ in self.fds:
            os.close(writer)
        self.fds = []
        for reader in self._levels:
            self._broker.loop.add_reader(reader, partial(self._read, reader))

    def close(self) -> None:
        """Log the rest of the output of a command that has ended.

        Its remaining children write to a closed pipe.
        """
        for reader in self._levels:
            self._read(reader)
            self._log(reader, [self._lines[reader].take_rest()])
            self._broker.loop.remove_reader(reader)
            os.close(reader)

    def _read(self, reader: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data = os.read(reader, _LONGEST_LINE)
                if not data:
                    self._broker.loop.remove_reader(reader)
                    return
                self._log(reader, self._lines[reader].feed(data))

    def _log(self, reader: int, lines: list[bytes]) -> None:
        for line in lines:
            if line:
                text = line.decode("utf-8", "replace")
                self._broker.log(self._levels[reader], "broker", f"{self._name}: {text}")


async def run_script(broker: BrokerBase, name: str) -> int:
    """Run the script in the attribute `broker.NAME_path`, if any, with the user's shell.

    Without the attribute, the scripts in the folders NAME.d of FLUX_RC_EXTRA run one by one. Returns the exit status,
    with several scripts the last nonzero one.
    """
    attr = f"broker.{name}_path"
    if attr in broker.attrs:
        command = broker.attrs.get(attr)
        return await run_command(broker, command, f"{name}.0") if command else 0
    failed = 0
    for number, path in enumerate(_extra_scripts(broker.env.get("FLUX_RC_EXTRA", ""), name)):
        failed = await run_command(broker, path, f"{name}.{number}") or failed
    return failed


def _extra_scripts(folders: str, name: str) -> list[str]:
    if not folders:
        return []
    # Imported here, since most brokers have no such scripts.
    from glob import escape, glob

    return [path for folder in folders.split(":") if folder for path in sorted(glob(f"{escape(folder)}/{name}.d/*"))]


async def run_command(
    broker: BrokerBase, command: str, name: str, limit: float | None = None, output: LoggedOutput | None = None
) -> int:
    """Run a command line with the user's shell, for `limit` seconds at most. Returns its exit status.

    The end of the command is logged under `name`.
    """
    ended: asyncio.Future[int] = broker.loop.create_future()

    def done(status: int, text: str) -> None:
        broker.log(logging.ERROR if status else logging.INFO, "broker", text)
        ended.set_result(status)

    broker.program = Program(broker, [command], done, name, output)
    timer = broker.loop.call_later(limit, broker.program.stop) if limit else None
    try:
        broker.program.start()
        return await ended
    except OSError as exc:
        broker.log(logging.ERROR, "broker", f"{name}: {exc.filename or command}: {exc.strerror}")
        if output is not None:
            output.close()
        return 127
    finally:
        broker.program = None
        if timer is not None:
            timer.cancel()
