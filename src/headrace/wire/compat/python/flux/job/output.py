"""Output of jobs, complete or as it arrives (RFC 24).

There are three forms of the same data: events, pieces of text by stream, and lines. Each is available as an iterator,
which waits, and as a future for the reactor.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from flux.future import FutureExt, connection
from flux.idset import IDset
from flux.job.event import EventLogEvent, JobEventWatchFuture, JobException
from flux.job.JobID import JobID, to_id
from headrace.formats.spec import stdio
from headrace.formats.spec.job_exception import is_fatal

if TYPE_CHECKING:
    from flux.core.handle import Flux
    from headrace.wire.client.handle import Rpc

# Severities of the shell's log messages; a level includes more severe messages.
LOG_QUIET = -1
LOG_FATAL = 0
LOG_ERROR = 3
LOG_WARN = 4
LOG_NOTICE = 5
LOG_DEBUG = 6
LOG_TRACE = 7
_LEVELS = {LOG_FATAL: "FATAL: ", LOG_ERROR: "ERROR: ", LOG_WARN: "WARN: ", LOG_DEBUG: "DEBUG: ", LOG_TRACE: "TRACE: "}

Piece = Tuple[Optional[str], Optional[str]]
_END: Piece = (None, None)


class JobOutput(NamedTuple):
    stdout: str
    stderr: str
    log: str


class TaskRanks:
    """The tasks of an event: its string form is the text in the event, `ids` are the task numbers."""

    def __init__(self, text: str, ntasks: int) -> None:
        self._text = text
        self.ids = IDset(range(ntasks)) if text == "all" else IDset(text)

    def __str__(self) -> str:
        return self._text


class OutputEvent(EventLogEvent):
    """An event of `guest.output`.

    `data` has `stream`, `rank` and `data` (text; None if the stream only ends); `redirect` has `stream`, `rank` and
    `path`; `log` has `level`, `rank` (of the shell), `component` and `message`.
    """

    def __init__(self, event: EventLogEvent, ntasks: int = 0) -> None:
        super().__init__(event)
        context = self.context
        self.stream: str = context.get("stream", "")
        self.rank: Any = context.get("rank", "")
        self.data: Optional[str] = None
        self.path: str = context.get("path", "")
        self.level: int = context.get("level", LOG_NOTICE)
        self.component: str = context.get("component", "")
        self.message: str = context.get("message", "")
        if self.name == "data":
            part = stdio.decode_data(context)
            self.data = None if part.data is None else part.data.decode("utf-8", "replace")
        if self.name in ("data", "redirect"):
            self.rank = TaskRanks(str(self.rank), ntasks)

    def text(self) -> str:
        """The text of an event for users, except of data events."""
        if self.name == "redirect":
            return f"{self.rank}: {self.stream} redirected to {self.path}\n"
        origin = f"flux-shell[{self.rank}]: {_LEVELS.get(self.level, '')}"
        component = f"{self.component}: " if self.component else ""
        return "".join(f"{origin}{component}{line}\n" for line in self.message.splitlines() or [""])


class _Reader:
    """Converts responses of the service to events of the selected tasks."""

    def __init__(self, tasks: Any, labelio: bool) -> None:
        self._wanted = None if tasks == "*" else IDset(str(tasks))
        self._labelio = labelio
        self._ntasks = 0

    def read(self, answer: Dict[str, Any]) -> Optional[OutputEvent]:
        event = OutputEvent(EventLogEvent(answer["event"]), self._ntasks)
        if event.name == "header":
            self._ntasks = event.context.get("count", {}).get("stdout", 0)
        elif event.name == "data":
            if self._wanted is not None and not len(self._wanted & event.rank.ids):
                return None
            if self._labelio and event.data:
                event.data = "".join(f"{event.rank}: {line}" for line in event.data.splitlines(keepends=True))
        return event


def _open(flux_handle: Flux, jobid: Any, nowait: bool) -> Rpc:
    """The stream of the job's output. Raises FileNotFoundError if `nowait` and there is no output yet."""
    handle, number = connection(flux_handle), to_id(jobid)
    if nowait:
        handle.rpc("job-info.lookup", {"id": number, "keys": ["guest.output"], "flags": 0}).get()
    return handle.stream("job-info.eventlog-watch", {"id": number, "path": "guest.output", "flags": 0})


def output_event_watch(
    flux_handle: Flux,
    jobid: Any,
    labelio: bool = False,
    nowait: bool = False,
    tasks: Any = "*",
) -> Iterator[OutputEvent]:
    """The events of a job's output, past and future; data only of `tasks` (an idset, `*` for all).

    `labelio` adds `RANK: ` to each line; `nowait` does not wait for the job's start. Raises FileNotFoundError.
    """
    reader = _Reader(tasks, labelio)
    for answer in _open(flux_handle, jobid, nowait):
        event = reader.read(answer)
        if event is not None:
            yield event


class JobOutputEventWatch(JobEventWatchFuture):
    """The events of a job's output, one at a time."""

    def __init__(self, flux_handle: Flux, call: Rpc, labelio: bool) -> None:
        super().__init__(flux_handle, call)
        self._reader = _Reader("*", labelio)

    def _decode(self, answer: Dict[str, Any]) -> Any:
        return self._reader.read(answer)


def output_event_watch_async(
    flux_handle: Flux,
    jobid: Any,
    labelio: bool = False,
    nowait: bool = False,
    tasks: Any = "*",
) -> JobOutputEventWatch:
    """A future for all events of a job's output; `get_event()` returns None at the end."""
    return JobOutputEventWatch(flux_handle, _open(flux_handle, jobid, nowait), labelio)


class _Pieces:
    """Converts events of a job and its output to (stream, text).

    Exceptions, and the shell's log messages up to a level, are on `stderr`; other log messages are on `log`. With
    `lines`, each text is a complete line, except for the last line of each stream of a task.
    """

    def __init__(self, tasks: Any, labelio: bool, log_stderr_level: int, lines: bool, keepends: bool) -> None:
        self._labelio = labelio
        self._reader = _Reader(tasks, labelio and not lines)
        self._level = log_stderr_level
        self._lines = lines
        self._end = "\n" if keepends else ""
        self._rest: Dict[Tuple[str, str], str] = {}
        self.started = False
        self.failure: Optional[JobException] = None

    def job_event(self, event: EventLogEvent) -> List[Piece]:
        if event.name == "start":
            self.started = True
        if event.name != "exception":
            return []
        context = event.context
        if is_fatal(event.name, context) and self.failure is None:
            self.failure = JobException(event)
        note = f" {context['note']}" if context.get("note") else ""
        return self._pieces_of_text(
            "stderr", f"job.exception type={context['type']} severity={context['severity']}{note}\n"
        )

    def output(self, answer: Dict[str, Any]) -> List[Piece]:
        event = self._reader.read(answer)
        if event is None or event.name == "header":
            return []
        if event.name != "data":
            to_log = event.name == "log" and event.level > self._level
            return self._pieces_of_text("log" if to_log else "stderr", event.text())
        if not event.data:
            return []
        return self._split(event.stream, str(event.rank), event.data) if self._lines else [(event.stream, event.data)]

    def _pieces_of_text(self, stream: str, text: str) -> List[Piece]:
        return [(stream, line + self._end) for line in text.splitlines()] if self._lines else [(stream, text)]

    def _split(self, stream: str, rank: str, text: str) -> List[Piece]:
        source = (stream, rank)
        *lines, partial_line = (self._rest.pop(source, "") + text).split("\n")
        if partial_line:
            self._rest[source] = partial_line
        label = f"{rank}: " if self._labelio else ""
        return [(stream, label + line + self._end) for line in lines]

    def unfinished(self) -> List[Piece]:
        """The last lines, if they have no newline."""
        rest, self._rest = self._rest, {}
        return [(stream, (f"{rank}: " if self._labelio else "") + line) for (stream, rank), line in rest.items()]


def _never_started(jobid: Any) -> OSError:
    return OSError(errno.EIO, f"job {JobID(to_id(jobid))} never started")


def _follow(flux_handle: Flux, jobid: Any, pieces: _Pieces, nowait: bool) -> Iterator[Piece]:
    """Read a job's events up to its start, its output, and its events up to its end."""
    handle, number = connection(flux_handle), to_id(jobid)
    if nowait:
        _open(flux_handle, jobid, nowait).cancel()
    main = handle.stream("job-info.eventlog-watch", {"id": number, "path": "eventlog", "flags": 0})
    events: Iterable[Any] = iter(main)
    for answer in events:
        yield from pieces.job_event(EventLogEvent(answer["event"]))
        if pieces.started:
            break
    if not pieces.started:
        return
    for answer in _open(flux_handle, jobid, False):
        yield from pieces.output(answer)
    yield from pieces.unfinished()
    for answer in events:
        event = EventLogEvent(answer["event"])
        yield from pieces.job_event(event)
        if event.name == "finish":
            break
    main.cancel()
    main.abandon()


def _watch(flux_handle: Flux, jobid: Any, pieces: _Pieces, nowait: bool) -> Iterator[Tuple[str, str]]:
    for stream, text in _follow(flux_handle, jobid, pieces, nowait):
        assert stream is not None and text is not None
        yield stream, text
    if not pieces.started:
        raise _never_started(jobid)


def output_watch(
    flux_handle: Flux,
    jobid: Any,
    labelio: bool = False,
    log_stderr_level: int = LOG_TRACE,
    nowait: bool = False,
    tasks: Any = "*",
) -> Iterator[Tuple[str, str]]:
    """(stream, text) as they arrive; the stream is `stdout`, `stderr` or `log`.

    The shell's log messages up to `log_stderr_level` are on `stderr`. Raises OSError EIO after the exception of a job
    that has never started, FileNotFoundError.
    """
    return _watch(flux_handle, jobid, _Pieces(tasks, labelio, log_stderr_level, False, True), nowait)


def output_watch_lines(
    flux_handle: Flux,
    jobid: Any,
    labelio: bool = False,
    log_stderr_level: int = LOG_TRACE,
    nowait: bool = False,
    keepends: bool = False,
    tasks: Any = "*",
) -> Iterator[Tuple[str, str]]:
    """(stream, line) as lines become complete; the last may be incomplete. Otherwise like `output_watch`."""
    return _watch(flux_handle, jobid, _Pieces(tasks, labelio, log_stderr_level, True, keepends), nowait)


class JobOutputWatch(FutureExt):
    """Pieces of a job's output, one at a time; `get_output()` returns (None, None) at the end."""

    def __init__(self, flux_handle: Flux, jobid: Any, pieces: _Pieces, nowait: bool) -> None:
        self._jobid = jobid
        self._pieces = pieces
        self._nowait = nowait
        super().__init__(lambda _future: self._start(), flux_handle=flux_handle)

    def _start(self) -> None:
        body = {"id": to_id(self._jobid), "path": "eventlog", "flags": 0}
        self._main = connection(self._handle).stream("job-info.eventlog-watch", body)
        self._main.then(self._job_event)

    def _job_event(self, call: Rpc) -> None:
        started = self._pieces.started
        if not self._take(call, lambda answer: self._pieces.job_event(EventLogEvent(answer["event"]))):
            if not self._pieces.started:
                self.fulfill_error(errno.EIO, _never_started(self._jobid).strerror)
                self.fulfill(_END)
        elif self._pieces.started and not started:
            _open(self._handle, self._jobid, self._nowait).then(self._output)

    def _output(self, call: Rpc) -> None:
        if not self._take(call, self._pieces.output):
            for piece in (*self._pieces.unfinished(), _END):
                self.fulfill(piece)
            self._main.cancel()
            self._main.abandon()

    def _take(self, call: Rpc, read: Callable[[Dict[str, Any]], List[Piece]]) -> bool:
        """Add the text in a response. False at the end of the stream."""
        try:
            answer = call.get()
        except OSError as exc:
            if exc.errno != errno.ENODATA:
                self.fulfill_error(exc.errno or errno.EIO, exc.strerror)
            return False
        for piece in read(answer):
            self.fulfill(piece)
        return True

    def get_output(self) -> Piece:
        """The next (stream, text). Raises the exceptions of `output_watch`; after one, `reset` continues."""
        piece: Piece = self.get()
        self.reset()
        return piece

    getline = get_output


def output_watch_async(
    flux_handle: Flux,
    jobid: Any,
    labelio: bool = False,
    log_stderr_level: int = LOG_TRACE,
    nowait: bool = False,
    tasks: Any = "*",
) -> JobOutputWatch:
    """The pieces of `output_watch`, as a future with `get_output`."""
    return JobOutputWatch(flux_handle, jobid, _Pieces(tasks, labelio, log_stderr_level, False, True), nowait)


def output_watch_lines_async(
    flux_handle: Flux,
    jobid: Any,
    labelio: bool = False,
    log_stderr_level: int = LOG_TRACE,
    nowait: bool = False,
    keepends: bool = False,
    tasks: Any = "*",
) -> JobOutputWatch:
    """The lines of `output_watch_lines`, as a future with `getline`."""
    return JobOutputWatch(flux_handle, jobid, _Pieces(tasks, labelio, log_stderr_level, True, keepends), nowait)


def job_output(
    flux_handle: Flux,
    jobid: Any,
    tasks: Any = "*",
    labelio: bool = False,
    nowait: bool = False,
    log_stderr_level: int = LOG_TRACE,
) -> JobOutput:
    """The output of a job that has ended; with `nowait`, the output so far.

    Raises FileNotFoundError if there is no such job or, with `nowait`, no output yet; JobException for a job that has
    never started.
    """
    pieces = _Pieces(tasks, labelio, log_stderr_level, False, True)
    parts: Dict[str, List[str]] = {"stdout": [], "stderr": [], "log": []}
    for stream, text in _present(flux_handle, jobid, pieces) if nowait else _follow(flux_handle, jobid, pieces, False):
        assert stream is not None and text is not None
        parts[stream].append(text)
    if not nowait and not pieces.started:
        raise pieces.failure or _never_started(jobid)
    return JobOutput("".join(parts["stdout"]), "".join(parts["stderr"]), "".join(parts["log"]))


def _present(flux_handle: Flux, jobid: Any, pieces: _Pieces) -> Iterator[Piece]:
    """The output so far."""
    body = {"id": to_id(jobid), "keys": ["guest.output"], "flags": 0}
    for line in connection(flux_handle).rpc("job-info.lookup", body).get()["guest.output"].splitlines():
        yield from pieces.output({"event": line})
