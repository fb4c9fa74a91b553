"""The execution service's data on one job, from its start request to its final release.

A jobspec may request simulated execution (`attributes.system.exec.test`). The keys are those of flux-core's own test
implementation: `run_duration` (a Flux standard duration, or seconds), `override` (an operator starts and finishes the
job with `job-exec.override`) and `mock_exception` ("init", "starting" or "run").
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from headrace.formats.spec import duration as durations
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message

# Cached, as thousands of simulated jobs are alike.
_seconds = lru_cache(maxsize=64)(durations.parse)


class SimError(ValueError):
    """An invalid `exec.test` attribute of a jobspec; the text names the key."""


class Simulation(NamedTuple):
    """The behaviour of a simulated job; `run` in seconds."""

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
        # For jobs that would be run: what fails so never gets as far as a task.
        return Simulation(0.0, False, bulk["mock_exception"])
    test = table.get("test")
    if test is None:
        return None
    if not isinstance(test, dict):
        raise SimError("attributes.system.exec.test: must be an object")
    run = test.get("run_duration")
    try:
        # Without a duration, the job takes as long as its time limit, as in flux-core.
        seconds = js.duration(jobspec) if run is None else _seconds(run) if isinstance(run, str) else float(run)
        if not seconds >= 0:
            raise ValueError(f"{run} is no time")
    except (TypeError, ValueError, OverflowError) as exc:
        raise SimError(f"attributes.system.exec.test.run_duration: {exc}") from None
    exception = test.get("mock_exception", "")
    if exception not in ("", "init", "starting", "run"):
        raise SimError("attributes.system.exec.test.mock_exception: must be init, starting or run")
    return Simulation(seconds, bool(test.get("override", 0)), exception)


class Job:
    """One job, with its ranks in ascending order."""

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
        # The start request, which gets responses until the job is over.
        self.msg = msg
        self.ranks = ranks
        # Nodes (by index in the job) whose loss ends the job; None for all of them.
        self.critical: Idset | None = None
        self.running = False
        self.failed = False
        # How often the job may still be queued again after the loss of a node, None if it does not ask for that; and
        # whether it has lost one and will be queued again.
        self.requeues_left: int | None = None
        self.runs_again = False
        # The signal that was sent to end it, 0 for none.
        self.doomed = 0
        # When that was, in monotonic seconds.
        self.doomed_at = 0.0
        self.kills = 0
        # The largest wait status of the shells that could not start their tasks. The job ends with it, as its other
        # tasks are killed for it.
        self.start_failure = 0
        self.sim: Simulation | None = None
        self.timer: Any = None
