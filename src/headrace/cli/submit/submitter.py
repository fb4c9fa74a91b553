"""Submits many jobs over one connection and follows them: `--wait`, `--watch`, `--progress`, `--log`.

Requests are pipelined, and ids are printed as the responses arrive.
"""

from __future__ import annotations

import sys

from headrace.cli.common.errors import refusal
from headrace.formats.spec import jobid
from headrace.wire.client.handle import Handle
from headrace.wire.query import submission

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import IO, Any, Callable, Dict, Iterable, List, Optional, Tuple

    from headrace.cli.common.follower import Follower
    from headrace.wire.client.handle import Rpc

# Number of requests in flight from which a response is read before the next request.
_IN_FLIGHT = 512


class Submitter:
    """Submits the jobs of one command line.

    `run` returns the exit status; `program` is the prefix of warnings.
    """

    def __init__(self, args: Namespace, program: str) -> None:
        self.args = args
        self.program = program
        self._connection: Optional[Handle] = None
        self.status = 0
        self._files: Dict[str, IO[str]] = {}
        self._pending: List[Tuple[Namespace, Rpc]] = []
        self._next = 0
        # Created with the first job that is followed.
        self._follower: Optional[Follower] = None
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
                # The first jobspec is made before the connection, so that a wrong option is reported first.
                request = submission.encode_request(make(), args)
                self._pending.append((args, self.handle.rpc("job-ingest.submit", payload=request)))
                if len(self._pending) - self._next >= _IN_FLIGHT:
                    self._collect()
            while self._next < len(self._pending):
                self._collect()
            if self._follower is not None:
                self._follower.run()
        finally:
            if self._progress is not None:
                self._progress.close()
            for file in self._files.values():
                file.close()
        return max(self.status, self._follower.status if self._follower is not None else 0)

    @property
    def handle(self) -> Handle:
        if self._connection is None:
            self._connection = Handle()
        return self._connection

    # -- submitting

    def _collect(self) -> None:
        """Handle the next response, in the order of submission."""
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
            self._follow_job(job, args)

    def _follow_job(self, job: int, args: Namespace) -> None:
        from headrace.cli.common.follower import Follower, Wanted

        if self._follower is None:
            self._follower = Follower(self.handle, self._progress)
        # --wait and --watch follow a job to its end, so --wait-event has no effect with them.
        until = "" if self.args.wait or self.args.watch else args.wait_event or ""
        wanted = Wanted(bool(self.args.watch), self.args.verbose, until, args.label_io)
        self._follower.add(job, wanted, self._stdout(args), self._stderr(args))

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
