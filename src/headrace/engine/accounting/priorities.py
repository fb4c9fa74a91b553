"""The method `jobs`: a user's jobs in the instance with the terms of their priorities."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.engine.accounting.records import point_in_time
from headrace.engine.accounting.requests import Payload, optional, text
from headrace.formats.spec import jobid
from headrace.sched.accounting import tables
from headrace.storage.database import Database
from headrace.wire.client.handle import Handle
from headrace.wire.query.job_info import JobInfo
from headrace.wire.query.listing import Query, list_ids, list_jobs

_ATTRIBUTES = ["userid", "bank", "queue", "urgency", "priority", "annotations", "state", "t_inactive"]
# The columns of the listing and their widths.
_WIDTHS = {
    "JOBID": 15,
    "USER": 9,
    "BANK": 8,
    "BANKPRIO": 10,
    "BANKFACT": 10,
    "QUEUE": 8,
    "QPRIO": 7,
    "QFACT": 7,
    "FAIRSHARE": 10,
    "FSFACTOR": 10,
    "URGENCY": 8,
    "URGFACT": 8,
    "PRIORITY": 8,
}


class Terms(NamedTuple):
    """What the priorities of jobs are computed from: the priorities of banks and queues, and the weights."""

    banks: dict[str, float]
    queues: dict[str, int]
    weights: dict[str, int]


def list_priorities(database: Database, payload: Payload) -> str:
    """Answer `jobs`. Raises ValueError, QueryError, OSError."""
    user, bank, queue = text(payload, "username"), optional(payload, "bank"), optional(payload, "queue")
    where = "username = :user" + " AND bank = :bank" * bool(bank)
    users = database.rows(f"SELECT userid FROM association_table WHERE {where}", {"user": user, "bank": bank})
    if not users:
        raise ValueError(f"could not find entry for {user} in association_table")
    terms = read_terms(database)
    if bank and bank not in terms.banks:
        raise ValueError(f"could not find entry for {bank} in bank_table")
    found = [job for job in _jobs(payload, int(users[0][0]), queue) if not bank or job.get("bank") == bank]
    if payload.get("verbose"):
        return "".join(_calculation(job, terms) for job in found)
    lines = [_cells(job, terms) for job in found]
    if form := optional(payload, "format"):
        return tables.as_lines(tuple(_WIDTHS), lines, form) if lines else ""
    return "\n".join(
        "".join(f"{cell!s:<{_WIDTHS[name]}}" for name, cell in zip(_WIDTHS, line)) for line in [[*_WIDTHS], *lines]
    )


def read_terms(database: Database) -> Terms:
    """The terms of the tables."""
    return Terms(
        {bank: priority for bank, priority in database.rows("SELECT bank, priority FROM bank_table")},
        {queue: priority for queue, priority in database.rows("SELECT queue, priority FROM queue_table")},
        {factor: weight for factor, weight in database.rows("SELECT factor, weight FROM priority_factor_weight_table")},
    )


def _jobs(payload: Payload, userid: int, queue: str) -> Iterable[JobInfo]:
    since = point_in_time(payload.get("since") or 0.0)
    if since > time.time():
        raise ValueError(f"--since appears to be in the future: {since}")
    with Handle() as handle:
        if payload.get("jobids"):
            ids = [jobid.parse(str(each)) for each in payload["jobids"]]
            return [job for job in list_ids(handle, ids, _ATTRIBUTES) if job is not None]
        query = Query(count=int(payload.get("count") or 0), since=since)
        query.add("userid", [userid])
        if queue:
            query.add("queue", [queue])
        if filters := optional(payload, "filter"):
            query.filter(filters)
        return [JobInfo(job) for job in list_jobs(handle, query, _ATTRIBUTES)]


def _cells(job: JobInfo, terms: Terms) -> list[Any]:
    return [
        job.get("id.f58"),
        job.get("username"),
        job.get("bank"),
        terms.banks.get(job.get("bank"), 0.0),
        terms.weights.get("bank", 0),
        job.get("queue"),
        terms.queues.get(job.get("queue"), 0),
        terms.weights.get("queue", 0),
        job.get("user.fairshare"),
        terms.weights.get("fairshare", 0),
        job.get("urgency"),
        terms.weights.get("urgency", 0),
        job.get("priority"),
    ]


def _calculation(job: JobInfo, terms: Terms) -> str:
    """How a job's priority follows from its terms."""
    bank, queue, weights = terms.banks.get(job.get("bank"), 0.0), terms.queues.get(job.get("queue"), 0), terms.weights
    fairshare, urgency = job.get("user.fairshare") or 0.0, job.get("urgency")
    weight = {factor: weights.get(factor, 0) for factor in ("fairshare", "queue", "bank", "urgency")}
    return (
        f"{job.get('id.f58')}\n"
        "= (FAIRSHARE * FAIRSHARE_WEIGHT) + (QUEUE_PRIORITY * QUEUE_WEIGHT) + (BANK_PRIORITY * BANK_WEIGHT)"
        " + (URGENCY_WEIGHT * (URGENCY - 16))\n"
        f"= ({fairshare} * {weight['fairshare']}) + ({queue} * {weight['queue']}) + ({bank} * {weight['bank']})"
        f" + ({weight['urgency']} * ({urgency} - 16))\n"
        f"= {fairshare * weight['fairshare']} + {queue * weight['queue']} + {bank * weight['bank']}"
        f" + {weight['urgency'] * (urgency - 16)}\n"
        f"= {job.get('priority')}\n"
    )
