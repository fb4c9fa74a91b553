"""Output of jobs, at once or as it comes (RFC 24)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NamedTuple, Tuple

from flux.job.event import EventLogEvent, event_watch
from flux.job.JobID import to_id
from headrace.spec import stdio
from headrace.spec.idset import Idset

if TYPE_CHECKING:
    from flux.core.handle import Flux


class JobOutput(NamedTuple):
    stdout: str
    stderr: str
    log: str


class OutputEvent(EventLogEvent):
    """An event of `guest.output`; those named `data` have `stream`, `rank` and `data` (text, "" at the end)."""

    def __init__(self, event: EventLogEvent) -> None:
        dict.__init__(self, event)
        self.stream = self.rank = self.data = ""
        if self.name == "data":
            part = stdio.decode_data(self.context)
            self.stream, self.rank = part.stream, str(part.rank)
            self.data = (part.data or b"").decode("utf-8", "replace")
        elif self.name == "log":
            self.stream, self.data = "log", str(self.context.get("message", "")) + "\n"


def output_event_watch(
    flux_handle: Flux, jobid: Any, tasks: Any = "*", labelio: bool = False, nowait: bool = False
) -> Iterator[OutputEvent]:
    """The events of a job's output, past and to come; data of `tasks` only (an idset, `*` for all).

    `labelio` puts `RANK: ` before each line; `nowait` ends with what there is.
    """
    wanted = None if tasks == "*" else Idset.parse(str(tasks))
    events = _present(flux_handle, jobid) if nowait else event_watch(flux_handle, jobid, "guest.output")
    for event in map(OutputEvent, events):
        if event.name == "data":
            ranks = event.rank
            if wanted is not None and ranks != "all" and not (wanted & Idset.parse(ranks)):
                continue
            if labelio and event.data:
                event.data = "".join(f"{ranks}: {line}" for line in event.data.splitlines(keepends=True))
        yield event


def _present(flux_handle: Flux, jobid: Any) -> Iterator[EventLogEvent]:
    """The events that there are now."""
    body = {"id": to_id(jobid), "keys": ["guest.output"], "flags": 0}
    text = flux_handle.rpc("job-info.lookup", body).get()["guest.output"]
    return (EventLogEvent(line) for line in text.splitlines())


def output_watch(
    flux_handle: Flux, jobid: Any, tasks: Any = "*", labelio: bool = False, nowait: bool = False
) -> Iterator[Tuple[str, str]]:
    """(stream, text) as they come; the stream is `stdout`, `stderr` or `log`."""
    for event in output_event_watch(flux_handle, jobid, tasks, labelio, nowait):
        if event.data:
            yield event.stream, event.data


def output_watch_lines(
    flux_handle: Flux,
    jobid: Any,
    tasks: Any = "*",
    labelio: bool = False,
    nowait: bool = False,
    keepends: bool = False,
) -> Iterator[Tuple[str, str]]:
    """(stream, line) as they come, whole lines only but for the last."""
    rest: Dict[Tuple[str, str], str] = {}
    for event in output_event_watch(flux_handle, jobid, tasks, False, nowait):
        if not event.data:
            continue
        source = (event.stream, event.rank)
        label = f"{event.rank}: " if labelio and event.name == "data" else ""
        *lines, left = (rest.pop(source, "") + event.data).split("\n")
        if left:
            rest[source] = left
        for line in lines:
            yield event.stream, label + line + ("\n" if keepends else "")
    for (stream, rank), line in rest.items():
        yield stream, (f"{rank}: " if labelio and stream != "log" else "") + line


def job_output(
    flux_handle: Flux, jobid: Any, tasks: Any = "*", labelio: bool = False, nowait: bool = False
) -> JobOutput:
    """What the job printed, when it has ended (with `nowait`: until now)."""
    parts: Dict[str, List[str]] = {"stdout": [], "stderr": [], "log": []}
    for stream, text in output_watch(flux_handle, jobid, tasks, labelio, nowait):
        parts[stream].append(text)
    return JobOutput("".join(parts["stdout"]), "".join(parts["stderr"]), "".join(parts["log"]))
