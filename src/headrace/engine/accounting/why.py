"""The method `why`: the terms of a job's priority, the limit that holds it, and the jobs that stand before it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, Dict, List, Optional

import msgspec
from msgspec import Struct

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
    """Explain a job, as text or, with `json`, as an Explanation. Raises ValueError for an unknown job, OSError.

    With `only_userid`, jobs of other users are unknown, and are not listed but counted.
    """
    text, only = str(payload["jobid"]), payload.get("only_userid")
    with Handle() as handle:
        job = next(iter(list_ids(handle, [jobid.parse(text)], _ATTRIBUTES)))
        if job is None or (only is not None and job.raw["userid"] != only):
            raise ValueError(f"job {text} is unknown")
        found = _explanation(database, handle, job, only)
    return msgspec.json.encode(found).decode() if payload.get("json") else _text(found)


class Term(Struct, frozen=True):
    """A term of a priority; `product` is value times weight."""

    name: str
    about: str
    value: float
    weight: int
    product: float


class Limit(Struct, frozen=True):
    """A limit that holds a job, and the numbers that it compares."""

    name: str
    about: str


class Ahead(Struct, frozen=True):
    """A job before another one."""

    id: str
    userid: int
    user: str
    bank: str
    priority: int


class Before(Struct, frozen=True):
    """The pending jobs of the same queue before a job: how many, in all and by bank, and the first of them."""

    count: int
    banks: Dict[str, int]
    jobs: List[Ahead]


class Explanation(Struct, frozen=True):
    """Why a job has its priority, and why it waits.

    Ids are F58 in ASCII. `priority` is None for a job that has none yet, `before` for one that is not pending. `note`
    is "" if the priority is the sum of the terms.
    """

    id: str
    user: str
    bank: str
    queue: str
    state: str
    priority: Optional[int]
    note: str
    terms: List[Term]
    reason: str
    limits: List[Limit]
    before: Optional[Before]


def _explanation(database: Database, handle: Handle, job: JobInfo, only: int | None) -> Explanation:
    pending = bool(job.raw["state"] & PENDING)
    reason = str(job.get("sched.reason_pending") or "") if pending else ""
    factors = read_terms(database)
    fairshare = job.get("user.fairshare")
    if fairshare == "":
        fairshare = _fair_share(database, job)
    return Explanation(
        id=job.get("id.f58plain"),
        user=job.get("username"),
        bank=job.get("bank"),
        queue=job.get("queue"),
        state=job.get("state"),
        priority=_priority(job) or None,
        note=_note(job, factors, fairshare),
        terms=_terms(job, factors, fairshare),
        reason=reason,
        limits=_limits(database, handle, job, reason) if pending else [],
        before=_before(handle, job, only) if pending else None,
    )


def _text(found: Explanation) -> str:
    queue = f", queue {found.queue}" if found.queue else ""
    columns = ("TERM", "VALUE", "WEIGHT", "PRODUCT")
    lines = [
        f"{_shown(found.id)}: user {found.user}, bank {found.bank or 'none'}{queue}, {found.state}",
        f"priority {found.priority or 'none yet'}{f' ({found.note})' if found.note else ''}",
        tables.as_table(columns, [(each.about, each.value, each.weight, each.product) for each in found.terms]),
    ]
    lines += [f"waits: {found.reason}"] if found.reason else []
    lines += [f"limit {each.name}: {each.about}" for each in found.limits]
    if found.before is not None:
        before = found.before
        lines.append(f"before it: {before.count} pending jobs")
        if before.jobs:
            listed = [(_shown(each.id), each.user, each.bank, each.priority) for each in before.jobs]
            lines.append(tables.as_table(("JOBID", "USER", "BANK", "PRIORITY"), listed))
        if before.jobs and before.count > len(before.jobs):
            lines.append(f"and {before.count - len(before.jobs)} more")
    return "\n".join(lines)


def _shown(id: str) -> str:
    return jobid.encode(jobid.parse(id))


def _terms(job: JobInfo, terms: Terms, fairshare: float) -> list[Term]:
    """The terms of a job's priority."""
    bank, queue, urgency = job.get("bank"), job.get("queue"), job.get("urgency")
    factors = [
        ("fairshare", "fairshare", fairshare),
        ("queue", f"queue {queue}" if queue else "queue", terms.queues.get(queue, 0)),
        ("bank", f"bank {bank}" if bank else "bank", terms.banks.get(bank, 0.0)),
        ("urgency", f"urgency {urgency} - {URGENCY_DEFAULT}", urgency - URGENCY_DEFAULT),
    ]
    weights = {name: terms.weights.get(name, 0) for name, _, _ in factors}
    return [Term(name, about, value, weights[name], round(value * weights[name], 6)) for name, about, value in factors]


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
        return "urgency 0: the job is held"
    if urgency == URGENCY_EXPEDITE:
        return "urgency 31: before all other jobs"
    known = {name: weight for name, weight in terms.weights.items() if name in rows.FACTORS}
    now = job_priority(
        Weights(**known),
        fairshare,
        terms.queues.get(job.get("queue"), 0),
        terms.banks.get(job.get("bank"), 0.0),
        urgency,
    )
    if "priority" not in job.raw:
        return f"{now} by the database"
    return "" if now == _priority(job) else f"{now} by the database, which the instance does not have yet"


def _limits(database: Database, handle: Handle, job: JobInfo, reason: str) -> list[Limit]:
    """The limits that hold a pending job, with the numbers that they compare."""
    holds = [*(job.raw.get("dependencies") or ()), *(word.strip(",") for word in reason.split())]
    limits = [limit for limit in _LIMITS if limit in holds]
    numbers = _numbers(database, handle, job) if limits else {}
    return [Limit(limit, _LIMITS[limit].format_map(numbers)) for limit in limits]


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


def _before(handle: Handle, job: JobInfo, only: int | None) -> Before:
    """The jobs of the same queue that come before a job; a job that depends on something is behind all others."""
    query = Query(count=0)
    query.states = PENDING
    if job.get("queue"):
        query.add("queue", [job.get("queue")])
    # The listing is in the order in which the scheduler considers jobs.
    place = (-_priority(job), job.id)
    jobs: List[Ahead] = []
    banks: Counter[str] = Counter()
    for other in map(JobInfo, list_jobs(handle, query, ["userid", "bank", "priority", "queue"])):
        if (-_priority(other), other.id) < place:
            bank, userid = str(other.get("bank")), other.raw["userid"]
            banks[bank] += 1
            if len(jobs) < _LISTED and (only is None or userid == only):
                jobs.append(Ahead(other.get("id.f58plain"), userid, other.get("username"), bank, _priority(other)))
    return Before(sum(banks.values()), dict(banks.most_common()), jobs)
