"""Builders of records, and what a database has."""

from __future__ import annotations

import contextlib
from typing import Any

from headrace.cluster_queue.cycle.chronicle import Facts, Record
from headrace.cluster_queue.model.entry import State
from headrace.cluster_queue.store import database
from headrace.storage.database import Address, Database

T = 1_800_000_000.0


def facts(uid: str = "u1", version: int = 1, state: State = State.HELD, **more: Any) -> Facts:
    given = {
        **{"jobid": 7, "namespace": "team", "name": uid, "kind": "Job", "queue": "default", "priority": 0},
        **{"width": 2, "duration": 60.0, "nodes": "", "held": 0, "queued_at": T, "started_at": 0.0},
        **{"requeued_at": 0.0, "ended_at": 0.0, "note": "", **more},
    }
    return Facts(uid=uid, version=version, state=state, **given)


def life(uid: str = "u1", start: float = T + 10, end: float = T + 70, **more: Any) -> list[Record]:
    """The records of a job that waits, runs and ends."""
    has = {"nodes": "n[0-1]", "started_at": start, **more}
    return [
        Record(facts(uid, 1, **more), T),
        Record(facts(uid, 2, State.RELEASED, held=2, **has), start),
        Record(facts(uid, 3, State.RUNNING, held=2, **has), start + 1),
        Record(facts(uid, 4, State.FINISHED, ended_at=end, **has), end),
    ]


def opened(address: Address) -> contextlib.closing[Database]:
    """A database with the schema of the queue, closed after a block."""
    return contextlib.closing(database.opened(address))


def contents(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of the tables that records go into."""
    return {
        table: [tuple(row) for row in database.rows(f"SELECT * FROM {table} ORDER BY {order}")]
        for table, order in (("jobs", "uid"), ("events", "uid, name, occurrence"), ("usage", "uid, since"))
    }


def events(database: Database, uid: str = "u1") -> list[str]:
    sql = "SELECT name FROM events WHERE uid = :uid ORDER BY timestamp, name"
    return [str(name) for (name,) in database.rows(sql, {"uid": uid})]


def usage(database: Database, uid: str = "u1") -> list[tuple[float, float | None, int]]:
    """From when, to when (since T) and for how many pods a job had places."""
    rows = database.rows("SELECT since, until, pods FROM usage WHERE uid = :uid ORDER BY since", {"uid": uid})
    return [(since - T, None if until is None else until - T, pods) for since, until, pods in rows]
