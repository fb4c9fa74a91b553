"""The method `why`: the terms of a job's priority, the limit that holds it, and the jobs that stand before it."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import Any

from headrace.engine.accounting.priorities import Terms, read_terms
from headrace.engine.accounting.requests import Payload
from headrace.formats.spec import jobid
from headrace.formats.spec.job_state import ACTIVE, PENDING, RUNNING, SCHED
from headrace.formats.spec.urgency import URGENCY_DEFAULT, URGENCY_EXPEDITE, URGENCY_HOLD
from headrace.sched.accounting import rows, tables
from headrace.sched.accounting.priority import Weights, job_priority
from headrace.sched.accounting.values import UNLIMITED
from headrace.storage.database import Database
from headrace.wire.client.handle import Handle
from headrace.wire.query.job_info import JobInfo
from headrace.wire.query.listing import Query, list_ids, list_jobs

_ATTRIBUTES = [
    *("userid", "bank", "queue", "urgency", "priority", "state", "nnodes", "ncores"),
    *("annotations", "dependencies"),
]
# The jobs before a job that are listed; the others are counted.
_LISTED = 10

# What a limit counts and its maximum, by the name of the limit in dependencies and reasons of jobs.
_LIMITS = {
    "max-running-jobs-user-limit": "{run_jobs} running jobs, max_running_jobs is {max_running_jobs}",
    "max-sched-jobs-user-limit": "{sched_jobs} jobs in SCHED, max_sched_jobs is {max_sched_jobs}",
    "max-resources-user-limit": (
        "{run_nodes} nodes and {run_cores} cores in use, max_nodes is {max_nodes}, max_cores is {max_cores}"
    ),
    "max-run-jobs-queue": "{queue_run_jobs} running jobs in the queue, max_running_jobs is {queue_max_running_jobs}",
    "max-sched-jobs-queue-limit": (
        "{queue_sched_jobs} jobs in SCHED in the queue, max_sched_jobs is {queue_max_sched_jobs}"
    ),
    "max-sched-nodes-queue-limit": (
        "jobs in SCHED in the queue ask for {queue_sched_nodes} nodes,"
        " max_sched_nodes_per_assoc is {queue_max_sched_nodes_per_assoc}"
    ),
    "max-sched-cores-queue-limit": (
        "jobs in SCHED in the queue ask for {queue_sched_cores} cores,"
        " max_sched_cores_per_assoc is {queue_max_sched_cores_per_assoc}"
    ),
    "max-resources-queue": (
        "{queue_run_nodes} nodes in use in the queue, max_nodes_per_assoc is {queue_max_nodes_per_assoc}"
    ),
    "max-nodes-queue-limit": "all users together, max_nodes is {queue_max_nodes}",
    "max-cores-queue-limit": "all users together, max_cores is {queue_max_cores}",
}


def why(database: Database, payload: Payload) -> str:
    """Explain a job. Raises ValueError for an unknown one, OSError.

    With `only_user`, jobs of other users are unknown.
    """
    text, only = str(payload["jobid"]), payload.get("only_user")
    with Handle() as handle:
        job = next(iter(list_ids(handle, [jobid.parse(text)], _ATTRIBUTES)))
        if job is None or (only and job.get("username") != only):
            raise ValueError(f"job {text} is unknown")
        lines = [_headline(job), *_terms(database, job)]
        if job.raw["state"] & PENDING:
            lines += _reasons(database, handle, job)
            lines += [] if only else _before(handle, job)
    return "\n".join(lines)


def _headline(job: JobInfo) -> str:
    queue = f", queue {job.get('queue')}" if job.get("queue") else ""
    return (
        f"{job.get('id.f58')}: user {job.get('username')}, bank {job.get('bank') or 'none'}{queue}, {job.get('state')}"
    )


def _terms(database: Database, job: JobInfo) -> list[str]:
    """The terms of a job's priority."""
    terms = read_terms(database)
    bank, queue, urgency = job.get("bank"), job.get("queue"), job.get("urgency")
    fairshare = job.get("user.fairshare")
    if fairshare == "":
        fairshare = _fair_share(database, job)
    factors = [
        ("fairshare", "fairshare", fairshare),
        ("queue", f"queue {queue}" if queue else "queue", terms.queues.get(queue, 0)),
        ("bank", f"bank {bank}" if bank else "bank", terms.banks.get(bank, 0.0)),
        ("urgency", f"urgency {urgency} - {URGENCY_DEFAULT}", urgency - URGENCY_DEFAULT),
    ]
    cells = [(title, value, terms.weights.get(name, 0)) for name, title, value in factors]
    columns = ("TERM", "VALUE", "WEIGHT", "PRODUCT")
    table = tables.as_table(columns, [(*each, round(each[1] * each[2], 6)) for each in cells])
    return [f"priority {_priority(job) or 'none yet'}{_note(job, terms, fairshare)}", *table.split("\n")]


def _priority(job: JobInfo) -> int:
    """A job's priority; 0 for a job that has none yet."""
    return int(job.raw.get("priority") or 0)


def _fair_share(database: Database, job: JobInfo) -> float:
    found = database.rows(
        "SELECT fairshare FROM association_table WHERE userid = :userid AND bank = :bank",
        {"userid": job.raw["userid"], "bank": job.get("bank")},
    )
    return float(found[0][0]) if found else 0.0


def _note(job: JobInfo, terms: Terms, fairshare: float) -> str:
    urgency = job.get("urgency")
    if urgency == URGENCY_HOLD:
        return " (urgency 0: the job is held)"
    if urgency == URGENCY_EXPEDITE:
        return " (urgency 31: before all other jobs)"
    known = {name: weight for name, weight in terms.weights.items() if name in rows.FACTORS}
    now = job_priority(
        Weights(**known),
        fairshare,
        terms.queues.get(job.get("queue"), 0),
        terms.banks.get(job.get("bank"), 0.0),
        urgency,
    )
    if "priority" not in job.raw:
        return f" ({now} by the database)"
    return "" if now == _priority(job) else f" ({now} by the database, which the instance does not have yet)"


def _reasons(database: Database, handle: Handle, job: JobInfo) -> list[str]:
    """Why a pending job waits, with the numbers of the limits that hold it."""
    reason = str(job.get("sched.reason_pending") or "")
    holds = [*(job.raw.get("dependencies") or ()), *(word.strip(",") for word in reason.split())]
    limits = [limit for limit in _LIMITS if limit in holds]
    lines = [f"waits: {reason}"] if reason else []
    if limits:
        numbers = _numbers(database, handle, job)
        lines += [f"limit {limit}: {_LIMITS[limit].format_map(numbers)}" for limit in limits]
    return lines


def _numbers(database: Database, handle: Handle, job: JobInfo) -> dict[str, Any]:
    """The maxima of a job's association and queue, and the association's counts; a queue's keys have a prefix."""
    numbers: dict[str, Any] = defaultdict(lambda: "unlimited")
    bank, queue = job.get("bank"), job.get("queue")
    for table, prefix, where in (
        ("association_table", "", "userid = :userid AND bank = :bank"),
        ("queue_table", "queue_", "queue = :queue"),
    ):
        columns = [column for column in rows.columns(table) if column.startswith("max_")]
        values = {"userid": job.raw["userid"], "bank": bank, "queue": queue}
        for row in database.rows(f"SELECT {', '.join(columns)} FROM {table} WHERE {where}", values)[:1]:
            numbers.update((prefix + column, value) for column, value in zip(columns, row) if value != UNLIMITED)
    query = Query(count=0)
    query.states = ACTIVE
    query.add("userid", [job.raw["userid"]])
    for other in map(JobInfo, list_jobs(handle, query, _ATTRIBUTES)):
        if other.get("bank") != bank:
            continue
        kind = "run" if other.raw["state"] & RUNNING else "sched" if other.raw["state"] == SCHED else ""
        for prefix in ("", "queue_") if other.get("queue") == queue else ("",):
            for what, count in (("jobs", 1), ("nodes", other.get("nnodes") or 1), ("cores", other.get("ncores") or 0)):
                key = f"{prefix}{kind}_{what}"
                numbers[key] = numbers.get(key, 0) + count
    for prefix in ("", "queue_"):
        for kind in ("run", "sched"):
            for what in ("jobs", "nodes", "cores"):
                numbers.setdefault(f"{prefix}{kind}_{what}", 0)
    return numbers


def _before(handle: Handle, job: JobInfo) -> list[str]:
    """The jobs of the same queue that come before a job; a job that depends on something is behind all others."""
    query = Query(count=0)
    query.states = PENDING
    if job.get("queue"):
        query.add("queue", [job.get("queue")])
    # The listing is in the order in which the scheduler considers jobs.
    place = (-_priority(job), job.id)
    pending = map(JobInfo, list_jobs(handle, query, ["userid", "bank", "priority", "queue"]))
    ahead = (other for other in pending if (-_priority(other), other.id) < place)
    columns = ("JOBID", "USER", "BANK", "PRIORITY")
    listed = [
        (other.get("id.f58"), other.get("username"), other.get("bank"), _priority(other))
        for other in islice(ahead, _LISTED)
    ]
    rest = sum(1 for _ in ahead)
    lines = [f"before it: {len(listed) + rest} pending jobs"]
    if listed:
        lines += tables.as_table(columns, listed).split("\n")
    if rest:
        lines.append(f"and {rest} more")
    return lines
