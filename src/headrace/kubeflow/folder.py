"""The folder of a job that local brokers run: its input, its logs, and whether it is still running.

`plan` and `jobspec` are the input. The runner appends to the job's eventlogs as they grow; it writes the messages of
brokers and runner to `log`, and the path of the brokers' workspace to `workspace`. While it runs, it holds `lock`,
which contains its process id. So any process can check whether the job is running and end it, and can end remaining
processes if the runner was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Iterable, Iterator
from typing import Any

from headrace.formats.spec.eventlog import Event, decode_line
from headrace.minicluster.run import remains

from .jobs import EVENTLOG

PLAN, JOBSPEC, LOG, LOCK, ENVIRONMENT, WORKSPACE = "plan", "jobspec", "log", "lock", "environment", "workspace"
# Seconds between two checks of a file that another process writes, and from SIGTERM to SIGKILL for a runner.
_PAUSE = 0.05
_END_TIMEOUT = 30.0
# The number of bytes that are read from a log at once.
_PIECE = 1 << 20


class Folder:
    """A job's folder. Methods raise OSError if it no longer exists."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __truediv__(self, name: str) -> str:
        return os.path.join(self.path, name)

    @property
    def exists(self) -> bool:
        """True if the folder contains a job."""
        return os.path.exists(self / JOBSPEC)

    @property
    def jobspec(self) -> Any:
        with open(self / JOBSPEC, encoding="utf-8") as file:
            return json.load(file)

    def lock(self) -> int:
        """A descriptor that holds the lock, for the runner. Raises BlockingIOError if another runner holds it."""
        held = os.open(self / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(held)
            raise
        return held

    @property
    def runs(self) -> bool:
        """True if the runner is running or starting."""
        try:
            held = os.open(self / LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(held)
        return False

    def has_ended(self) -> bool:
        """True if the job has ended or is lost."""
        # `runs` is checked first, because the runner ends after the job.
        return not self.runs or any(event.name == "clean" for event in self.read(EVENTLOG))

    def lost(self) -> str:
        """The reason why a job's log has no event `clean`; "" if it has one, or may still get one."""
        if self.runs or any(event.name == "clean" for event in self.read(EVENTLOG)):
            return ""
        work = self._workspace()
        if work and remains.processes_of(work):
            return "its runner was killed, but its brokers and processes still run; delete_job ends them"
        with contextlib.suppress(FileNotFoundError), open(self / LOG, encoding="utf-8", errors="replace") as file:
            said = [line.strip() for line in file if line.strip()]
            if said:
                return f"its brokers have ended: {said[-1]}"
        return "its brokers have ended"

    def read(self, path: str, follow: bool = False) -> Iterator[Event]:
        """The events of a log so far or, with `follow`, until the job has ended."""
        offset, ended = 0, not follow
        while True:
            events, offset = self._read(path, offset)
            yield from events
            if events:
                continue
            if ended:
                return
            # After the job has ended, the log is read once more for the events that were written before the end.
            ended = self.has_ended()
            if not ended:
                time.sleep(_PAUSE)

    def _read(self, path: str, offset: int) -> tuple[list[Event], int]:
        """Complete lines of a log from a byte offset, and the offset after them."""
        try:
            with open(self / path, "rb") as file:
                file.seek(offset)
                # A line may be longer than a piece.
                data = file.read(_PIECE) + file.readline()
        except FileNotFoundError:
            return [], offset
        complete = data[: data.rfind(b"\n") + 1]
        lines = complete.decode("utf-8", "surrogateescape").split("\n")[:-1]
        return [decode_line(line) for line in lines], offset + len(complete)

    def ask_to_end(self, signum: int = signal.SIGTERM) -> bool:
        """Signal the runner; returns False if the runner is starting and has no process id yet."""
        try:
            with open(self / LOCK, encoding="ascii") as file:
                pid = int(file.read() or 0)
            if pid and self.runs:
                os.kill(pid, signum)
        except (FileNotFoundError, ProcessLookupError):
            return True
        return bool(pid)

    def keep_workspace(self, work: str) -> None:
        with open(self / f"{WORKSPACE}.new", "w", encoding="utf-8") as file:
            file.write(work)
        os.rename(file.name, self / WORKSPACE)

    def _workspace(self) -> str:
        """The workspace of the brokers, "" before they are started."""
        with contextlib.suppress(FileNotFoundError), open(self / WORKSPACE, encoding="utf-8") as file:
            return file.read()
        return ""

    def end_remains(self) -> None:
        """End the brokers of a runner that was killed. Raises RuntimeError if they keep running."""
        work = self._workspace()
        surviving = remains.end_remains(work) if work else []
        if surviving:
            name, pids = os.path.basename(self.path), ", ".join(map(str, surviving))
            raise RuntimeError(
                f"TrainJob {name} is still running: SIGKILL did not end its processes {pids}, which use {work}"
            )

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def end(folders: Iterable[Folder]) -> None:
    """End the jobs of folders, and wait until no process of them runs.

    Raises RuntimeError for a job that keeps running.
    """
    folders = list(folders)
    running = [folder for folder in folders if folder.runs]
    deadline = time.monotonic() + _END_TIMEOUT
    unasked = list(running)
    while running:
        # Each runner is signalled once: a second signal would cut short its orderly stop of the brokers.
        unasked = [folder for folder in unasked if not folder.ask_to_end()]
        time.sleep(_PAUSE)
        if time.monotonic() > deadline:
            for folder in running:
                folder.ask_to_end(signal.SIGKILL)
        running = [folder for folder in running if folder.runs]
    for folder in folders:
        folder.end_remains()
