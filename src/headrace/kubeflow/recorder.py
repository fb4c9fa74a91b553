"""The initial program of a job's brokers: submits the job, and writes its eventlogs to the job's folder as they grow.

`python -m headrace.kubeflow.recorder FOLDER` within the instance ends with the job, with its exit code.
"""

from __future__ import annotations

import errno
import sys

from headrace.formats.spec.eventlog import decode_line
from headrace.formats.spec.wait_status import exit_code
from headrace.wire.client.handle import Handle
from headrace.wire.query.submission import jobspec_request

from .folder import Folder
from .jobs import EVENTLOG, EXEC_LOG, OUTPUT


def main(path: str) -> int:
    folder = Folder(path)
    with Handle() as handle:
        id = handle.rpc("job-ingest.submit", payload=jobspec_request(folder.jobspec)).get()["id"]
        job_log, *others = logs = [_Log(handle, id, name, folder / name) for name in (EVENTLOG, EXEC_LOG, OUTPUT)]
        while True:
            for log in others:
                log.write_all()
            # Readers know by the job's end that its output is complete.
            job_log.write_all(until="" if all(log.ended for log in others) else "finish")
            if all(log.ended for log in logs):
                break
            handle.pump()
    ends = [event.context or {} for event in folder.read(EVENTLOG) if event.name == "finish"]
    return exit_code(int(ends[-1]["status"])) if ends else 1


class _Log:
    """An eventlog of the job, and the file that it is written to."""

    def __init__(self, handle: Handle, id: int, path: str, file: str) -> None:
        self.ended = False
        self._call = handle.stream("job-info.eventlog-watch", {"id": id, "path": path, "flags": 0})
        self._file = open(file, "ab", buffering=0)
        self._lines: list[str] = []

    def write_all(self, until: str = "") -> None:
        """Write the events that have come, up to the one with the name `until`."""
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


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
