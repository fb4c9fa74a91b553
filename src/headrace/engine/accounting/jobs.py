"""Records of jobs that have ended: reading them from an instance, and the table `jobs`."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import asdict

from headrace.engine.accounting.dialect import of_cluster
from headrace.formats.spec import eventlog, jobspec
from headrace.formats.spec.eventlog import EventlogError
from headrace.formats.spec.job_state import INACTIVE
from headrace.formats.spec.rset import ResourceSet, RsetError
from headrace.sched.accounting import rows
from headrace.sched.accounting.rows import Job
from headrace.storage.database import Database
from headrace.wire.client.handle import Handle
from headrace.wire.query.listing import Query, list_jobs

TABLE = "jobs"
# Jobs that are read and written at once.
CHUNK = 256
# The flag of job-info.lookup for a jobspec and R with their updates (RFC 41).
_CURRENT = 2
# Errors of an instance whose modules or brokers are being restarted.
_PASSING = (errno.ENOSYS, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ETIMEDOUT)


def ended_since(handle: Handle, time: float) -> list[tuple[float, int]]:
    """When jobs ended, and their ids, for jobs that ended after a time; the oldest end is first."""
    query = Query(count=0, since=time)
    query.states = INACTIVE
    return sorted((job["t_inactive"], job["id"]) for job in list_jobs(handle, query, ["t_inactive"]))


def read(handle: Handle, ids: Iterable[int]) -> Iterator[list[Job]]:
    """The records of inactive jobs, in chunks. Jobs that never ran have none.

    Raises OSError if the instance cannot be asked now.
    """
    waiting = iter(ids)
    while chunk := list(islice(waiting, CHUNK)):
        body = {"keys": ["eventlog", "R", "jobspec"], "flags": _CURRENT}
        calls = [handle.rpc("job-info.lookup", {"id": id, **body}) for id in chunk]
        found = []
        for id, call in zip(chunk, calls):
            try:
                answer = call.get()
            except OSError as exc:
                if exc.errno in _PASSING:
                    raise
                # The job has no R, so it never ran, or it was purged, or its record is damaged.
                continue
            job = _record(id, answer)
            if job is not None:
                found.append(job)
        yield found


def _record(id: int, found: dict[str, Any]) -> Job | None:
    """A job's record from its logs; None for a job that never ran, and for one whose data is damaged."""
    try:
        times = _times(eventlog.decode(found["eventlog"]))
        spec = json.loads(found["jobspec"])
        system = jobspec.system(spec)
        ranks = ResourceSet.parse(found["R"]).ranks.encode(brackets=True)
        userid, t_submit, t_run, t_inactive = times["userid"], times["submit"], times["alloc"], times["clean"]
    except (EventlogError, RsetError, ValueError, TypeError, AttributeError, KeyError):
        return None
    return Job(
        id=str(id),
        userid=userid,
        t_submit=t_submit,
        t_run=t_run,
        t_inactive=t_inactive,
        ranks=ranks,
        R=found["R"],
        jobspec=found["jobspec"],
        project=_name(system.get("project")),
        bank=_name(system.get("bank")),
        requested_duration=jobspec.duration(spec),
        actual_duration=t_inactive - t_run,
    )


def _times(events: Sequence[eventlog.Event]) -> dict[str, Any]:
    """When a job was submitted, started and ended, and its user. A job that was queued again has its last start."""
    found: dict[str, Any] = {}
    for time, name, context in events:
        if name in ("submit", "alloc", "clean"):
            found[name] = time
            if name == "submit":
                found["userid"] = (context or {})["userid"]
        elif name == "requeue" or (name == "flux-restart" and (context or {}).get("requeue")):
            found.pop("alloc", None)
    return found


def _name(value: Any) -> str:
    return value if isinstance(value, str) else ""


_COLUMNS = rows.columns(TABLE)
_INSERT = (
    f"INSERT INTO {TABLE} ({', '.join(_COLUMNS)}) VALUES ({', '.join(f':{each}' for each in _COLUMNS)})"
    " ON CONFLICT DO NOTHING"
)


def insert(database: Database, jobs: Sequence[Job]) -> None:
    """Add records; those that the table has are left as they are."""
    database.execute_many(_INSERT, [asdict(job) for job in jobs])


def last_end(database: Database) -> float:
    """When the last job of the cluster in the table ended, 0 without jobs."""
    ((found,),) = database.rows(f"SELECT max(t_inactive) FROM {TABLE} WHERE {of_cluster(database)}")
    return float(found or 0.0)


def fetch(database: Database, handle: Handle) -> None:
    """Add the jobs that ended after the last one of the table."""
    ids = [id for _, id in ended_since(handle, last_end(database))]
    for found in read(handle, ids):
        with database.transaction(locked=True):
            insert(database, found)


_COPIED = ("id", "userid", "t_submit", "t_run", "t_inactive", "ranks", "R", "jobspec")


def copy(database: Database, old: Database) -> None:
    """Add the jobs of another database that ran."""
    found = old.rows(f"SELECT {', '.join(_COPIED)} FROM {TABLE} WHERE R <> ''")
    names, values = ", ".join(_COPIED), ", ".join(f":{each}" for each in _COPIED)
    with database.transaction(locked=True):
        database.execute_many(
            f"INSERT INTO {TABLE} ({names}) VALUES ({values}) ON CONFLICT DO NOTHING",
            [dict(zip(_COPIED, row)) for row in found],
        )
