"""A job as job-list describes it (RFC 43), and the fields that clients derive from it.

Each derived field (status, run time, remaining time, reason of the end, the columns TIME and INFO) is a function of the
raw attributes and the current time. So a job is a dictionary with a time, and every field is a small function.
"""

from __future__ import annotations

import os
import time

from headrace.formats.spec import duration, jobid
from headrace.formats.spec.job_exception import CANCEL, EXEC, FATAL
from headrace.formats.spec.job_state import (
    CANCELED,
    CLEANUP,
    COMPLETED,
    DEPEND,
    FAILED,
    INACTIVE,
    NEW,
    PENDING,
    PRIORITY,
    RESULT_BITS,
    RUN,
    SCHED,
    STATE_BITS,
    TIMEOUT,
)
from headrace.formats.spec.wait_status import exit_code, returncode, strsignal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

STATES: Dict[int, str] = {NEW: "NEW", **{bit: name.upper() for name, bit in STATE_BITS.items()}}
STATES_SINGLE: Dict[int, str] = {bit: name[0] for bit, name in STATES.items()}
RESULTS: Dict[int, str] = {bit: name.upper() for name, bit in RESULT_BITS.items()}
RESULTS_SHORT: Dict[int, str] = {COMPLETED: "CD", FAILED: "F", CANCELED: "CA", TIMEOUT: "TO"}
_STATE_EMOJI: Dict[int, str] = {
    NEW: "🆕",
    DEPEND: "🛑",
    PRIORITY: "⏳",
    SCHED: "📅",
    RUN: "🏃",
    CLEANUP: "🧹",
    INACTIVE: "🪦",
}
_RESULT_EMOJI: Dict[int, str] = {COMPLETED: "✅", FAILED: "❌", CANCELED: "🚫", TIMEOUT: "⏰"}

# Every attribute that job-list may send, with the value that clients show if the attribute is missing.
DEFAULTS: Dict[str, Any] = {
    "t_depend": 0.0,
    "t_priority": 0.0,
    "t_sched": 0.0,
    "t_run": 0.0,
    "t_cleanup": 0.0,
    "t_inactive": 0.0,
    "t_submit": 0.0,
    "duration": 0.0,
    "expiration": 0.0,
    "name": "",
    "cwd": "",
    "queue": "",
    "project": "",
    "bank": "",
    "ntasks": "",
    "ncores": "",
    "nnodes": "",
    "priority": "",
    "ranks": "",
    "nodelist": "",
    "success": "",
    "result": "",
    "waitstatus": "",
    "urgency": "",
    "userid": "",
    "state": "",
}

HEADINGS = {
    "id": "JOBID",
    "id.f58": "JOBID",
    "id.f58plain": "JOBID",
    "id.dec": "JOBID",
    "id.hex": "JOBID",
    "id.dothex": "JOBID",
    "id.kvs": "JOBID",
    "id.words": "JOBID",
    "id.emoji": "JOBID",
    "jobid": "JOBID",
    "userid": "UID",
    "username": "USER",
    "urgency": "URG",
    "priority": "PRI",
    "state": "STATE",
    "state_single": "S",
    "state_emoji": "STATE",
    "name": "NAME",
    "cwd": "CWD",
    "queue": "QUEUE",
    "project": "PROJECT",
    "bank": "BANK",
    "ntasks": "NTASKS",
    "ncores": "NCORES",
    "duration": "DURATION",
    "nnodes": "NNODES",
    "expiration": "EXPIRATION",
    "t_remaining": "T_REMAINING",
    "ranks": "RANKS",
    "nodelist": "NODELIST",
    "success": "SUCCESS",
    "result": "RESULT",
    "result_abbrev": "RS",
    "result_emoji": "RESULT",
    "t_submit": "T_SUBMIT",
    "t_depend": "T_DEPEND",
    "t_priority": "T_PRIORITY",
    "t_sched": "T_SCHED",
    "t_run": "T_RUN",
    "t_cleanup": "T_CLEANUP",
    "t_inactive": "T_INACTIVE",
    "runtime": "RUNTIME",
    "status": "STATUS",
    "status_abbrev": "ST",
    "status_emoji": "STATUS",
    "waitstatus": "WSTATUS",
    "returncode": "RC",
    "exception.occurred": "EXCEPTION-OCCURRED",
    "exception.severity": "EXCEPTION-SEVERITY",
    "exception.type": "EXCEPTION-TYPE",
    "exception.note": "EXCEPTION-NOTE",
    "annotations": "ANNOTATIONS",
    "annotations.sched": "SCHED",
    "annotations.user": "USER",
    "sched": "SCHED",
    "user": "USER",
    "dependencies": "DEPENDENCIES",
    "contextual_info": "INFO",
    "contextual_time": "TIME",
    "inactive_reason": "INACTIVE-REASON",
    "uri": "URI",
    "uri.local": "URI",
    "uri.remote": "URI",
    "color": "",
    "color_off": "",
}
for _prefix in ("annotations.sched", "sched"):
    HEADINGS.update(
        {
            f"{_prefix}.t_estimate": "T_ESTIMATE",
            f"{_prefix}.reason_pending": "REASON",
            f"{_prefix}.resource_summary": "RESOURCES",
        }
    )
OPEN_FIELDS = ("annotations.", "sched.", "user.")

_EXCEPTION = ["exception_occurred", "exception_severity", "exception_type", "exception_note"]
_RUNTIME = ["t_run", "t_cleanup"]
_STATUS = ["state", "result"]
# The raw attributes that a derived field needs.
_NEEDS: Dict[str, List[str]] = {
    "jobid": [],
    "username": ["userid"],
    "state_single": ["state"],
    "state_emoji": ["state"],
    "result_abbrev": ["result"],
    "result_emoji": ["result"],
    "status": _STATUS,
    "status_abbrev": _STATUS,
    "status_emoji": _STATUS,
    "color": [*_STATUS, "annotations"],
    "color_off": [],
    "runtime": _RUNTIME,
    "t_remaining": ["state", "expiration"],
    "returncode": [*_STATUS, "waitstatus", *_EXCEPTION],
    "contextual_time": ["state", *_RUNTIME, "duration"],
    "contextual_info": ["state", "dependencies", "annotations", "nodelist", "urgency", "priority"],
    "inactive_reason": ["state", "result", "waitstatus", *_EXCEPTION],
    "uri": ["annotations"],
    "instance": ["annotations", "state", "userid"],
}


def attributes_for(names: List[str]) -> List[str]:
    """The job-list attributes to request for the fields with these names."""
    wanted: Dict[str, None] = {}
    for name in names:
        head, _, rest = name.partition(".")
        if head == "id":
            continue
        if head in ("annotations", "sched", "user"):
            wanted["annotations"] = None
        elif head == "exception" and rest:
            wanted["exception_" + rest] = None
        else:
            for attr in _NEEDS.get(head, [head]):
                wanted[attr] = None
    return list(wanted)


class JobInfo:
    """A job: `raw` as job-list sent it, at time `now` (seconds since the epoch; default: now).

    `get(field)` accepts every name in HEADINGS, and `annotations.X`, `sched.X` and `user.X`.
    """

    __slots__ = ("instance", "now", "raw")

    def __init__(self, raw: Dict[str, Any], now: float = 0.0) -> None:
        self.raw = raw
        self.now = now or time.time()
        # The fields `instance.X` of a job that is an instance. Callers that query the instance set them.
        self.instance: Dict[str, Any] = {}

    @property
    def id(self) -> int:
        return int(self.raw["id"])

    def has(self, name: str) -> bool:
        """True if there is a field with this name, whether or not it has a value for this job."""
        return name in DEFAULTS or name in _DERIVED or name in HEADINGS or name in self.raw

    def get(self, name: str) -> Any:
        """The field's value; "" or zero if the job has none."""
        value = self._value(name)
        # Dependencies, notes and annotations may contain the ids of other jobs.
        return jobid.shown(value) if type(value) is str else value

    def _value(self, name: str) -> Any:
        compute = _DERIVED.get(name)
        if compute is not None:
            return compute(self)
        if name in DEFAULTS:
            return self.raw.get(name, DEFAULTS[name])
        head, _, rest = name.partition(".")
        if head == "id":
            return str(self.id) if rest == "dec" else jobid.encode(self.id, rest or "f58")
        if head == "exception":
            return self.raw.get("exception_" + rest, False if rest == "occurred" else "")
        if head in ("sched", "user"):
            return self._annotation(name.split("."))
        if head == "instance":
            return self.instance.get(name, "")
        if head == "annotations":
            return self._annotation(name.split(".")[1:])
        return self.raw.get(name, "")

    def _annotation(self, path: List[str]) -> Any:
        value: Any = self.raw.get("annotations", {})
        for key in path:
            if not isinstance(value, dict) or key not in value:
                return ""
            value = value[key]
        return value

    def to_dict(self) -> Dict[str, Any]:
        """The job as in `flux jobs --json`.

        The raw attributes, with names instead of numbers, and the derived fields that apply to the job.
        """
        raw = self.raw
        out = {key: value for key, value in raw.items() if not key.startswith("exception_") and value != ""}
        out.setdefault("annotations", {})
        out.setdefault("dependencies", [])
        out["jobid"] = self.get("id.f58")
        if "userid" in raw:
            out["username"] = self.get("username")
        if "state" in raw:
            out["state"] = self.get("state")
            out["status"] = self.get("status")
        if "result" in raw:
            out["result"] = self.get("result")
        if raw.get("t_run"):
            out["runtime"] = self.get("runtime")
        if raw.get("state") == INACTIVE:
            out["returncode"] = self.get("returncode")
        exception = {"occurred": bool(raw.get("exception_occurred", False))}
        for key in ("severity", "type", "note"):
            if "exception_" + key in raw:
                exception[key] = raw["exception_" + key]
        out["exception"] = exception
        if self.get("uri"):
            out["uri"] = self.get("uri")
        return out


def _state(job: JobInfo) -> int:
    return int(job.raw.get("state", 0))


def _status(job: JobInfo) -> str:
    state = _state(job)
    return RESULTS.get(job.raw.get("result", 0), "") if state == INACTIVE else STATES.get(state, "")


def _status_abbrev(job: JobInfo) -> str:
    state = _state(job)
    return RESULTS_SHORT.get(job.raw.get("result", 0), "") if state == INACTIVE else STATES_SINGLE.get(state, "")


def _status_emoji(job: JobInfo) -> str:
    state = _state(job)
    return _RESULT_EMOJI.get(job.raw.get("result", 0), "") if state == INACTIVE else _STATE_EMOJI.get(state, "")


_names: Dict[Any, str] = {}
# User ids by name, of users that are not in passwd.
_added_users: Dict[str, int] = {}


def name_user(userid: int, name: str) -> None:
    """Register the name of a user that is not in passwd, such as a user account of the REST service."""
    _names[userid], _added_users[name] = name, userid


def userid_of(name: str) -> int:
    """The user id for a name. Raises KeyError for an unknown name, ValueError for an invalid one."""
    import pwd

    return _added_users[name] if name in _added_users else pwd.getpwnam(name).pw_uid


def username(userid: Any) -> str:
    """The name of a user id; the number as text if it has no name."""
    found = _names.get(userid)
    if found is None:
        import pwd

        try:
            found = pwd.getpwuid(int(userid)).pw_name
        except (KeyError, ValueError, TypeError):
            found = str(userid)
        _names[userid] = found
    return found


def _runtime(job: JobInfo) -> float:
    start = job.raw.get("t_run", 0.0)
    if not start:
        return 0.0
    end = job.raw.get("t_cleanup", 0.0) or job.now
    return max(0.0, float(end - start))


def _remaining(job: JobInfo) -> float:
    expiration = job.raw.get("expiration", 0.0)
    if _state(job) != RUN or not expiration:
        return 0.0
    return max(0.0, float(expiration) - job.now)


def _contextual_time(job: JobInfo) -> float:
    return float(job.raw.get("duration", 0.0)) if _state(job) & PENDING else _runtime(job)


def _returncode(job: JobInfo) -> Any:
    status = job.raw.get("waitstatus")
    if status is not None:
        return returncode(status)
    # The job ended before it ran.
    return {FAILED: 1, CANCELED: -128, TIMEOUT: -128}.get(job.raw.get("result", 0), "")


def _dependencies(job: JobInfo) -> str:
    return ",".join(_show_dependency(text, job.now) for text in job.raw.get("dependencies", ()))


def _show_dependency(text: str, now: float) -> str:
    """A dependency's description for users.

    A begin time is shown in local time, with the date unless it is today. A time beyond the calendar is shown as a
    number.
    """
    if not text.startswith("begin-time="):
        return text
    try:
        when = float(text[11:])
    except ValueError:
        return text
    try:
        local = time.localtime(when)
    except (ValueError, OverflowError, OSError):
        return f"begin@{when:g}"
    today = local[:3] == time.localtime(now)[:3]
    clock = "%H:%M:%S" if local.tm_sec else "%H:%M"
    return "begin@" + time.strftime(clock if today else f"%b%d-{clock}", local)


def _contextual_info(job: JobInfo) -> Any:
    state = _state(job)
    if state == DEPEND:
        return "depends:" + _dependencies(job)
    if state == PRIORITY:
        return "priority-wait"
    if state != SCHED:
        return job.raw.get("nodelist", "")
    if job.raw.get("urgency") == 0:
        return "held"
    if job.raw.get("priority") == 0:
        # The user has not held the job. It is held because it was assigned priority 0.
        return "priority-hold" if "urgency" in job.raw else "held"
    estimate = job.get("sched.t_estimate")
    if not isinstance(estimate, (int, float)) or not estimate:
        return job.get("sched.reason_pending")
    wait = estimate - job.now
    return "eta:now" if wait < 0 else "eta:" + duration.encode(wait)


def _inactive_reason(job: JobInfo) -> str:
    if _state(job) != INACTIVE:
        return ""
    raw = job.raw
    result = raw.get("result", 0)
    note = raw.get("exception_note", "")
    if result == CANCELED:
        return f"Canceled: {note}" if raw.get("exception_type") == CANCEL and note else "Canceled"
    if result == TIMEOUT:
        return "Timeout"
    status = raw.get("waitstatus")
    if result == FAILED and raw.get("exception_occurred") and raw.get("exception_severity", 0) == FATAL:
        kind = raw.get("exception_type", "")
        if kind != EXEC or status is None or not os.WIFEXITED(status):
            return f"Exception: type={kind} note={note}" if note else f"Exception: type={kind}"
    if status is not None:
        return exit_reason(int(status))
    return ""


# The exit codes of shells for a command that could not be run, and for an invalid argument of `exit`.
_SHELL_CODES = {126: "Command invoked cannot execute", 127: "command not found", 128: "Invalid argument to exit"}


def exit_reason(status: int) -> str:
    """The end of a job by its wait status: `Exit 3`, `Hangup`.

    A shell reports a signal as 128 plus its number.
    """
    code = exit_code(status)
    if code > 128:
        return strsignal(code - 128)
    return _SHELL_CODES.get(code, f"Exit {code}")


def _uri(job: JobInfo, local: bool = False) -> str:
    uri = job.get("user.uri")
    if not uri or _state(job) == INACTIVE:
        return ""
    if local:
        from headrace.wire.query.uri import to_local

        return to_local(uri)
    return str(uri)


_COLORS = {"COMPLETED": "\033[01;32m", "FAILED": "\033[01;31m", "TIMEOUT": "\033[01;31m", "CANCELED": "\033[37m"}
COLOR_OFF = "\033[0;0m"


def color(job: JobInfo) -> str:
    """The escape sequence for the colour of a job's line, "" for none."""
    if _uri(job):
        return "\033[01;34m"
    return _COLORS.get(_status(job), "")


_DERIVED: Dict[str, Callable[[JobInfo], Any]] = {
    "jobid": lambda job: jobid.encode(job.id, "f58"),
    "state": lambda job: STATES.get(_state(job), ""),
    "state_single": lambda job: STATES_SINGLE.get(_state(job), ""),
    "state_emoji": lambda job: _STATE_EMOJI.get(_state(job), ""),
    "result": lambda job: RESULTS.get(job.raw.get("result", 0), ""),
    "result_abbrev": lambda job: RESULTS_SHORT.get(job.raw.get("result", 0), ""),
    "result_emoji": lambda job: _RESULT_EMOJI.get(job.raw.get("result", 0), ""),
    "status": _status,
    "status_abbrev": _status_abbrev,
    "status_emoji": _status_emoji,
    "username": lambda job: username(job.raw["userid"]) if "userid" in job.raw else "",
    "runtime": _runtime,
    "t_remaining": _remaining,
    "contextual_time": _contextual_time,
    "contextual_info": _contextual_info,
    "returncode": _returncode,
    "dependencies": _dependencies,
    "inactive_reason": _inactive_reason,
    "uri": _uri,
    "uri.local": lambda job: _uri(job, local=True),
    "uri.remote": _uri,
    "color": color,
    "color_off": lambda _job: COLOR_OFF,
}
