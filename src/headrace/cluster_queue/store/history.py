"""Statistics of a time span from the store: the number of jobs, their waits and their use."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from math import ceil
from typing import Any

from msgspec import Struct

from headrace.storage.database import Database

BY = ("namespace", "width", "queue")
# The largest number of pods of each band of jobs, and the name of the band. Wider jobs are in "17+".
_BANDS = ((1, "1"), (4, "2-4"), (16, "5-16"))
_WIDEST = "17+"
ALL = "all"
# Jobs that waited, ran or ended in a span.
_IN_SPAN = "queued_at <= :now AND (ended_at IS NULL OR ended_at >= :since)"


class Waits(Struct, frozen=True):
    """Seconds from the queue to the first start, of the jobs that started; all 0 if none did.

    Percentiles are by nearest rank: the least wait that this percentage of jobs did not exceed.
    """

    mean: float = 0
    p50: float = 0
    p95: float = 0
    max: float = 0


class Line(Struct, frozen=True, kw_only=True, rename="camel"):
    """A row of the history.

    `jobs` counts the jobs that waited, ran or ended in the span, `states` the same by state. `started` counts the jobs
    that started in it, which `waits` is about. `pod_hours` are the hours within the span in which pods had slots.
    """

    name: str
    jobs: int
    started: int
    states: dict[str, int]
    waits: Waits
    pod_hours: float


class _Sums:
    def __init__(self) -> None:
        self.states: dict[str, int] = {}
        self.waits: list[float] = []
        self.pod_seconds = 0.0


def waits_of(values: Sequence[float]) -> Waits:
    if not values:
        return Waits()
    found = sorted(values)
    p50, p95 = (found[ceil(percent * len(found) / 100) - 1] for percent in (50, 95))
    # The rounded mean of equal numbers may differ from them.
    mean = min(max(sum(found) / len(found), found[0]), found[-1])
    return Waits(mean=mean, p50=p50, p95=p95, max=found[-1])


def band_of(width: int) -> str:
    return next((name for most, name in _BANDS if width <= most), _WIDEST)


def jobs_by_namespace(database: Database, since: float, now: float) -> dict[str, int]:
    """The number of jobs of each namespace that waited, ran or ended in a span. Raises DatabaseError."""
    sql = f"SELECT namespace, COUNT(*) FROM jobs WHERE {_IN_SPAN} GROUP BY namespace"
    return {str(namespace): int(jobs) for namespace, jobs in database.rows(sql, {"since": since, "now": now})}


def history(
    database: Database, since: float, now: float, by: str = "", namespaces: Container[str] | None = None
) -> list[Line]:
    """The lines of the span from `since` to `now` (seconds since the epoch), one for each value of `by`.

    With `by` "", there is one line for all jobs, even if there were none. Only jobs of `namespaces` count (None: all).
    Raises DatabaseError.
    """
    span = {"since": since, "now": now}
    sums: dict[str, _Sums] = {} if by else {ALL: _Sums()}

    def of(namespace: str, width: int, queue: str) -> _Sums:
        name = {"namespace": namespace, "queue": queue, "width": band_of(width)}.get(by, ALL)
        return sums.setdefault(name, _Sums())

    def is_read(namespace: str) -> bool:
        return namespaces is None or namespace in namespaces

    jobs = database.rows(
        f"SELECT namespace, width, queue, state, queued_at, started_at FROM jobs WHERE {_IN_SPAN}", span
    )
    for *which, state, queued_at, started_at in jobs:
        if not is_read(which[0]):
            continue
        found = of(*which)
        found.states[state] = found.states.get(state, 0) + 1
        if started_at is not None and since <= started_at <= now:
            found.waits.append(max(started_at - queued_at, 0))
    used = database.rows(
        "SELECT jobs.namespace, jobs.width, jobs.queue, usage.since, usage.until, usage.pods FROM usage "
        "JOIN jobs ON jobs.uid = usage.uid WHERE usage.since < :now AND (usage.until IS NULL OR usage.until > :since)",
        span,
    )
    for *which, begin, until, pods in used:
        if is_read(which[0]):
            end = now if until is None else min(until, now)
            of(*which).pod_seconds += pods * max(end - max(begin, since), 0)
    return [_line(name, sums[name]) for name in sorted(sums, key=_order)]


def _line(name: str, sums: _Sums) -> Line:
    return Line(
        name=name,
        jobs=sum(sums.states.values()),
        started=len(sums.waits),
        states=dict(sorted(sums.states.items())),
        waits=waits_of(sums.waits),
        pod_hours=sums.pod_seconds / 3600,
    )


def _order(name: str) -> tuple[int, str]:
    """Sort key of lines: bands by width, all else by name."""
    bands = [*(band for _, band in _BANDS), _WIDEST]
    return (bands.index(name), "") if name in bands else (0, name)


def as_json(lines: Iterable[Line], since: float, now: float, by: str) -> dict[str, Any]:
    """The lines with numbers as they are: times in seconds since the epoch, waits in seconds."""
    found = [
        {
            **({by: line.name} if by else {}),
            **{"jobs": line.jobs, "started": line.started, "states": line.states},
            "wait": {"mean": line.waits.mean, "p50": line.waits.p50, "p95": line.waits.p95, "max": line.waits.max},
            "pod_hours": line.pod_hours,
        }
        for line in lines
    ]
    return {"since": since, "until": now, "by": by or None, "rows": found}
