"""The contents of a job's page, from job-list, the eventlog, the jobspec and R."""

from __future__ import annotations

import json
import shlex
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.formats.spec import duration, eventlog, jobid
from headrace.formats.spec.job_state import COMPLETED, INACTIVE, PENDING, RUN
from headrace.formats.spec.rset import ResourceSet
from headrace.formats.spec.stdio import Data
from headrace.formats.spec.wait_status import how_ended
from headrace.service.pages import following, view
from headrace.wire.query.job_info import JobInfo

# After a form, the address of the next page has one of these words as `said`. The page shows the sentence.
SAID = {
    "cancelled": "The job was asked to end.",
    "signalled": "The signal was sent to all tasks.",
    "ended": "The job has ended, so nothing was done.",
    "submitted": "The job was submitted.",
}
# Events of the main eventlog in words (RFC 21). Any other event is shown by its name.
_MEANINGS = {
    "submit": "submitted",
    "validate": "accepted",
    "depend": "dependencies are met",
    "priority": "has its priority",
    "alloc": "has its resources",
    "prolog-start": "preparation begins",
    "prolog-finish": "preparation has ended",
    "start": "tasks run",
    "finish": "tasks have ended",
    "epilog-start": "cleanup begins",
    "epilog-finish": "cleanup has ended",
    "release": "releases resources",
    "free": "has released all resources",
    "clean": "ended",
    "exception": "exception",
    "urgency": "urgency was changed",
    "jobspec-update": "was changed",
    "resource-update": "resources were changed",
    "memo": "note",
    "dependency-add": "waits for a dependency",
    "dependency-remove": "a dependency is met",
    "requeue": "queued again",
    "debug": "note for developers",
}


class Step(NamedTuple):
    """An event of a job. `when` is in seconds since the epoch, `after` in seconds since the submission."""

    name: str
    meaning: str
    when: float
    after: float
    about: str


class Fact(NamedTuple):
    label: str
    text: str


class Host(NamedTuple):
    """A node of a job, with the ids of the cores and GPUs that the job has there."""

    rank: int
    name: str
    cores: str
    gpus: str


class Output(NamedTuple):
    """The end of a job's output. `skipped` bytes came before it; `events` of the output log were read."""

    pieces: list[following.Piece]
    skipped: int
    events: int


class Job(NamedTuple):
    row: view.Row
    id: str
    forms: list[Fact]
    active: bool
    running: bool
    bank: str
    waits: list[Fact]
    steps: list[Step]
    asked: list[Fact]
    command: str
    script: str
    environment: list[Fact]
    hosts: list[Host]
    jobspec: str


def has_ended(raw: Mapping[str, Any]) -> bool:
    return bool(raw["state"] == INACTIVE)


def has_failed(raw: Mapping[str, Any]) -> bool:
    return has_ended(raw) and raw.get("result") != COMPLETED


def job(raw: dict[str, Any], stored: Mapping[str, Any], now: float) -> Job:
    """The contents of a job's page.

    `raw` is the job from job-list. `stored` has its eventlog, jobspec, J and, if it has started, R (jobs.lookup).
    """
    jobspec = stored["jobspec"]
    system = jobspec.get("attributes", {}).get("system", {})
    submitted = stored["J"].get("attributes", {}).get("system", {})
    task = (jobspec.get("tasks") or [{}])[0]
    command = task.get("command") or []
    variables = submitted.get("environment") or {}
    row = view.row(raw, now)
    return Job(
        row=row,
        id=jobid.encode(raw["id"], "f58plain"),
        forms=[Fact(name, jobid.encode(raw["id"], form)) for name, form in (("decimal", "dec"), ("words", "words"))],
        active=not has_ended(raw),
        running=raw["state"] == RUN,
        bank=raw.get("bank") or "",
        waits=_waits(raw, now),
        steps=steps(stored["eventlog"]),
        asked=_asked(raw, system),
        command=shlex.join(command) if isinstance(command, list) else str(command),
        script=script(submitted),
        environment=[Fact(name, str(value)) for name, value in sorted(variables.items())],
        hosts=_hosts(stored.get("R")),
        jobspec=json.dumps(jobspec, indent=2, ensure_ascii=False),
    )


def _waits(raw: dict[str, Any], now: float) -> list[Fact]:
    """Why a pending job does not run yet."""
    if not raw["state"] & PENDING:
        return []
    job = JobInfo(raw, now)
    facts = [Fact("Reason", view.why(job) or "not known yet")]
    ahead = job.get("sched.jobs_ahead")
    if isinstance(ahead, int):
        facts.append(Fact("Jobs ahead", str(ahead) if ahead else "none"))
    start = job.get("sched.t_estimate")
    if isinstance(start, (int, float)) and start:
        facts.append(Fact("Expected start", f"{view.moment(start)}, in {view.elapsed(max(0.0, start - now))}"))
    return facts


def steps(text: str) -> list[Step]:
    """The events of a main eventlog (RFC 18, 21)."""
    found: list[Step] = []
    for event in eventlog.decode(text):
        begin = found[0].when if found else event.timestamp
        meaning = _MEANINGS.get(event.name, event.name)
        about = _about(event.name, event.context or {})
        found.append(Step(event.name, meaning, event.timestamp, event.timestamp - begin, about))
    return found


def _about(name: str, context: Mapping[str, Any]) -> str:
    if name == "finish" and isinstance(context.get("status"), int):
        return how_ended(context["status"])
    if name == "exception":
        note = f": {_short(context['note'])}" if context.get("note") else ""
        return f"{context.get('type', '')}, severity {context.get('severity', '')}{note}"
    shown = {key: value for key, value in context.items() if value not in ("", {}, [])}
    if shown.keys() <= {"annotations"}:
        return ""
    return ", ".join(f"{key} {_short(value)}" for key, value in shown.items())


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return jobid.shown(text if len(text) <= 200 else text[:200] + "…")


def _asked(raw: Mapping[str, Any], system: Mapping[str, Any]) -> list[Fact]:
    """The known parts of the job's request. Values of None and "" are omitted."""
    limit = raw.get("duration")
    known = (
        ("Nodes", raw.get("nnodes")),
        ("Tasks", raw.get("ntasks")),
        ("Cores", raw.get("ncores")),
        ("Time limit", duration.encode(limit) if limit else "none"),
        ("Queue", raw.get("queue")),
        ("Bank", raw.get("bank")),
        ("Project", raw.get("project")),
        ("Urgency", raw.get("urgency")),
        ("Directory", system.get("cwd")),
        ("Dependencies", ", ".join(jobid.shown(text) for text in raw.get("dependencies") or [])),
        ("Constraint", json.dumps(system["constraints"]) if system.get("constraints") else ""),
    )
    return [Fact(label, str(value)) for label, value in known if value not in (None, "")]


def script(system: Mapping[str, Any]) -> str:
    """The script of a batch job, from the files of its jobspec (RFC 37); "" if it has none."""
    entry = (system.get("files") or {}).get("script")
    if not isinstance(entry, dict) or entry.get("encoding", "utf-8") != "utf-8":
        return ""
    data = entry.get("data")
    return data if isinstance(data, str) else ""


def _hosts(r: Any) -> list[Host]:
    if not r:
        return []
    found = ResourceSet.from_obj(r)
    return [Host(node.rank, node.host, str(node.cores), str(node.gpus)) for node in found.nodes()]


class Tail:
    """The last `most` bytes of a job's output."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: deque[Data] = deque()
        self._size = 0
        self._skipped = 0
        self._count = 0

    def add(self, part: Data) -> None:
        self._count += 1
        if part.data:
            self._kept.append(part)
            self._size += len(part.data)
            while self._size - len(self._kept[0].data or b"") >= self._most:
                self._drop(len(self._kept.popleft().data or b""))

    def output(self) -> Output:
        """The kept output, as a terminal would show it."""
        if self._size > self._most:
            part = self._kept.popleft()
            beyond = self._size - self._most
            self._kept.appendleft(part._replace(data=(part.data or b"")[beyond:]))
            self._drop(beyond)
        return Output(following.pieces(self._kept), self._skipped, self._count)

    def _drop(self, size: int) -> None:
        self._size -= size
        self._skipped += size
