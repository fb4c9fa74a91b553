"""Books jobs: adds the usage of jobs that have ended to their associations and banks, each job once.

A job is booked in the transaction that marks it in `headrace_booked`. Marks are kept for an hour after the end of a
job. An older job counts as booked if its association was charged for a job that ended later, which is the rule of
flux-accounting, whose programs may have written the database before. The hour is for jobs that arrive late, and for
clocks that were set back.

The functions need the tables of `database.need_own_tables`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from functools import lru_cache
from math import fsum
from typing import Dict, List, NamedTuple

import msgspec
from msgspec import Struct

from headrace.engine.accounting import banks
from headrace.engine.accounting.configs import configuration
from headrace.engine.accounting.dialect import each_cluster, key, of_cluster
from headrace.engine.accounting.requests import Payload, timestamp
from headrace.formats.spec.idset import IdsetError, parse_ranges
from headrace.sched.accounting.usage import Decay, Periods, ResourceWeights, job_usage
from headrace.storage.database import Database

# Seconds for which marks are kept after the last end.
MARGIN = 3600.0

_PERIODS = "job_usage_per_association_table"
_LAST = "job_usage_factor_table"

Association = tuple[str, str]


class _Group(Struct):
    rank: str
    children: Dict[str, str]


class _Execution(Struct):
    R_lite: List[_Group]


class _R(Struct):
    execution: _Execution


class Resources(NamedTuple):
    """What a job held, over all its nodes."""

    nodes: int
    cores: int
    gpus: int


_read_r = msgspec.json.Decoder(_R).decode


def resources(r: str) -> Resources:
    """Count the resources of R (RFC 20). Raises ValueError."""
    try:
        groups = _read_r(r).execution.R_lite
        nodes = cores = gpus = 0
        for group in groups:
            ranks = _count(group.rank)
            nodes += ranks
            cores += ranks * _count(group.children.get("core", ""))
            gpus += ranks * _count(group.children.get("gpu", ""))
    except (msgspec.MsgspecError, IdsetError) as exc:
        raise ValueError(f"R: {exc}") from None
    return Resources(nodes, cores, gpus)


@lru_cache(maxsize=4096)
def _count(ids: str) -> int:
    return sum(last - first + 1 for first, last in parse_ranges(ids))


class _Ended(NamedTuple):
    """A job that is to be booked."""

    id: str
    userid: int
    association: Association
    t_inactive: float
    seconds: float
    held: Resources


def update(database: Database, now: float) -> int:
    """End the periods that are over, and book all jobs of the table `jobs` that are not booked; returns how many.

    The caller has begun a transaction. Raises ValueError for settings that are out of range.
    """
    config = configuration(database)
    _roll(database, now, _decay(config))
    booked = sum(len(_book(database, config, None)) for _ in each_cluster(database))
    # Also for usage of associations that was changed in the table.
    banks.sum_usage(database)
    return booked


def book(database: Database, ids: List[str], now: float) -> int:
    """Like `update`, for these jobs of the cluster only."""
    config = configuration(database)
    rolled = _roll(database, now, _decay(config))
    ended = _book(database, config, ids)
    banks.sum_usage(database, None if rolled else {job.association[1] for job in ended})
    return len(ended)


def weights(database: Database) -> ResourceWeights:
    """What a second of each resource counts for. Raises ValueError."""
    return _weights(configuration(database))


def resume_point(database: Database) -> float:
    """A time such that all jobs that ended before it are booked; 0 if none has been booked here."""
    end = _last_end(database)
    return end - MARGIN if end else 0.0


def marked(database: Database) -> set[str]:
    """The ids of the jobs that are marked as booked."""
    return {str(id) for (id,) in database.rows(f"SELECT id FROM headrace_booked WHERE {of_cluster(database)}")}


def clear_usage(database: Database, payload: Payload) -> str:
    """Set the usage of banks to 0; jobs that ended before `ignore_older_than`, by default now, never count again."""
    names = payload["banks"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("banks: must be a list of banks")
    given = payload.get("ignore_older_than")
    before = int(time.time()) if given is None else timestamp(given)
    for bank in names:
        banks.need_bank(database, bank)
        values = {"bank": bank, "before": before}
        for change in (
            "UPDATE association_table SET job_usage = 0.0, fairshare = 0.5",
            f"UPDATE {_PERIODS} SET value = 0.0",
            f"UPDATE {_LAST} SET last_job_timestamp = 0.0",
            "UPDATE bank_table SET ignore_older_than = :before",
            # Jobs after that time count again.
            "DELETE FROM headrace_booked",
        ):
            database.execute(f"{change} WHERE bank = :bank", values)
    banks.sum_usage(database)
    return ""


def _last_end(database: Database) -> float:
    found = database.rows(f"SELECT t_inactive FROM headrace_last_end WHERE {of_cluster(database)}")
    return float(found[0][0]) if found else 0.0


def _book(database: Database, config: dict[str, str], ids: List[str] | None) -> list[_Ended]:
    """Book jobs of the cluster that are not booked; returns them."""
    last_end = _last_end(database)
    ended = _unbooked(database, last_end, _number(config, "reconfigure_time", 0.0), ids)
    if ended:
        _add(database, ended, _weights(config))
        _mark(database, ended, last_end)
    return ended


def roll(database: Database, now: float) -> bool:
    """End the periods that are over; returns True if there are some."""
    rolled = _roll(database, now, _decay(configuration(database)))
    if rolled:
        banks.sum_usage(database)
    return rolled


def _roll(database: Database, now: float, decay: Decay) -> bool:
    end = _end_of_period(database, now, decay)
    if not decay.due(end, now):
        return False
    values: dict[Association, list[float]] = defaultdict(list)
    for user, bank, value in database.rows(f"SELECT username, bank, value FROM {_PERIODS} ORDER BY period"):
        values[user, bank].append(value)
    periods = Periods(decay, end, values)
    periods.roll(now)
    database.execute_many(
        f"UPDATE {_PERIODS} SET value = :value WHERE username = :user AND bank = :bank AND period = :period",
        [
            {"user": user, "bank": bank, "period": number, "value": value}
            for (user, bank), found in periods.values.items()
            for number, value in enumerate(found)
        ],
    )
    database.execute_many(
        "UPDATE association_table SET job_usage = :usage WHERE username = :user AND bank = :bank",
        [{"user": user, "bank": bank, "usage": usage} for (user, bank), usage in periods.totals.items()],
    )
    database.execute(
        "UPDATE t_half_life_period_table SET end_half_life_period = :end WHERE cluster = 'cluster'",
        {"end": periods.end},
    )
    return True


def _weights(config: dict[str, str]) -> ResourceWeights:
    usual = msgspec.structs.asdict(ResourceWeights())
    return ResourceWeights(**{each: _number(config, f"{each}_weight", value) for each, value in usual.items()})


def _decay(config: dict[str, str]) -> Decay:
    return Decay(**{key: _number(config, key, 0.0) for key in Decay.__struct_fields__ if key in config})


def _number(config: dict[str, str], key: str, usual: float) -> float:
    """A setting that is a number. Raises ValueError that names it."""
    try:
        return float(config.get(key, usual))
    except ValueError:
        raise ValueError(f"config_table: {key}: {config[key]!r} is not a number") from None


def _end_of_period(database: Database, now: float, decay: Decay) -> float:
    where = "WHERE cluster = 'cluster'"
    found = database.rows(f"SELECT end_half_life_period FROM t_half_life_period_table {where}")
    if found:
        return float(found[0][0])
    end = now + decay.priority_decay_half_life
    database.execute(
        "INSERT INTO t_half_life_period_table (cluster, end_half_life_period) VALUES ('cluster', :end)", {"end": end}
    )
    return end


def _unbooked(database: Database, last_end: float, reconfigured: float, ids: List[str] | None) -> list[_Ended]:
    """The jobs that are to be booked, oldest end first. Jobs whose R cannot be read are left out."""
    named = {f"id{number}": id for number, id in enumerate(ids or ())}
    found = database.rows(
        "SELECT j.id, j.userid, a.username, j.bank, j.t_run, j.t_inactive, j.R FROM jobs j"
        " JOIN association_table a ON a.userid = j.userid AND a.bank = j.bank"
        " JOIN bank_table b ON b.bank = j.bank"
        f" LEFT JOIN {_LAST} l ON l.username = a.username AND l.bank = a.bank AND {of_cluster(database, 'l')}"
        f" WHERE {of_cluster(database, 'j')} AND j.t_inactive > b.ignore_older_than AND j.t_inactive > :reconfigured"
        " AND (j.t_inactive > coalesce(l.last_job_timestamp, 0.0)"
        " OR (coalesce(l.last_job_timestamp, 0.0) <= :last_end AND j.t_inactive > :margin))"
        f" AND NOT EXISTS (SELECT 1 FROM headrace_booked h WHERE h.id = j.id AND {of_cluster(database, 'h')})"
        + (f" AND j.id IN ({', '.join(f':{each}' for each in named)})" if ids is not None else "")
        + " ORDER BY j.t_inactive, j.id, a.active DESC",
        {
            "reconfigured": reconfigured,
            "last_end": last_end,
            "margin": last_end - MARGIN,
            **named,
        },
    )
    jobs: dict[str, _Ended] = {}
    for id, userid, user, bank, t_run, t_inactive, r in found:
        # A user id may have several names in a bank. The job is booked to one of them.
        if id not in jobs:
            try:
                held = resources(r)
            except ValueError:
                continue
            jobs[id] = _Ended(id, userid, (user, bank), t_inactive, t_inactive - t_run, held)
    return list(jobs.values())


def _add(database: Database, ended: list[_Ended], weighed: ResourceWeights) -> None:
    """Add the usage of jobs to the present period and to the usage of their associations."""
    used: dict[Association, list[float]] = defaultdict(list)
    userids = {}
    for job in ended:
        used[job.association].append(job_usage(*job.held, job.seconds, weighed))
        userids[job.association] = job.userid
    values = [
        {"user": key[0], "bank": key[1], "userid": userids[key], "usage": fsum(found)} for key, found in used.items()
    ]
    database.execute_many(
        f"INSERT INTO {_PERIODS} (username, userid, bank, period, value) VALUES (:user, :userid, :bank, 0, :usage)"
        f" ON CONFLICT (username, bank, period) DO UPDATE SET value = {_PERIODS}.value + excluded.value",
        values,
    )
    database.execute_many(
        "UPDATE association_table SET job_usage ="
        f" (SELECT sum(value) FROM {_PERIODS} p WHERE p.username = :user AND p.bank = :bank)"
        " WHERE username = :user AND bank = :bank",
        values,
    )


def _mark(database: Database, ended: list[_Ended], last_end: float) -> None:
    """Record that jobs, of which the last has ended last, are booked."""
    latest = {job.association: job for job in ended}
    database.execute_many(
        f"INSERT INTO {_LAST} (username, userid, bank, last_job_timestamp) VALUES (:user, :userid, :bank, :time)"
        f" ON CONFLICT ({key(database, 'username', 'bank')})"
        " DO UPDATE SET last_job_timestamp = excluded.last_job_timestamp"
        f" WHERE excluded.last_job_timestamp > {_LAST}.last_job_timestamp",
        [
            {"user": user, "bank": bank, "userid": job.userid, "time": job.t_inactive}
            for (user, bank), job in latest.items()
        ],
    )
    last_end = max(last_end, ended[-1].t_inactive)
    kept_since = last_end - MARGIN
    database.execute_many(
        "INSERT INTO headrace_booked (id, bank, t_inactive) VALUES (:id, :bank, :time) ON CONFLICT DO NOTHING",
        [
            {"id": job.id, "bank": job.association[1], "time": job.t_inactive}
            for job in ended
            if job.t_inactive > kept_since
        ],
    )
    database.execute(
        f"DELETE FROM headrace_booked WHERE t_inactive <= :kept_since AND {of_cluster(database)}",
        {"kept_since": kept_since},
    )
    database.execute(
        "INSERT INTO headrace_last_end (place, t_inactive) VALUES (0, :end)"
        f" ON CONFLICT ({key(database, 'place')}) DO UPDATE SET t_inactive = excluded.t_inactive",
        {"end": last_end},
    )
