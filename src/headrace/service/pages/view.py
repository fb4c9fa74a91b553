"""A job as texts, for all pages."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, NamedTuple

from headrace.formats.spec.hostlist import Hostlist, HostlistError
from headrace.formats.spec.job_state import DEPEND, INACTIVE, PENDING, PRIORITY
from headrace.wire.query.job_info import JobInfo

# A shape for each status, so that colour is never the only sign of a status.
_SHAPES = {
    **{"DEPEND": "◌", "PRIORITY": "◌", "SCHED": "○", "RUN": "▶", "CLEANUP": "◐"},
    **{"COMPLETED": "✔", "FAILED": "✖", "CANCELED": "⊘", "TIMEOUT": "◷"},
}
# Common words for the states of active jobs.
_WORDS = {
    **{"DEPEND": "Waiting", "PRIORITY": "Waiting", "SCHED": "Waiting", "RUN": "Running", "CLEANUP": "Ending"},
}
# The maximum length of a name and of a sentence in a list, in characters: users can write texts of any length.
LONGEST_NAME, _LONGEST_TEXT = 80, 240
ATTRIBUTES = [
    *("name", "userid", "state", "result", "ntasks", "nnodes", "nodelist", "queue", "t_submit", "t_run", "t_cleanup"),
    *("duration", "annotations", "dependencies", "urgency", "priority", "waitstatus"),
    *("exception_occurred", "exception_severity", "exception_type", "exception_note"),
]


class Row(NamedTuple):
    """A row of the list of jobs, as texts, except for `submitted` in seconds since the epoch.

    `status` is a common word for the status; `state` is Flux's word, "" if it is the same.
    """

    id: str
    # The id in ASCII, for addresses.
    plain_id: str
    name: str
    user: str
    queue: str
    status: str
    state: str
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
        name=clipped(job.get("name"), LONGEST_NAME),
        user=clipped(job.get("username"), LONGEST_NAME),
        queue=clipped(job.get("queue"), LONGEST_NAME),
        status=_WORDS.get(status) or status.capitalize(),
        state=status.capitalize() if status in _WORDS else "",
        kind=kind,
        shape=_SHAPES.get(status, "○"),
        tasks=str(job.get("ntasks")),
        nodes=str(job.get("nnodes")),
        submitted=job.get("t_submit"),
        time="" if kind == "pending" else elapsed(job.get("runtime")),
        about=clipped(_about(job), _LONGEST_TEXT),
    )


def clipped(text: str, most: int = _LONGEST_TEXT) -> str:
    """The text, shortened if it has more than `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _about(job: JobInfo) -> str:
    """Why a job waits and when it may start, where it runs, or how it ended."""
    state = job.raw["state"]
    if state == INACTIVE:
        return str(job.get("inactive_reason"))
    if not state & PENDING:
        return _hosts(str(job.get("nodelist")))
    estimate = job.get("sched.t_estimate")
    if not isinstance(estimate, (int, float)) or not estimate:
        return why(job)
    wait = estimate - job.now
    start = "starts soon" if wait < 1 else f"starts in about {rough(wait)}"
    return "; ".join(text for text in (why(job), start) if text)


def why(job: JobInfo) -> str:
    """Why a pending job waits."""
    state = job.raw["state"]
    if state == DEPEND:
        waited_for = str(job.get("contextual_info")).removeprefix("depends:").replace(",", ", ")
        return f"waits for {waited_for}"
    if state == PRIORITY:
        return "waits for its priority"
    if job.raw.get("urgency") == 0:
        return "held"
    if job.raw.get("priority") == 0:
        return "held, as its priority is 0"
    return str(job.get("sched.reason_pending"))


def _hosts(nodelist: str) -> str:
    """The hosts of a job. A host with several brokers is named once, with the number of brokers."""
    try:
        counted = Counter(Hostlist.parse(nodelist))
    except HostlistError:
        return nodelist
    if max(counted.values(), default=1) == 1:
        return nodelist
    return ", ".join(f"{host} ({number} brokers)" if number > 1 else host for host, number in counted.items())


def rough(seconds: float) -> str:
    """An estimated length of time, without false precision: `45 s`, `30 min`, `5 h` or `3 days`."""
    for length, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if seconds < 90 * length and not (unit == "h" and seconds >= 36 * length):
            return f"{max(1, round(seconds / length))} {unit}"
    return f"{round(seconds / 86400)} days"


def amount(value: float) -> str:
    """A number rounded for reading, on all pages: `<0.01`, `0.056`, `5.6`, `56.3`, `563`."""
    if 0 < value < 0.01:
        return "<0.01"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.2g}" if abs(value) < 10 else f"{value:.3g}"


def elapsed(seconds: float) -> str:
    """A length of time as `5 s`, `3:07`, `2:03:07` or `1 d 02:03:07`."""
    rounded = int(seconds)
    if rounded < 60:
        return f"{amount(seconds)} s" if seconds < 10 else f"{rounded} s"
    minutes, rest = divmod(rounded, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02}"
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days} d {hours:02}:{minutes:02}:{rest:02}" if days else f"{hours}:{minutes:02}:{rest:02}"


def moment(seconds: float) -> str:
    """A point in time in the service's time zone, with the name of the zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(seconds))


def machine_moment(seconds: float) -> str:
    """A point in time for programs (RFC 3339, UTC)."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
