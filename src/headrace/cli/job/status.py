"""`flux job status`, `wait` and `timeleft`: how a job ended, or how long it may still run."""

from __future__ import annotations

import errno
import os
import sys
import time

from headrace.cli.common.errors import CommandError
from headrace.cli.common.getopts import Command
from headrace.cli.job.main import parse_id
from headrace.formats.spec import duration, jobid
from headrace.formats.spec.eventlog import decode_line
from headrace.formats.spec.job_exception import FATAL
from headrace.formats.spec.job_state import INACTIVE, result_of
from headrace.formats.spec.wait_status import exit_code, strsignal
from headrace.wire.client.handle import Handle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

    from headrace.wire.client.handle import Rpc

_STATUS = Command(
    "flux-job status",
    "[OPTIONS] id [id ...]",
    "Wait until jobs have ended; exit with the largest of their exit codes",
    (
        ("v", "verbose", "", "Print which jobs failed and how; twice: how the others ended, too"),
        ("e", "exception-exit-code", "N", "Use this exit code for jobs with an exception"),
        ("j", "json", "", "Print how each job ended as JSON"),
    ),
)
_WAIT = Command(
    "flux-job wait",
    "[OPTIONS] [id]",
    "Wait for a waitable job, or all of them, to end",
    (
        ("a", "all", "", "Wait until no waitable job is left"),
        ("v", "verbose", "", "With --all, also name jobs that succeeded"),
    ),
)
_TIMELEFT = Command(
    "flux-job timeleft",
    "[JOBID]",
    "Print how much time a job, or this instance, has left",
    (("H", "human", "", "Print the time with a unit (5m, 1.5h), not in seconds"),),
)
_UNLIMITED = 0xFFFFFFFF
_NO_EXPIRATION = 9223372036.0
_ANY = -1


def status(argv: List[str]) -> int:
    options = _STATUS.parse(argv)
    ids = [parse_id(text) for text in options.need(1)]
    handle = Handle()
    calls = [handle.stream("job-info.eventlog-watch", {"id": job, "path": "eventlog", "flags": 0}) for job in ids]
    worst = 0
    for job, call in zip(ids, calls):
        result = _result(job, call)
        if options.has("json"):
            import json

            print(json.dumps(result, separators=(",", ":")))
        code = _code(result, options.get_int("exception-exit-code", -1))
        if options.has("verbose"):
            _explain(jobid.encode(job, "f58"), result, options.count("verbose"))
        worst = max(worst, code)
    return worst


def _result(job: int, call: Rpc) -> Dict[str, Any]:
    """How the job ended, from its eventlog, which is watched until the job has ended."""
    result: Dict[str, Any] = {"id": job, "exception_occurred": False}
    exception: Dict[str, Any] = {}
    try:
        for answer in call:
            event: Any = decode_line(answer["event"])
            if event.name in ("submit", "alloc", "finish", "clean"):
                key = {"submit": "t_submit", "alloc": "t_run", "finish": "t_cleanup", "clean": "t_inactive"}[event.name]
                if key != "t_inactive":
                    result[key] = event.timestamp
            if event.name == "finish":
                result["waitstatus"] = event.context["status"]
            elif event.name == "exception" and (not exception or event.context["severity"] < exception["severity"]):
                exception = dict(event.context)
    except OSError as exc:
        if exc.errno == errno.ENOENT:
            raise CommandError(f"{jobid.encode(job, 'f58')}: No such job") from None
        raise
    if exception:
        result["exception_occurred"] = True
        result.update({f"exception_{key}": exception.get(key, "") for key in ("severity", "type", "note")})
    fatal = result["exception_type"] if result.get("exception_severity") == FATAL else None
    result["result"] = result_of(fatal, result.get("waitstatus"))
    return result


def _code(result: Dict[str, Any], exception_code: int) -> int:
    if result["exception_occurred"] and exception_code >= 0:
        return exception_code
    if "waitstatus" in result:
        return exit_code(result["waitstatus"])
    return 1


def _explain(name: str, result: Dict[str, Any], verbose: int) -> None:
    status = result.get("waitstatus")
    if status is not None and os.WIFSIGNALED(status):
        text = f"job shell died by signal {strsignal(os.WTERMSIG(status))}"
    elif result.get("exception_severity") == FATAL:
        text = f"exception type={result['exception_type']}"
    elif status is not None and exit_code(status) > 128:
        text = f"job shell: task(s) {strsignal(exit_code(status) - 128)}"
    elif status or (status == 0 and verbose > 1):
        text = f"exited with exit code {exit_code(status)}"
    else:
        return
    sys.stderr.write(f"flux-job: {name}: {text}\n")


def wait(argv: List[str]) -> int:
    options = _WAIT.parse(argv)
    operands = options.need(0, 1)
    handle = Handle()
    if options.has("all"):
        return _wait_all(handle, options.has("verbose"))
    wanted = parse_id(operands[0]) if operands else _ANY
    try:
        answer = handle.rpc("job-manager.wait", {"id": wanted}).get()
    except OSError as exc:
        if exc.errno == errno.ECHILD:
            raise CommandError(str(exc.strerror), 2) from None
        raise
    if wanted == _ANY:
        print(jobid.encode(answer["id"], "f58"))
    if not answer["success"]:
        raise CommandError(answer["errstr"])
    return 0


def _wait_all(handle: Handle, verbose: bool) -> int:
    failed = 0
    while True:
        try:
            answer = handle.rpc("job-manager.wait", {"id": _ANY}).get()
        except OSError as exc:
            if exc.errno == errno.ECHILD:
                return 1 if failed else 0
            raise
        name = jobid.encode(answer["id"], "f58")
        if not answer["success"]:
            failed += 1
            sys.stderr.write(f"flux-job: {name}: {answer['errstr']}\n")
        elif verbose:
            sys.stderr.write(f"flux-job: {name}: job completed successfully\n")


def timeleft(argv: List[str]) -> int:
    options = _TIMELEFT.parse(argv)
    operands = options.need(0, 1)
    handle = Handle()
    text = operands[0] if operands else os.environ.get("FLUX_JOB_ID", "")
    expiration = _job_expiration(handle, parse_id(text), text) if text else _instance_expiration(handle)
    unlimited = expiration in (0.0, _NO_EXPIRATION)
    remaining = _UNLIMITED if unlimited else max(0.0, expiration - time.time())
    if options.has("human"):
        print("infinity" if unlimited else duration.encode(remaining))
    else:
        print(int(remaining))
    return 0


def _instance_expiration(handle: Handle) -> float:
    return float(handle.rpc("resource.status", nodeid=0).get()["R"]["execution"].get("expiration", 0.0))


def _job_expiration(handle: Handle, job: int, text: str) -> float:
    """When the job expires, seconds since the epoch; 0 without a limit.

    Raises CommandError if it has not started.
    """
    attrs = ["state", "expiration"]
    try:
        found = handle.rpc("job-list.list-id", {"id": job, "attrs": attrs}).get()["job"]
    except OSError as exc:
        if exc.errno == errno.ENOENT:
            raise CommandError(f"{text}: No such job") from None
        raise
    if found["state"] & (2 | 4 | 8):
        raise CommandError("job has not started")
    if found["state"] == INACTIVE:
        return 1.0
    return float(found.get("expiration", 0.0))
