"""Requests to the broker about jobs, for all interfaces.

Each function may raise BrokerUnreachable, and OSError with the broker's errno and text.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from headrace.formats.spec import eventlog, jobid, stdio
from headrace.formats.spec.job_exception import CANCEL, FATAL
from headrace.formats.spec.job_state import INACTIVE, PENDING
from headrace.service.broker_link import AWAY, BrokerLink
from headrace.wire.query.listing import Query
from headrace.wire.query.submission import URGENCIES, jobspec_request

ALL_ATTRIBUTES = ["all"]
# The flag of job-info.lookup that applies all updates to jobspec and R (RFC 41).
_LOOKUP_CURRENT = 2
# A listing of at most this many jobs is requested as one response.
_MOST_AT_ONCE = 1001


class NoSuchJob(LookupError):
    """No job has the id. The text is for users."""


class BadId(NoSuchJob):
    """The text is not a job id in any form."""


class NothingYet(LookupError):
    """The job exists, but the requested record does not exist (yet). The text is for users."""


class Refused(ValueError):
    """An invalid submission. `problems` has a sentence for users for each error.

    If the broker refused the submission, `errno` is the broker's, and `field` is the field that it refused, "" if
    unknown.
    """

    def __init__(self, problems: list[str], errno: int | None = None, field: str = "") -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        self.errno = errno
        self.field = field


class BadOutput(ValueError):
    """A job's output log has an invalid event. Jobs can write anything into this log (RFC 24)."""


class JobHasEnded(ValueError):
    """The request needs an active job, but the job has ended. The text is for users."""


def read_id(text: str) -> int:
    """A job's id in any form of RFC 19. Raises BadId."""
    try:
        return jobid.parse(text)
    except ValueError:
        raise BadId(f"'{text}' is not a job id") from None


async def listing(link: BrokerLink, query: Query, attrs: list[str]) -> list[dict[str, Any]]:
    """The matching jobs, as job-list describes them and in its order (RFC 43).

    That is pending jobs by priority, then running jobs, then ended jobs, the newest first. If `attrs` has
    `annotations`, pending jobs have the reason why they wait.
    """
    request = query.request(attrs)
    if 0 < query.count <= _MOST_AT_ONCE and "annotations" not in attrs:
        # One response costs both sides less than a stream, whose first responses have one job each. But only a stream
        # has the reasons why jobs wait.
        found: list[dict[str, Any]] = (await link.call("job-list.list", request))["jobs"]
        return found
    answers = await link.gather("job-list.list", request)
    return [job for answer in answers for job in answer["jobs"]]


async def between(link: BrokerLink, begin: float, end: float, attrs: list[str]) -> list[dict[str, Any]]:
    """The jobs that existed at some time from `begin` to `end` (seconds since the epoch)."""
    query = Query(count=0, since=begin)
    query.add("t_submit", [f"<{end!r}"])
    return await listing(link, query, attrs)


async def one(link: BrokerLink, id: int, attrs: list[str] = ALL_ATTRIBUTES) -> dict[str, Any]:
    """A job as job-list describes it (RFC 43). Raises NoSuchJob."""
    try:
        job: dict[str, Any] = (await link.call("job-list.list-id", {"id": id, "attrs": attrs}))["job"]
    except OSError as exc:
        if exc.errno != errno.ENOENT:
            raise
        raise NoSuchJob(f"no job has the id {jobid.encode(id)}") from None
    return job


async def readable(link: BrokerLink, id: int, attrs: list[str] = ALL_ATTRIBUTES) -> dict[str, Any]:
    """A job as `one` describes it, if the user may read its logs. Raises NoSuchJob, PermissionError.

    A stream of a log calls this first, because a response that has begun cannot report a refusal. Administrators see
    jobs whose logs they may not read.
    """
    job = await one(link, id, attrs)
    await lookup(link, id, [])
    return job


async def check(link: BrokerLink, jobspec: dict[str, Any]) -> None:
    """Ask the scheduler whether it could ever run the job. Raises Refused."""
    with _refusals(jobspec):
        await link.call("feasibility.check", {"jobspec": jobspec})


async def check_if_possible(link: BrokerLink, jobspec: dict[str, Any]) -> None:
    """As `check`, but accept any job if no scheduler is loaded or knows its resources. Raises Refused."""
    try:
        await check(link, jobspec)
    except (OSError, Refused) as exc:
        if exc.errno not in (errno.ENOSYS, errno.EAGAIN):
            raise


async def explanation(link: BrokerLink, job: dict[str, Any]) -> dict[str, Any]:
    """The annotations of a pending job, with the reason why it waits.

    job-list gives the reason in listings only, so this lists the pending jobs with the same submission time.
    """
    query = Query(count=0)
    query.states = PENDING
    for relation in (">=", "<="):
        query.add("t_submit", [f"{relation}{job['t_submit']!r}"])
    for found in await listing(link, query, ["annotations"]):
        if found["id"] == job["id"]:
            return dict(found.get("annotations") or {})
    return {}


async def submit(link: BrokerLink, jobspec: dict[str, Any], urgency: int = URGENCIES["default"]) -> int:
    """Submit a job and return its id. Raises Refused."""
    with _refusals(jobspec):
        answer = await link.call("job-ingest.submit", payload=jobspec_request(jobspec, urgency, userid=link.userid))
    return int(answer["id"])


@contextlib.contextmanager
def _refusals(jobspec: dict[str, Any]) -> Iterator[None]:
    """Raise Refused if the broker refuses the jobspec, or if the jobspec cannot be encoded."""
    try:
        yield
    except OSError as exc:
        if exc.errno in AWAY:
            raise
        raise Refused([str(exc.strerror)], exc.errno, _refused_field(jobspec, str(exc.strerror))) from None
    except (ValueError, RecursionError) as exc:
        # A request can hold unpaired surrogates and objects that are nested too deeply, which a jobspec cannot.
        raise Refused([str(exc)]) from None


# The refusals of the policy mf_priority that are about a field, by their beginnings.
_REFUSALS = {"cannot find user/bank": "bank", 'project "': "project", 'queue "': "queue"}


def _refused_field(jobspec: dict[str, Any], text: str) -> str:
    """The field of the jobspec that the broker's refusal is about: queue, bank or project; "" if it names none."""
    attributes = jobspec.get("attributes")
    system = attributes.get("system") if isinstance(attributes, dict) else None
    queue = system.get("queue") if isinstance(system, dict) else None
    if isinstance(queue, str) and f"'{queue}'" in text:
        return "queue"
    return next((field for beginning, field in _REFUSALS.items() if beginning in text), "")


async def lookup(link: BrokerLink, id: int, keys: list[str]) -> dict[str, Any]:
    """Look up records of a job by key: eventlog, jobspec, R, J (RFC 41). Raises NoSuchJob.

    The eventlog is text. jobspec and R are objects with all updates. J gives the jobspec as it was submitted; no other
    record has the environment and the files.
    """
    try:
        found: dict[str, Any] = await link.call("job-info.lookup", {"id": id, "keys": keys, "flags": _LOOKUP_CURRENT})
    except OSError as exc:
        if exc.errno != errno.ENOENT:
            raise
        raise NoSuchJob(f"no job has the id {jobid.encode(id)}") from None
    return {key: _read(key, text) for key, text in found.items()}


def _read(key: str, text: Any) -> Any:
    if key == "J":
        # HEADER.PAYLOAD.SIGNATURE, the payload in base64 (RFC 39).
        return json.loads(base64.b64decode(text.split(".")[1]))
    return json.loads(text) if key in ("jobspec", "R") else text


async def cancel(link: BrokerLink, id: int) -> None:
    """Raise the exception `cancel` (RFC 21). Raises NoSuchJob, JobHasEnded."""
    await change(link, id, "raise", {"type": CANCEL, "severity": FATAL})


async def kill(link: BrokerLink, id: int, signum: int) -> None:
    """Send a signal to the tasks of a running job. Raises NoSuchJob, JobHasEnded."""
    await change(link, id, "kill", {"signum": signum})


async def change(link: BrokerLink, id: int, method: str, request: dict[str, Any]) -> dict[str, Any]:
    """Ask the job manager to change an active job, and return its response.

    Raises NoSuchJob, JobHasEnded.
    """
    try:
        answer: dict[str, Any] | None = await link.call(f"job-manager.{method}", {"id": id, **request})
    except OSError as exc:
        if exc.errno != errno.ENOENT:
            raise
        await one(link, id)
        raise JobHasEnded(f"{jobid.encode(id)} has ended") from None
    return answer or {}


async def kept(link: BrokerLink, id: int, key: str) -> str:
    """The text of a job's `eventlog`, `jobspec` or `R`, the last two with all updates.

    Raises NoSuchJob, and NothingYet if the job does not have the record (yet).
    """
    try:
        found = await link.call("job-info.lookup", {"id": id, "keys": [key], "flags": _LOOKUP_CURRENT})
    except OSError as exc:
        if exc.errno != errno.ENOENT:
            raise
        await one(link, id)
        raise NothingYet(f"{jobid.encode(id)} has no {key}") from None
    return str(found[key])


async def output(link: BrokerLink, id: int) -> list[stdio.Data]:
    """The output of a job so far (RFC 24), empty before it starts. Raises NoSuchJob, BadOutput."""
    try:
        found = await link.call("job-info.lookup", {"id": id, "keys": ["guest.output"]})
    except OSError as exc:
        if exc.errno != errno.ENOENT:
            raise
        # ENOENT means that either the output or the job does not exist. For the latter `one` raises NoSuchJob.
        await one(link, id)
        return []
    try:
        events = eventlog.decode(found["guest.output"])
        return [stdio.decode_data(event.context) for event in events if event.name == "data"]
    except ValueError as exc:
        raise BadOutput(f"the output of {jobid.encode(id)}: {exc}") from None


async def written(link: BrokerLink, job: dict[str, Any]) -> AsyncIterator[stdio.Data]:
    """The output so far of a job as `one` describes it. Raises NoSuchJob, BadOutput.

    The output of an ended job is read piece by piece, so it may be of any length.
    """
    if job["state"] == INACTIVE:
        async for part in follow_output(link, job["id"]):
            yield part
    else:
        for part in await output(link, job["id"]):
            yield part


async def follow_output(link: BrokerLink, id: int) -> AsyncIterator[stdio.Data]:
    """The output of a job as it is written, until its end. Raises NoSuchJob, BadOutput."""
    await one(link, id)
    watch = link.follow("job-info.eventlog-watch", {"id": id, "path": "guest.output", "flags": 0})
    async for part in parts((answer["event"] async for answer in watch), id):
        yield part


async def parts(lines: AsyncIterator[str], id: int) -> AsyncIterator[stdio.Data]:
    """Decode the lines of an output log as they arrive. Raises BadOutput, and the errors of `lines`."""
    try:
        async for line in lines:
            event = eventlog.decode_line(line)
            if event.name == "data":
                yield stdio.decode_data(event.context)
    except OSError as exc:
        # A job that ended before it started has no output.
        if exc.errno != errno.ENOENT:
            raise
    except ValueError as exc:
        raise BadOutput(f"the output of {jobid.encode(id)}: {exc}") from None
