"""Submitting many jobs over one connection, and following them: `--wait`, `--watch`, `--progress`, `--log`.

Requests are pipelined: ids are printed as they come back. Following needs one eventlog per job; output is watched
once the shell has started, as Attach does for a single job, and lines carry the job's id when they are labelled.
"""

from __future__ import annotations

import errno
import sys
from io import StringIO

from headrace.cli.common.errors import refusal
from headrace.client.handle import Handle
from headrace.query import submission
from headrace.spec import jobid
from headrace.spec.job_exception import is_fatal
from headrace.spec.wait_status import exit_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import IO, Any, Callable, Dict, Iterable, List, Optional, Tuple

    from headrace.client.handle import Rpc

# Requests in flight before answers are read on the way.
_IN_FLIGHT = 512


class _Job:
    """A submitted job that is followed."""

    __slots__ = ("args", "calls", "err", "id", "name", "open", "out", "submitted")

    def __init__(self, job: int, args: Namespace, out: IO[str], err: IO[str]) -> None:
        self.id = job
        self.name = jobid.encode(job, "f58")
        self.args = args
        self.out = out
        self.err = err
        self.submitted = 0.0
        self.open = 0
        self.calls: List[Rpc] = []


class Submitter:
    """Submits the jobs of one command line. `run` returns the exit status; `program` begins its error lines."""

    def __init__(self, args: Namespace, program: str) -> None:
        self.args = args
        self.program = program
        self._connection: Optional[Handle] = None
        self.status = 0
        self._files: Dict[str, IO[str]] = {}
        self._pending: List[Tuple[Namespace, Rpc]] = []
        self._next = 0
        self._following: Dict[int, _Job] = {}
        self._follow = bool(args.wait or args.watch or args.wait_event)
        self._progress: Optional[Any] = None

    def run(self, jobs: Iterable[Tuple[Namespace, Callable[[], Dict[str, Any]]]]) -> int:
        if self.args.progress and sys.stdout.isatty():
            from headrace.cli.common.progress import Progress

            jobs = list(jobs)
            self._progress = Progress(total=len(jobs), followed=self._follow, show_rate=self.args.jps)
        elif self.args.progress:
            sys.stderr.write(f"{self.program}: WARNING: stdout is not a terminal. Ignoring --progress option\n")
        try:
            for args, make in jobs:
                # The first jobspec is made before the broker is needed, so that a wrong option is told first.
                request = submission.encode_request(make(), args)
                self._pending.append((args, self.handle.rpc("job-ingest.submit", payload=request)))
                if len(self._pending) - self._next >= _IN_FLIGHT:
                    self._collect()
            while self._next < len(self._pending):
                self._collect()
            if self._following:
                self._follow_all()
        finally:
            if self._progress is not None:
                self._progress.close()
            for file in self._files.values():
                file.close()
        return self.status

    @property
    def handle(self) -> Handle:
        if self._connection is None:
            self._connection = Handle()
        return self._connection

    # -- submitting

    def _collect(self) -> None:
        """Take the answer that is due next, in the order of submission."""
        args, call = self._pending[self._next]
        self._next += 1
        try:
            job = call.get()["id"]
        except OSError as exc:
            self._stderr(args).write(f"{refusal(exc)}\n")
            self.status = max(self.status, 1)
            if self._progress is not None:
                self._progress.refused()
            return
        if not args.quiet:
            self._stdout(args).write(f"{jobid.encode(job, 'f58')}\n")
        if self._progress is not None:
            self._progress.add()
        if self._follow:
            self._watch(_Job(job, args, self._stdout(args), self._stderr(args)))

    def _open(self, path: str, default: IO[str]) -> IO[str]:
        if not path:
            return default
        if path not in self._files:
            self._files[path] = open(path, "w", encoding="utf-8", errors="surrogateescape")
        return self._files[path]

    def _stdout(self, args: Namespace) -> IO[str]:
        return self._open(args.log, sys.stdout)

    def _stderr(self, args: Namespace) -> IO[str]:
        return self._open(args.log_stderr or args.log, sys.stderr)

    # -- following

    def _follow_all(self) -> None:
        from headrace.client.reactor import Reactor

        self.reactor = Reactor()
        if sys.stdout.isatty():
            sys.stdout.flush()
        self.reactor.add_handle(self.handle)
        if self._progress is not None:
            self._progress.draw()
            self.reactor.add_timer(0.25, self._progress.draw, 0.25)
        self.reactor.run()

    def _watch(self, job: _Job, path: str = "eventlog") -> None:
        from headrace.spec.eventlog import decode_line

        job.open += 1
        self._following[job.id] = job
        call = self.handle.stream("job-info.eventlog-watch", {"id": job.id, "path": path, "flags": 0})
        takers = {"eventlog": self._job_event, "guest.exec.eventlog": self._exec_event, "guest.output": self._output}
        take = takers[path]
        job.calls.append(call)

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
                # The event that was waited for: nothing more of this job is shown.
                for other in job.calls:
                    other.cancel()
                job.open = 0
                self._closed(job)

        call.then(answered)

    def _closed(self, job: _Job) -> None:
        """One of the job's streams is over; with its last one the job is, too."""
        job.open -= 1
        if job.open <= 0 and self._following.pop(job.id, None) is not None and not self._following:
            self.reactor.stop()

    def _job_event(self, job: _Job, event: Any) -> bool:
        """Act on an event of the job's own eventlog. True when nothing more is awaited from the job."""
        name, context = event.name, event.context or {}
        if name == "submit":
            job.submitted = event.timestamp
            if self.args.watch or self.args.verbose > 2 or (job.args.wait_event or "").startswith("exec."):
                self._watch(job, "guest.exec.eventlog")
        if self.args.verbose > 1:
            self._print_event(job, event.timestamp, f"{name} {_sorted_json(event.context)}")
        if self._progress is not None:
            self._progress.event(job.id, name, context)
        if is_fatal(name, context):
            if self.args.verbose < 2:
                note = context.get("note", "")
                self._print_event(job, event.timestamp, f"exception: type={context['type']} note={note}")
            self.status = max(self.status, 1)
        elif name == "finish":
            status = context["status"]
            if self.args.verbose:
                self._print_event(job, event.timestamp, f"complete: status={status}")
            self.status = max(self.status, exit_code(status))
        return self._awaited(job, str(name))

    def _awaited(self, job: _Job, name: str) -> bool:
        """Whether the event called `name` is the one that the command waits for."""
        return bool(job.args.wait_event == name and not (self.args.wait or self.args.watch))

    def _print_event(self, job: _Job, timestamp: float, text: str) -> None:
        job.err.write(f"{job.name}: {timestamp - job.submitted:.3f}s: {text}\n")

    def _exec_event(self, job: _Job, event: Any) -> bool:
        if event.name == "shell.init" and self.args.watch:
            self._watch(job, "guest.output")
        if self.args.verbose > 2:
            self._print_event(job, event.timestamp, f"exec.{event.name} {_sorted_json(event.context)}")
        return self._awaited(job, f"exec.{event.name}")

    def _output(self, job: _Job, event: Any) -> bool:
        context = event.context
        if event.name == "data" and context.get("data"):
            text = context["data"]
            if context.get("encoding") == "base64":
                from binascii import a2b_base64

                text = a2b_base64(text).decode("utf-8", "surrogateescape")
            stream = job.err if context["stream"] == "stderr" else job.out
            text *= context.get("repeat", 1)
            if job.args.label_io:
                prefix = f"{job.name}: {context['rank']}: "
                # Only a newline ends a line, as in files.
                text = "".join([prefix + line for line in StringIO(text)])
            stream.write(text)
            # Who watches through a pipe wants to see it now.
            stream.flush()
        elif event.name == "log":
            job.err.write(f"{job.name}: {event.timestamp - job.submitted:.3f}s: flux-shell: {context['message']}\n")
        return False


def _sorted_json(context: Any) -> str:
    if context is None:
        return ""
    import json

    return json.dumps(context, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
