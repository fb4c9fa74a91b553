"""The folder of a job that local brokers run: what it is made of, what it has written, and whether it goes on.

`plan` and `jobspec` are what is to be run. The runner writes the job's eventlogs as they grow, `log` for what brokers
and runner say, and `workspace` for where its brokers are. It holds `lock`, which has its process id, as long as it
runs: so any process can tell whether the job goes on, and end it, also what is left of it if the runner was killed.
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
# Seconds between two looks at a file that another process writes, and until a runner that is asked to end is killed.
_PAUSE = 0.05
_END_TIMEOUT = 30.0
# Bytes of a log that are read at once.
_PIECE = 1 << 20


class Folder:
    """A job's folder. Methods raise OSError if it is no longer there."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __truediv__(self, name: str) -> str:
        return os.path.join(self.path, name)

    @property
    def exists(self) -> bool:
        """Whether there is a job in it."""
        return os.path.exists(self / JOBSPEC)

    @property
    def jobspec(self) -> Any:
        with open(self / JOBSPEC, encoding="utf-8") as file:
            return json.load(file)

    def lock(self) -> int:
        """A descriptor that holds the lock; it goes to the runner. Raises BlockingIOError if another one runs."""
        held = os.open(self / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(held)
            raise
        return held

    @property
    def runs(self) -> bool:
        """Whether the runner runs, or is being started."""
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
        """Whether the job has ended, or has been lost."""
        # In this order, as the runner ends after the job.
        return not self.runs or any(event.name == "clean" for event in self.read(EVENTLOG))

    def lost(self) -> str:
        """Why a job whose log has no end has none, "" while it may still end."""
        if self.runs or any(event.name == "clean" for event in self.read(EVENTLOG)):
            return ""
        work = self._workspace()
        if work and remains.processes_of(work):
            return "its runner was killed; delete_job ends its brokers and processes, which go on"
        with contextlib.suppress(FileNotFoundError), open(self / LOG, encoding="utf-8", errors="replace") as file:
            said = [line.strip() for line in file if line.strip()]
            if said:
                return f"its brokers have ended: {said[-1]}"
        return "its brokers have ended"

    def read(self, path: str, follow: bool = False) -> Iterator[Event]:
        """The events of a log so far, or as they come until the job has ended."""
        offset, ended = 0, not follow
        while True:
            events, offset = self._read(path, offset)
            yield from events
            if events:
                continue
            if ended:
                return
            # What is written before the end is read once more after it is known.
            ended = self.has_ended()
            if not ended:
                time.sleep(_PAUSE)

    def _read(self, path: str, offset: int) -> tuple[list[Event], int]:
        """Some whole lines of a log from a byte on, and the byte after them."""
        try:
            with open(self / path, "rb") as file:
                file.seek(offset)
                # A line is as long as it is.
                data = file.read(_PIECE) + file.readline()
        except FileNotFoundError:
            return [], offset
        complete = data[: data.rfind(b"\n") + 1]
        lines = complete.decode("utf-8", "surrogateescape").split("\n")[:-1]
        return [decode_line(line) for line in lines], offset + len(complete)

    def ask_to_end(self, signum: int = signal.SIGTERM) -> bool:
        """Signal the runner; False if it is being started, and has no process id yet."""
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
        """End the brokers of a runner that was killed. Raises RuntimeError if they go on."""
        work = self._workspace()
        surviving = remains.end_remains(work) if work else []
        if surviving:
            name, pids = os.path.basename(self.path), ", ".join(map(str, surviving))
            raise RuntimeError(f"TrainJob {name} goes on: its processes {pids} do not end by SIGKILL; {work} is theirs")

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def end(folders: Iterable[Folder]) -> None:
    """End the jobs of folders, and wait until nothing of them runs. Raises RuntimeError for one that goes on."""
    folders = list(folders)
    running = [folder for folder in folders if folder.runs]
    deadline = time.monotonic() + _END_TIMEOUT
    unasked = list(running)
    while running:
        # Once each: a second signal would not leave it time to end the brokers in order.
        unasked = [folder for folder in unasked if not folder.ask_to_end()]
        time.sleep(_PAUSE)
        if time.monotonic() > deadline:
            for folder in running:
                folder.ask_to_end(signal.SIGKILL)
        running = [folder for folder in running if folder.runs]
    for folder in folders:
        folder.end_remains()
