"""A job as `/v1` describes it in detail: as job-list does, with names for numbers and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.wire.query.job_info import JobInfo

# Attributes that are there for every job, empty where it has none.
_ALWAYS = ("ranks", "expiration", "duration", "nnodes", "nodelist", "priority", "waitstatus")
_DERIVED = ("state", "result", "returncode", "runtime")
_EXCEPTION = ("occurred", "severity", "type", "note")


def record(raw: Mapping[str, Any], now: float = 0.0) -> dict[str, Any]:
    """The job `raw` of job-list, seen at time `now` (seconds; default: the clock)."""
    job = JobInfo(dict(raw), now)
    found = {**dict.fromkeys(_ALWAYS, ""), **raw}
    found.update({name: job.get(name) for name in _DERIVED})
    found["exception"] = {name: job.get(f"exception.{name}") for name in _EXCEPTION}
    return found


def mentions(job: Mapping[str, Any], text: str) -> bool:
    """Whether a value of the job, its id in F58 form too, has the text in it; upper and lower case are the same."""
    sought = text.lower()
    return sought in JobInfo(dict(job)).get("jobid").lower() or any(sought in value for value in _texts(job))


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [str(value).lower()]
