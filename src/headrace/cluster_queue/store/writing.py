"""Writes records to the tables.

A record that is repeated, or older than one already written for its job, changes nothing: each process that starts
writes the records of all FluxJobs again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from headrace.storage.database import Database

from ..cycle.chronicle import Facts, Record
from ..model.entry import State

Object = dict[str, Any]

# The state of a job whose object was deleted before it ended.
WITHDRAWN = "Withdrawn"
# Jobs per statement.
_CHUNK = 200

_COLUMNS = (
    *("uid", "version", "jobid", "namespace", "name", "kind", "queue", "priority", "width", "duration"),
    *("state", "nodes", "queued_at", "started_at", "ended_at"),
)
_KEPT = {
    # A job that was requeued keeps the time of its first start, and the nodes of its last one.
    "started_at": "COALESCE(jobs.started_at, excluded.started_at)",
    "nodes": "CASE WHEN excluded.nodes = '' THEN jobs.nodes ELSE excluded.nodes END",
}
_PUT = (
    f"INSERT INTO jobs ({', '.join(_COLUMNS)}) VALUES ({', '.join(f':{name}' for name in _COLUMNS)}) "
    f"ON CONFLICT (uid) DO UPDATE SET "
    + ", ".join(f"{name} = {_KEPT.get(name, f'excluded.{name}')}" for name in _COLUMNS[1:])
    + " WHERE jobs.version < excluded.version OR (jobs.version = excluded.version AND jobs.ended_at IS NULL)"
)
_ADD_EVENT = (
    "INSERT INTO events (uid, name, occurrence, timestamp, context) "
    "VALUES (:uid, :name, :occurrence, :timestamp, :context) ON CONFLICT DO NOTHING"
)
_ADD_USAGE = "INSERT INTO usage (uid, since, attempt, pods) VALUES (:uid, :since, :attempt, :pods)"
_END_USAGE = "UPDATE usage SET until = :until WHERE uid = :uid AND since = :since"


class Event(NamedTuple):
    """An event of RFC 18; `occurrence` distinguishes events of one name and job."""

    name: str
    occurrence: str
    timestamp: float
    context: Object


def events_of(record: Record) -> list[Event]:
    """All events of a job up to a record.

    Names and contexts are those of RFC 21 for its events submit, alloc, start, finish and exception. A job that is
    requeued has the event requeue.
    """
    facts, found = record.facts, []
    about = {"namespace": facts.namespace, "name": facts.name, "kind": facts.kind, "queue": facts.queue}
    context = {**about, "pods": facts.width, "priority": facts.priority}
    found.append(Event("submit", "", facts.queued_at, context))
    if facts.requeued_at:
        found.append(Event("requeue", f"{facts.requeued_at:.0f}", facts.requeued_at, {}))
    if facts.started_at:
        attempt = f"{facts.started_at:.0f}"
        found.append(Event("alloc", attempt, facts.started_at, {"nodes": facts.nodes}))
        if facts.state is State.RUNNING:
            found.append(Event("start", attempt, record.at, {}))
    if facts.state is State.REFUSED:
        found.append(Event("exception", facts.note, record.at, {"type": "refused", "severity": 1, "note": facts.note}))
    if facts.state.is_over:
        found.append(Event("finish", "", facts.ended_at, {"state": facts.state.value}))
    elif record.is_gone:
        note = {"type": "cancel", "severity": 0, "note": "its object was deleted"}
        found.append(Event("exception", "gone", record.at, note))
    return found


def write(database: Database, records: Iterable[Record]) -> None:
    """Write records, all or none. Raises DatabaseError."""
    with database.transaction():
        for record in records:
            _write(database, record)


def write_all(database: Database, records: Sequence[Record], at: float) -> None:
    """Write the records of all jobs that exist at a time, and end all other jobs. Raises DatabaseError."""
    for first in range(0, len(records), _CHUNK):
        chunk = records[first : first + _CHUNK]
        names = {f"u{index}": record.facts.uid for index, record in enumerate(chunk)}
        sql = f"SELECT uid, version FROM jobs WHERE uid IN ({', '.join(f':{name}' for name in names)})"
        known = {str(uid): int(version) for uid, version in database.rows(sql, names)}
        write(database, [one for one in chunk if known.get(one.facts.uid, -1) < one.facts.version])
    live = {record.facts.uid for record in records}
    with database.transaction():
        for (uid,) in database.rows("SELECT uid FROM jobs WHERE ended_at IS NULL"):
            if uid not in live:
                note = {"type": "cancel", "severity": 0, "note": "its object was deleted while no queue ran"}
                _end(database, uid, at)
                _add_event(database, uid, Event("exception", "gone", at, note))


def _write(database: Database, record: Record) -> None:
    facts = record.facts
    row = {name: getattr(facts, name) for name in _COLUMNS}
    row.update(state=facts.state.value, started_at=facts.started_at or None, ended_at=facts.ended_at or None)
    if not database.execute(_PUT, row):
        return
    for event in events_of(record):
        _add_event(database, facts.uid, event)
    _write_usage(database, record)
    if record.is_gone:
        _end(database, facts.uid, record.at)


def _add_event(database: Database, uid: str, event: Event) -> None:
    values = {"name": event.name, "occurrence": event.occurrence, "timestamp": event.timestamp}
    database.execute(_ADD_EVENT, {"uid": uid, **values, "context": json.dumps(event.context)})


def _end(database: Database, uid: str, at: float) -> None:
    """Mark a job as withdrawn, because its object was deleted before the job ended."""
    database.execute(
        "UPDATE jobs SET state = :state, ended_at = :at WHERE uid = :uid", {"state": WITHDRAWN, "at": at, "uid": uid}
    )
    _end_usage(database, uid, at)


def _end_usage(database: Database, uid: str, at: float) -> None:
    """End the usage of a job that has no assigned pods any more."""
    for (since,) in database.rows("SELECT since FROM usage WHERE uid = :uid AND until IS NULL", {"uid": uid}):
        database.execute(_END_USAGE, {"uid": uid, "since": since, "until": max(at, since)})


def _write_usage(database: Database, record: Record) -> None:
    """Update the job's usage from a record.

    The table has a row for each interval in which the job had assigned pods and their number was the same: `since`,
    `until` (NULL for the current interval), `attempt` (the start of the job) and `pods`.
    """
    facts, uid = record.facts, record.facts.uid
    if not facts.started_at:
        _end_usage(database, uid, facts.requeued_at or record.at)
        return
    sql = "SELECT since, until, attempt, pods FROM usage WHERE uid = :uid ORDER BY since"
    rows = database.rows(sql, {"uid": uid})
    if not rows or rows[-1][2] < facts.started_at:
        # An earlier attempt ends at the next start at the latest.
        _end_usage(database, uid, facts.started_at)
        first = facts.width if facts.state.is_over else facts.held
        _add_usage(database, facts, facts.started_at, first)
    elif not facts.state.is_over and (0 if rows[-1][1] is not None else rows[-1][3]) != facts.held:
        _end_usage(database, uid, record.at)
        _add_usage(database, facts, max(record.at, rows[-1][0]), facts.held)
    if facts.state.is_over:
        _end_usage(database, uid, facts.ended_at)


def _add_usage(database: Database, facts: Facts, since: float, pods: int) -> None:
    if not pods:
        return
    values = {"uid": facts.uid, "since": since, "attempt": facts.started_at, "pods": pods}
    # If the number changes twice at the same time, the later number is kept.
    database.execute(f"{_ADD_USAGE} ON CONFLICT (uid, since) DO UPDATE SET pods = excluded.pods, until = NULL", values)
