"""Follows several jobs at once: shows their output and events, and computes a common exit status.

It watches one eventlog per job, and the output once the job's shell has started, as `flux job attach` does for a single
job. Labelled lines begin with the job's id.
"""

from __future__ import annotations

import errno
import sys
from io import StringIO

from headrace.formats.spec import jobid
from headrace.formats.spec.eventlog import decode_line
from headrace.formats.spec.job_exception import is_fatal
from headrace.formats.spec.wait_status import exit_code
from headrace.wire.client.reactor import Reactor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Dict, NamedTuple, Optional

    from headrace.cli.common.progress import Progress
    from headrace.wire.client.handle import Handle, Rpc

    class Wanted(NamedTuple):
        """What to show of a job, and until when.

        `output`: show the output of its tasks. `events`: 1 shows how it ended, 2 also its events, 3 also the events of
        its execution. `until`: the event after which to stop, "" for the last one. `labels`: begin each line with the
        job's id and the task rank.
        """

        output: bool = False
        events: int = 0
        until: str = ""
        labels: bool = False

else:
    from collections import namedtuple

    Wanted = namedtuple("Wanted", "output events until labels", defaults=(False, 0, "", False))


class _Job:
    """A job that is being followed."""

    __slots__ = ("calls", "err", "id", "name", "open", "out", "submitted", "wanted")

    def __init__(self, job: int, wanted: Wanted, out: IO[str], err: IO[str]) -> None:
        self.id = job
        self.name = jobid.encode(job, "f58")
        self.wanted = wanted
        self.out = out
        self.err = err
        self.submitted = 0.0
        self.open = 0
        self.calls: Dict[str, Rpc] = {}


class Follower:
    """Follows jobs: `add` each, then `run` follows all of them at once.

    Afterwards `status` is the highest of their exit statuses. A `progress` counts the jobs' states and is redrawn.
    """

    def __init__(self, handle: Handle, progress: Optional[Progress] = None) -> None:
        self.status = 0
        self._handle = handle
        self._progress = progress
        self._following: Dict[int, _Job] = {}
        self._reactor = Reactor()

    def add(self, job: int, wanted: Wanted, out: IO[str], err: IO[str]) -> None:
        """Follow a job; its output is written to `out` and `err`."""
        self._watch(_Job(job, wanted, out, err))

    def run(self) -> None:
        """Follow the jobs until they end, or until the event of their `Wanted.until`."""
        if not self._following:
            return
        if sys.stdout.isatty():
            sys.stdout.flush()
        self._reactor.add_handle(self._handle)
        if self._progress is not None:
            self._progress.draw()
            self._reactor.add_timer(0.25, self._progress.draw, 0.25)
        self._reactor.run()

    def _watch(self, job: _Job, path: str = "eventlog") -> None:
        job.open += 1
        self._following[job.id] = job
        call = self._handle.stream("job-info.eventlog-watch", {"id": job.id, "path": path, "flags": 0})
        takers = {"eventlog": self._job_event, "guest.exec.eventlog": self._exec_event, "guest.output": self._output}
        take = takers[path]
        job.calls[path] = call

        def answered(call: Rpc) -> None:
            try:
                entry = call.get()["event"]
            except OSError as exc:
                if exc.errno not in (errno.ENODATA, errno.ENOENT):
                    job.err.write(f"{job.name}: {exc.strerror}\n")
                    self.status = max(self.status, 1)
                self._closed(job)
                return
            if job.id in self._following and take(job, decode_line(entry)):
                # This was the event of `until`: nothing more of this job is shown.
                for other in job.calls.values():
                    other.cancel()
                job.open = 0
                self._closed(job)

        call.then(answered)

    def _closed(self, job: _Job) -> None:
        """Count the end of one of the job's streams. The job is finished with its last stream."""
        job.open -= 1
        if job.open <= 0 and self._following.pop(job.id, None) is not None and not self._following:
            self._reactor.stop()

    def _job_event(self, job: _Job, event: Any) -> bool:
        """Act on an event of the job's own eventlog. True if it is the event of `until`."""
        name, context = event.name, event.context or {}
        if name == "submit":
            job.submitted = event.timestamp
            wanted = job.wanted
            if wanted.output or wanted.events > 2 or wanted.until.startswith("exec."):
                self._watch(job, "guest.exec.eventlog")
        if job.wanted.events > 1:
            self._print_event(job, event.timestamp, f"{name} {_sorted_json(event.context)}")
        if self._progress is not None:
            self._progress.event(job.id, name, context)
        if is_fatal(name, context):
            if job.wanted.events < 2:
                note = context.get("note", "")
                self._print_event(job, event.timestamp, f"exception: type={context['type']} note={note}")
            self.status = max(self.status, 1)
        elif name == "finish":
            status = context["status"]
            if job.wanted.events:
                self._print_event(job, event.timestamp, f"complete: status={status}")
            self.status = max(self.status, exit_code(status))
        return bool(job.wanted.until == name)

    def _print_event(self, job: _Job, timestamp: float, text: str) -> None:
        job.err.write(f"{job.name}: {timestamp - job.submitted:.3f}s: {text}\n")

    def _exec_event(self, job: _Job, event: Any) -> bool:
        if event.name == "shell.init" and job.wanted.output and "guest.output" not in job.calls:
            # A requeued job has a second shell.init event, but a single output log.
            self._watch(job, "guest.output")
        if job.wanted.events > 2:
            self._print_event(job, event.timestamp, f"exec.{event.name} {_sorted_json(event.context)}")
        return bool(job.wanted.until == f"exec.{event.name}")

    def _output(self, job: _Job, event: Any) -> bool:
        context = event.context
        if event.name == "data" and context.get("data"):
            text = context["data"]
            if context.get("encoding") == "base64":
                from binascii import a2b_base64

                text = a2b_base64(text).decode("utf-8", "surrogateescape")
            stream = job.err if context["stream"] == "stderr" else job.out
            text *= context.get("repeat", 1)
            if job.wanted.labels:
                prefix = f"{job.name}: {context['rank']}: "
                # Only a newline ends a line, as in files.
                text = "".join([prefix + line for line in StringIO(text)])
            stream.write(text)
            # A reader at the other end of a pipe should see the text at once.
            stream.flush()
        elif event.name == "log":
            job.err.write(f"{job.name}: {event.timestamp - job.submitted:.3f}s: flux-shell: {context['message']}\n")
        return False


def _sorted_json(context: Any) -> str:
    if context is None:
        return ""
    import json

    return json.dumps(context, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
