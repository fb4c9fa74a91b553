"""The description of a job in `/v2`: the fields of `flux jobs`. A field without a value is null.

An id is text (F58 in ASCII), because numbers of 64 bits lose their last digits in JavaScript and jq.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from headrace.formats.spec import jobid
from headrace.formats.spec.job_state import INACTIVE, PENDING
from headrace.wire.query.job_info import RESULTS, STATES, JobInfo, attributes_for, username

_ALWAYS_TEXT = {"type": "string"}
_TEXT = {"type": ["string", "null"]}
_INTEGER = {"type": ["integer", "null"]}
_NUMBER = {"type": ["number", "null"]}
# The attributes of job-list, with the OpenAPI schema of each.
_RAW: Mapping[str, Mapping[str, Any]] = {
    **{"name": _ALWAYS_TEXT, "userid": {"type": "integer"}},
    **dict.fromkeys(("queue", "bank", "project"), _TEXT),
    **dict.fromkeys(("urgency", "priority", "ntasks", "ncores", "nnodes"), _INTEGER),
    **dict.fromkeys(("nodelist", "ranks", "cwd"), _TEXT),
    **dict.fromkeys(("duration", "expiration"), _NUMBER),
    **dict.fromkeys(("t_submit", "t_depend", "t_sched", "t_run", "t_cleanup", "t_inactive"), _NUMBER),
    **{"success": {"type": ["boolean", "null"]}, "waitstatus": _INTEGER},
    "dependencies": {"type": "array", "items": {"type": "string"}},
    "annotations": {"type": ["object", "null"], "additionalProperties": True},
}

_NULL: Mapping[str, Any] = {"dependencies": ()}


def _status(job: JobInfo) -> str:
    raw = job.raw
    return RESULTS[raw["result"]] if raw["state"] == INACTIVE else STATES[raw["state"]]


def _returncode(job: JobInfo) -> int | None:
    code = job.get("returncode") if job.raw["state"] == INACTIVE else ""
    return None if code == "" else int(code)


def _exception(job: JobInfo) -> dict[str, Any] | None:
    if not job.raw.get("exception_occurred"):
        return None
    return {name: job.raw.get(f"exception_{name}") for name in ("severity", "type", "note")}


def _why(job: JobInfo) -> dict[str, Any] | None:
    if not job.raw["state"] & PENDING:
        return None
    sched = (job.raw.get("annotations") or {}).get("sched") or {}
    estimate = sched.get("t_estimate")
    return {
        "reason": sched.get("reason_pending") or job.get("contextual_info"),
        "jobs_ahead": sched.get("jobs_ahead"),
        "t_estimate": estimate or None,
    }


_DERIVED: Mapping[str, Callable[[JobInfo], Any]] = {
    "id": lambda job: jobid.encode(job.id, "f58plain"),
    "user": lambda job: username(job.raw["userid"]),
    "state": lambda job: STATES[job.raw["state"]],
    "status": _status,
    "result": lambda job: RESULTS.get(job.raw.get("result", 0)),
    "runtime": lambda job: job.get("runtime") if job.raw.get("t_run") else None,
    "returncode": _returncode,
    "exception": _exception,
    "why": _why,
}
# The attributes of job-list that a field is made from, if they differ from the field's name.
_NEEDS = {
    "user": ["userid"],
    "exception": ["exception_occurred", "exception_severity", "exception_type", "exception_note"],
    "why": ["state", *attributes_for(["contextual_info"])],
}
EXCEPTION = {
    "type": "object",
    "required": ["severity", "type", "note"],
    "properties": {"severity": _INTEGER, "type": _TEXT, "note": _TEXT},
}
WHY = {
    "type": "object",
    "required": ["reason", "jobs_ahead", "t_estimate"],
    "properties": {"reason": _TEXT, "jobs_ahead": _INTEGER, "t_estimate": _NUMBER},
}
# The OpenAPI schema of each field. EXCEPTION and WHY are components of the document.
SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("id", "user", "state", "status"), _ALWAYS_TEXT),
    "result": _TEXT,
    **_RAW,
    **{"runtime": _NUMBER, "returncode": _INTEGER},
    "exception": {"oneOf": [{"$ref": "#/components/schemas/JobException"}, {"type": "null"}]},
    "why": {"oneOf": [{"$ref": "#/components/schemas/Why"}, {"type": "null"}]},
}
FIELDS = tuple(SCHEMAS)
# To find the reason why a job waits, the broker searches all pending jobs. Annotations and `why` have this reason, so a
# listing has these two fields only on request.
LISTED = tuple(name for name in FIELDS if name not in ("annotations", "why"))


def attributes(names: Iterable[str]) -> list[str]:
    """The attributes of job-list from which these fields are made. The state is always needed."""
    found = {"state": None}
    for name in names:
        if name != "id":
            found.update(dict.fromkeys(_NEEDS.get(name) or attributes_for([name])))
    return list(found)


def record(raw: dict[str, Any], names: Iterable[str], now: float) -> dict[str, Any]:
    """These fields of a job, from `raw` of job-list, at time `now` (seconds since the epoch)."""
    empty, derived = _plan(tuple(names))
    found = empty.copy()
    for name, value in raw.items():
        if name in found:
            found[name] = value
    job = JobInfo(raw, now)
    for name, of in derived:
        found[name] = of(job)
    return found


@lru_cache(maxsize=64)
def _plan(names: tuple[str, ...]) -> tuple[dict[str, Any], list[tuple[str, Callable[[JobInfo], Any]]]]:
    """An empty record with these fields, and the functions of those that are not attributes of job-list."""
    derived = [(name, _DERIVED[name]) for name in names if name in _DERIVED]
    return {name: _NULL.get(name) for name in names}, derived
