"""How a pod says how it ended: the termination message that Kubernetes keeps with the container's status. Pure but for
`write`."""

from __future__ import annotations

import contextlib
import os
from typing import Any, NamedTuple

from .. import pod_plan


class Ending(NamedTuple):
    """The container's exit status, why it is not 0, jobs by state, and the times (seconds since the epoch) of steps.

    `killed`: the pod was told to go, or its broker was killed, so the status is not that of the job.
    """

    status: int
    reason: str
    times: dict[str, float]
    jobs: dict[str, int]
    killed: bool = False


def message(ending: Ending) -> str:
    """One JSON object of at most `pod_plan.TERMINATION_LIMIT` bytes; a longer reason is cut."""
    # At the end only: what the runner imports at its start delays the broker's.
    import json

    times = {name: round(at, 3) for name, at in ending.times.items()}
    body: dict[str, Any] = {"exit": ending.status, "reason": ending.reason, "jobs": ending.jobs, "times": times}
    if ending.killed:
        body["killed"] = True
    text = json.dumps(body)
    while len(text) > pod_plan.TERMINATION_LIMIT and body["reason"]:
        # A character takes at most 12 bytes (a pair of \\uXXXX).
        cut = max(1, (len(text) - pod_plan.TERMINATION_LIMIT) // 12)
        body["reason"] = body["reason"][:-cut]
        text = json.dumps(body)
    return text


def write(ending: Ending, path: str = pod_plan.TERMINATION_LOG) -> None:
    """Leave the message where there is a file for it, which only Kubernetes makes."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(message(ending))


def reason_of(status: int, what: str = "the job") -> str:
    """`what` ended with this status of a shell."""
    if status == 0:
        return ""
    if status > 128:
        return f"{what} was ended by signal {status - 128}"
    return f"{what} ended with exit code {status}"
