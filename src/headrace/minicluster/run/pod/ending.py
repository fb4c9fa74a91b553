"""The termination message of a pod, which Kubernetes keeps in its status. Pure, except `write`."""

from __future__ import annotations

import contextlib
import os
from typing import Any, NamedTuple

from headrace.formats.spec import plain_json
from headrace.formats.spec.job_exception import CANCEL, FATAL, TIMEOUT

from ...api import pod_plan

# The attributes of a job that `failure` reads (RFC 43).
FAILURE = ("exception_occurred", "exception_type", "exception_severity", "exception_note")


class Ending(NamedTuple):
    """The end of a pod.

    It has the job's exit status, the reason if that is not 0, the times of steps (seconds since the epoch), and the
    number of jobs by state. `killed`: the pod was deleted or its broker was killed, so the status is not the job's.
    `cause` is the type of the exception (RFC 21) that ended the job, such as "cancel" or "timeout"; "" for none.
    """

    status: int
    reason: str
    times: dict[str, float]
    jobs: dict[str, int]
    killed: bool = False
    cause: str = ""


def container_status(ending: Ending, replaces_killed: bool) -> int:
    """The container's exit code: the job's status, unless it would mean a killed pod to Kubernetes.

    Kubernetes recognises a killed pod by exit code 137 or 143. If it replaces killed pods (`replaces_killed`), it would
    repeat a job that ended by SIGKILL or SIGTERM. The container then exits with the negative number of the signal
    instead: 247 (-9) or 241 (-15).
    """
    if replaces_killed and not ending.killed and ending.status in pod_plan.KILLED:
        return 256 - (ending.status - 128)
    return ending.status


def message(ending: Ending) -> str:
    """A JSON object of at most `pod_plan.TERMINATION_LIMIT` bytes; a long reason is truncated."""
    times = {name: round(at, 3) for name, at in ending.times.items()}
    body: dict[str, Any] = {"exit": ending.status, "reason": ending.reason, "jobs": ending.jobs, "times": times}
    if ending.killed:
        body["killed"] = True
    if ending.cause:
        body["cause"] = ending.cause
    text = plain_json.dumps(body, ensure_ascii=True)
    while len(text) > pod_plan.TERMINATION_LIMIT and body["reason"]:
        # One character takes at most 12 bytes (a pair of \\uXXXX).
        cut = max(1, (len(text) - pod_plan.TERMINATION_LIMIT) // 12)
        body["reason"] = body["reason"][:-cut]
        text = plain_json.dumps(body, ensure_ascii=True)
    return text


def write(ending: Ending, path: str = pod_plan.TERMINATION_LOG) -> None:
    """Write the message if its file exists. Kubernetes creates the file, so it is missing elsewhere."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(message(ending))


def failure(job: dict[str, Any]) -> tuple[str, str]:
    """The type of the exception that ended a job, and a reason for users; ("", "") without an exception.

    `job` has the attributes of job-list (RFC 43) in FAILURE.
    """
    kind, note = str(job.get("exception_type") or ""), str(job.get("exception_note") or "")
    if not job.get("exception_occurred") or job.get("exception_severity") != FATAL:
        return "", ""
    text = {CANCEL: "the job was cancelled", TIMEOUT: "the job ran longer than its time limit"}.get(kind)
    if text:
        return kind, f"{text}: {note}" if note and kind == CANCEL else text
    return kind, f"the job has failed ({kind}){f': {note}' if note else ''}"


def reason_of(status: int, what: str = "the job") -> str:
    """A sentence about the end of `what`, for an exit status as a shell reports it."""
    if status == 0:
        return ""
    if status > 128:
        return f"{what} was ended by signal {status - 128}"
    return f"{what} ended with exit code {status}"
