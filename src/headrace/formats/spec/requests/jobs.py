"""Requests about jobs, to `job-ingest`, `job-manager`, `job-info` and `job-list`.

Sources: RFC 27, 30 and 32 (ingest and manager), RFC 41 (info), RFC 43 (list).
"""

from __future__ import annotations

from ..payload import form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..payload import Methods

# The error of `job-manager.restore` for a job that the instance has already, which `flux restore` counts.
JOB_EXISTS = "a job with this id exists already"

_NONE = form({})
_EXCEPTION = {"severity": int, "type": str, "note?": str}
_QUEUES = {"name?": str, "all?": bool, "reason?": str, "nocheckpoint?": bool}
_NAMES = (dict, list)
_SUBMITTED = {"id": int, "userid": int, "urgency": int, "flags": int, "jobspec": dict, "submission": list}
_WATCH_KEY = form({"id": int, "key": str, "flags?": int})

JOB_INGEST: Methods = {
    "submit": form({"J?": str, "jobspec?": (str, dict), "urgency?": int, "flags?": int}),
    "getinfo": _NONE,
}

JOB_MANAGER: Methods = {
    "list": form({"max_entries": int}),
    "raise": form({"id": int, **_EXCEPTION}),
    "raiseall": form({"dry_run": bool, "userid?": int, "states": int, **_EXCEPTION}),
    "kill": form({"id": int, "signum": int}),
    "killall": form({"dry_run": bool, "userid?": int, "signum": int}),
    "urgency": form({"id": int, "urgency": int}),
    "memo": form({"id": int, "volatile?": bool, "memo": dict}),
    "update": form({"id": int, "updates": dict}),
    "getattr": form({"id": int, "attrs": [str]}),
    "getinfo": _NONE,
    "queue-list": _NONE,
    "queue-status": form({"name?": str}),
    "queue-enable": form({"enable": bool, **_QUEUES}),
    "queue-start": form({"start": bool, **_QUEUES}),
    "alloc-query": _NONE,
    "resource-status": _NONE,
    "reasons": form({"ids": [int]}),
    "history.get": form({"slice": str}),
    "wait": form({"id": int}),
    "submit": form({"jobs": [_SUBMITTED]}),
    "restore": form({"jobs": [{"id": int, "data": dict}], "final": bool}),
    "drain": _NONE,
    "idle": _NONE,
    "purge": form({"age_limit?": float, "num_limit?": int, "batch?": int, "force?": bool}),
    "purge-id": form({"jobs?": [int], "id?": int, "force?": bool}),
    "events-journal": form({"full?": bool, "allow?": _NAMES, "deny?": _NAMES, "grouped?": bool}),
    "sched-hello": form({"partial-ok?": bool}),
    "sched-ready": form({"mode": str, "limit?": int}),
    "sched-successors": form({"ids": [int], "expiration": float}),
    "exec-hello": form({"service": str}),
    "jobtap": form({"load?": str, "conf?": object, "remove?": str, "query_only?": bool}),
    "jobtap-query": form({"name": str}),
    # The handlers check these, because they log what is wrong.
    **dict.fromkeys(
        (f"mf_priority.rec{name}_update" for name in ("", "_q", "_proj", "_bank", "_fac", "_config")), None
    ),
    "mf_priority.reprioritize": _NONE,
}

JOB_STORE: Methods = {
    "lookup": form({"path": str}),
    "append": form({"logs": [list]}),
    "append-text": form({"logs": [[str]]}),
}

JOB_INFO: Methods = {
    "lookup": form({"id": int, "keys": [str], "flags?": int}),
    "eventlog-watch": form({"id": int, "path": str, "flags?": int}),
    "update-lookup": _WATCH_KEY,
    "update-watch": _WATCH_KEY,
    "stats-get": _NONE,
}

# The handler checks the contents of `attrs`, as RFC 43 defines the error messages.
JOB_LIST: Methods = {
    "list": form({"max_entries": int, "since?": float, "attrs": list, "constraint?": dict}),
    "list-id": form({"id": int, "attrs": list, "state?": int}),
    "list-attrs": _NONE,
    "job-stats": _NONE,
    "metrics": _NONE,
    "job-state-pause": _NONE,
    "job-state-unpause": _NONE,
}
