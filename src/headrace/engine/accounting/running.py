"""The usage of jobs that are running, for fair shares that count it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from headrace.engine.accounting.dialect import of_cluster
from headrace.engine.accounting.usage import Association, Resources, resources, weights
from headrace.formats.spec.job_state import RUNNING
from headrace.sched.accounting.usage import job_usage
from headrace.storage.database import Database
from headrace.wire.client.handle import Handle
from headrace.wire.query.listing import Query, list_jobs

_ATTRIBUTES = ["userid", "bank", "t_run"]
# Seconds after which the usage of a cluster whose service has stopped does not count.
_STALE = 3600.0


class Running:
    """The jobs of an instance that are running, with the resources that they hold."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self._held: dict[int, Resources] = {}

    def usage(self, database: Database, now: float) -> dict[Association, float]:
        """The usage of running jobs until now, by association. Raises OSError, DatabaseError."""
        query = Query(count=0)
        query.states = RUNNING
        found = list(list_jobs(self.handle, query, _ATTRIBUTES))
        self._look_up(found)
        names = {
            (userid, bank): user
            for userid, bank, user in database.rows("SELECT userid, bank, username FROM association_table")
        }
        weighed = weights(database)
        total: dict[Association, float] = defaultdict(float)
        for job in found:
            user = names.get((job["userid"], job.get("bank", "")))
            held = self._held.get(job["id"])
            if user is not None and held is not None:
                total[user, job["bank"]] += job_usage(*held, now - job["t_run"], weighed)
        return total

    def _look_up(self, found: list[dict[str, Any]]) -> None:
        """Read the resources of new jobs, and forget those of jobs that have ended."""
        ids = [job["id"] for job in found]
        calls = {
            id: self.handle.rpc("job-info.lookup", {"id": id, "keys": ["R"], "flags": 0})
            for id in ids
            if id not in self._held
        }
        held = {id: self._held[id] for id in ids if id in self._held}
        for id, call in calls.items():
            try:
                held[id] = resources(call.get()["R"])
            except (OSError, ValueError):
                # The job was purged, or its R is damaged.
                continue
        self._held = held


def of_all_clusters(database: Database, own: Mapping[Association, float], now: float) -> Mapping[Association, float]:
    """The usage of running jobs in all clusters of the database; `own` is that of this cluster.

    It is stored for the others, in PostgreSQL. The caller has begun a transaction. Raises DatabaseError.
    """
    if not database.is_postgresql:
        return own
    where = f"{of_cluster(database)} OR taken_at < :stale"
    database.execute(f"DELETE FROM headrace_running WHERE {where}", {"stale": now - _STALE})
    database.execute_many(
        "INSERT INTO headrace_running (username, bank, usage, taken_at) VALUES (:user, :bank, :usage, :now)",
        [{"user": user, "bank": bank, "usage": usage, "now": now} for (user, bank), usage in own.items()],
    )
    found = database.rows("SELECT username, bank, sum(usage) FROM headrace_running GROUP BY username, bank")
    return {(user, bank): usage for user, bank, usage in found}
