"""What the pages show of a job, as texts."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from headrace.query.job_info import JobInfo
from headrace.spec.job_state import INACTIVE, PENDING

# A shape for each status, so that no status is told by its colour alone.
_SHAPES = {
    **{"DEPEND": "◌", "PRIORITY": "◌", "SCHED": "○", "RUN": "▶", "CLEANUP": "◐"},
    **{"COMPLETED": "✔", "FAILED": "✖", "CANCELED": "⊘", "TIMEOUT": "◷"},
}
ATTRIBUTES = [
    *("name", "userid", "state", "result", "ntasks", "nnodes", "nodelist", "queue", "t_submit", "t_run", "t_cleanup"),
    *("duration", "annotations", "dependencies", "urgency", "priority", "waitstatus"),
    *("exception_occurred", "exception_severity", "exception_type", "exception_note"),
]


class Row(NamedTuple):
    """A line of the list of jobs: texts, but for `submitted` in seconds since the epoch."""

    id: str
    # The id in ASCII, for addresses.
    plain_id: str
    name: str
    user: str
    queue: str
    status: str
    kind: str
    shape: str
    tasks: str
    nodes: str
    submitted: float
    time: str
    about: str


def row(raw: dict[str, Any], now: float) -> Row:
    job = JobInfo(raw, now)
    state = raw["state"]
    status = job.get("status")
    kind = "pending" if state & PENDING else status.lower() if state == INACTIVE else "running"
    return Row(
        id=job.get("id.f58"),
        plain_id=job.get("id.f58plain"),
        name=job.get("name"),
        user=job.get("username"),
        queue=job.get("queue"),
        status=status.capitalize(),
        kind=kind,
        shape=_SHAPES.get(status, "○"),
        tasks=str(job.get("ntasks")),
        nodes=str(job.get("nnodes")),
        submitted=job.get("t_submit"),
        time="" if kind == "pending" else elapsed(job.get("runtime")),
        about=str(job.get("inactive_reason") if state == INACTIVE else job.get("contextual_info")),
    )


def amount(value: float) -> str:
    """A number as people read it, on all pages: `<0.01`, `0.056`, `5.6`, `56.3`, `563`."""
    if 0 < value < 0.01:
        return "<0.01"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.2g}" if abs(value) < 10 else f"{value:.3g}"


def elapsed(seconds: float) -> str:
    """A length of time as `5 s`, `3:07`, `2:03:07` or `1 d 02:03:07`."""
    whole = int(seconds)
    if whole < 60:
        return f"{amount(seconds)} s" if seconds < 10 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02}"
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days} d {hours:02}:{minutes:02}:{rest:02}" if days else f"{hours}:{minutes:02}:{rest:02}"


def moment(seconds: float) -> str:
    """A point in time in the zone of the service."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def machine_moment(seconds: float) -> str:
    """The same for programs (RFC 3339)."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
