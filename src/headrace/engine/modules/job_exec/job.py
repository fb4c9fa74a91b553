"""The leader's data about one job, from its start request to its final release.

A jobspec may request simulated execution (`attributes.system.exec.test`), with the keys of flux-core's test
implementation: `run_duration` (a Flux standard duration, or seconds), `override` (an operator starts and finishes the
job with `job-exec.override`) and `mock_exception` ("init", "starting" or "run").
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

from headrace.formats.spec import duration as durations
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message

# Cached, because thousands of simulated jobs may have the same duration.
_seconds = lru_cache(maxsize=64)(durations.parse)


class SimError(ValueError):
    """An invalid `exec.test` attribute of a jobspec. The text names the key."""


class Simulation(NamedTuple):
    """The behaviour of a simulated job. `run` is in seconds; with `inf`, the job runs until it is ended."""

    run: float
    override: bool
    exception: str


def simulation(jobspec: dict[str, Any]) -> Simulation | None:
    """The request in `attributes.system.exec.test`; None for a job that is not simulated. Raises SimError."""
    table = js.system(jobspec).get("exec")
    if not isinstance(table, dict):
        return None
    bulk = table.get("bulkexec")
    if isinstance(bulk, dict) and bulk.get("mock_exception") in ("init", "starting"):
        # In flux-core, `bulkexec` is for jobs that are actually run. These exceptions end the job before any task
        # starts, so the job can be simulated.
        return Simulation(0.0, False, bulk["mock_exception"])
    test = table.get("test")
    if test is None:
        return None
    if not isinstance(test, dict):
        raise SimError("attributes.system.exec.test: must be an object")
    run = test.get("run_duration")
    try:
        # Without a duration, the job runs as long as its time limit, as in flux-core. A limit of 0 is none.
        limit = js.duration(jobspec) or math.inf
        seconds = limit if run is None else _seconds(run) if isinstance(run, str) else float(run)
        if not seconds >= 0:
            raise ValueError(f"{run} is not a duration")
    except (TypeError, ValueError, OverflowError) as exc:
        raise SimError(f"attributes.system.exec.test.run_duration: {exc}") from None
    exception = test.get("mock_exception", "")
    if exception not in ("", "init", "starting", "run"):
        raise SimError("attributes.system.exec.test.mock_exception: must be init, starting or run")
    return Simulation(seconds, bool(test.get("override", 0)), exception)


def simulates_for_guests(config: dict[str, Any], default: bool = False) -> bool:
    """True if guests' jobs may be simulated: nothing runs, so no other permission is needed."""
    return bool(config.get("exec", {}).get("testexec", {}).get("allow-guests", default))


class Job:
    """A started job. `ranks` are in ascending order."""

    __slots__ = (
        "critical",
        "doomed",
        "doomed_at",
        "failed",
        "id",
        "kills",
        "msg",
        "ranks",
        "requeues_left",
        "running",
        "runs_again",
        "sim",
        "start_failure",
        "timer",
        "userid",
    )

    def __init__(self, id: int, userid: int, msg: Message, ranks: list[int]) -> None:
        self.id = id
        self.userid = userid
        # The start request, which gets responses until the job has ended.
        self.msg = msg
        self.ranks = ranks
        # Nodes (by index in the job) whose loss ends the job; None for all of them.
        self.critical: Idset | None = None
        self.running = False
        self.failed = False
        # How often the job may still be requeued after the loss of a node (None if the job does not request requeues),
        # and whether it has lost a node and will be requeued.
        self.requeues_left: int | None = None
        self.runs_again = False
        # The signal that was sent to end the job (0 if none), and the time of that in monotonic seconds.
        self.doomed = 0
        self.doomed_at = 0.0
        self.kills = 0
        # The largest wait status of shells that could not start their tasks. It becomes the job's status, because the
        # other tasks are killed for this reason.
        self.start_failure = 0
        self.sim: Simulation | None = None
        self.timer: Any = None
