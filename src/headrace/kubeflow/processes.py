"""Helper processes of local jobs: `python -m headrace.kubeflow.processes NAME ...`.

They outlive the Python process that created the jobs.

`runner FOLDER LOCK` runs the brokers of a job. LOCK is the file descriptor of the folder's lock. The runner has a
session of its own, so that no terminal ends it. SIGTERM ends the brokers, and the runner with them.

`recorder FOLDER` is the initial program of a job's brokers. It submits the job, writes the job's eventlogs to the
folder as they grow, and ends with the job and with the job's exit code.

`guard BASE PID` is a child of the process PID. If that process is killed, the guard ends the jobs below the folder
BASE. On an orderly exit the process ends the jobs itself. A pipe would not signal the end of PID reliably, because
other children of it may hold the other end of the pipe.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import sys
from collections.abc import Callable

from headrace.formats.spec.eventlog import decode_line
from headrace.formats.spec.wait_status import exit_code
from headrace.wire.client.handle import Handle
from headrace.wire.query.submission import jobspec_request

from .folder import ENVIRONMENT, PLAN, Folder, end
from .jobs import EVENTLOG, EXEC_LOG, OUTPUT


def runner(path: str, lock: str) -> int:
    # Imported here, because the other processes need no brokers.
    from msgspec import json

    from headrace.minicluster.api.plan import Plan
    from headrace.minicluster.run import local

    held = int(lock)
    # The brokers must not inherit the lock: it shows whether this process is running.
    os.set_inheritable(held, False)
    os.pwrite(held, str(os.getpid()).encode(), 0)
    folder = Folder(path)
    with open(folder / PLAN, "rb") as file:
        plan = json.decode(file.read(), type=Plan)
    try:
        return local.run(plan, path, lambda _line: None, folder.keep_workspace).status
    except local.StartError as exc:
        print(exc, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder / ENVIRONMENT, ignore_errors=True)


def recorder(path: str) -> int:
    folder = Folder(path)
    with Handle() as handle:
        id = handle.rpc("job-ingest.submit", payload=jobspec_request(folder.jobspec)).get()["id"]
        job_log, *others = logs = [_Log(handle, id, name, folder / name) for name in (EVENTLOG, EXEC_LOG, OUTPUT)]
        while True:
            for log in others:
                log.write_all()
            # The job's end is written last, because readers take it as a sign that the output is complete.
            job_log.write_all(until="" if all(log.ended for log in others) else "finish")
            if all(log.ended for log in logs):
                break
            handle.pump()
    ends = [event.context or {} for event in folder.read(EVENTLOG) if event.name == "finish"]
    return exit_code(int(ends[-1]["status"])) if ends else 1


class _Log:
    """An eventlog of the job, and the file to which it is written."""

    def __init__(self, handle: Handle, id: int, path: str, file: str) -> None:
        self.ended = False
        self._call = handle.stream("job-info.eventlog-watch", {"id": id, "path": path, "flags": 0})
        self._file = open(file, "ab", buffering=0)
        self._lines: list[str] = []

    def write_all(self, until: str = "") -> None:
        """Write the events received so far or, with `until`, those before the event of that name."""
        while self._call.ready:
            try:
                self._lines.append(self._call.get()["event"])
            except OSError as exc:
                if exc.errno not in (errno.ENODATA, errno.ENOENT):
                    raise
                self.ended = True
        count = len(self._lines)
        if until:
            count = next((i for i, line in enumerate(self._lines) if decode_line(line).name == until), count)
        self._file.write("".join(self._lines[:count]).encode("utf-8", "surrogateescape"))
        del self._lines[:count]


def guard(base: str, pid: str) -> int:
    _wait_for_parent(int(pid))
    if os.path.isdir(base):
        end(Folder(entry.path) for entry in os.scandir(base) if entry.is_dir())
        shutil.rmtree(base, ignore_errors=True)
    return 0


def _wait_for_parent(pid: int) -> None:
    """Wait until the process `pid`, our parent, has ended. It already has if our parent is another process."""
    parent = os.pidfd_open(os.getppid())
    if os.getppid() == pid:
        select.select([parent], [], [])


def main(name: str, *words: str) -> int:
    processes: dict[str, Callable[..., int]] = {"runner": runner, "recorder": recorder, "guard": guard}
    return processes[name](*words)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
