"""Simulated execution: jobs that hold their resources for a while and run nothing.

`attributes.system.exec.test` of a jobspec asks for it, with the keys flux-core's own test implementation has:
`run_duration` (a Flux standard duration, or seconds), `override` (an operator starts and finishes the job with
`job-exec.override`) and `mock_exception` ("init", "starting" or "run"). Benchmarks measure everything but processes
with it, and the queue can be tried out at scale.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.spec import duration as durations
from headrace.spec import jobspec as js
from headrace.spec.message import Message

if TYPE_CHECKING:
    from headrace.modules.job_exec.job import Job

# Seconds below which a simulated run is over in the next turn: the loop's timers count in milliseconds, rounded up.
_TICK = 0.0005
# Simulated jobs come in thousands alike.
_seconds = lru_cache(maxsize=64)(durations.parse)


class SimError(ValueError):
    """The `exec.test` attribute of a jobspec cannot be used; the text names the key."""


class Simulation(NamedTuple):
    """How a simulated job behaves; `run` in seconds."""

    run: float
    override: bool
    exception: str


def simulation(jobspec: dict[str, Any]) -> Simulation | None:
    """What `attributes.system.exec.test` asks for, None for a job that is to be run. Raises SimError."""
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
        # Without a duration the job takes as long as its time limit, as flux-core has it.
        seconds = js.duration(jobspec) if run is None else _seconds(run) if isinstance(run, str) else float(run)
        if not seconds >= 0:
            raise ValueError(f"{run} is no time")
    except (TypeError, ValueError, OverflowError) as exc:
        raise SimError(f"attributes.system.exec.test.run_duration: {exc}") from None
    exception = test.get("mock_exception", "")
    if exception not in ("", "init", "starting", "run"):
        raise SimError("attributes.system.exec.test.mock_exception: must be init, starting or run")
    return Simulation(seconds, bool(test.get("override", 0)), exception)


class Simulator:
    """Runs the simulated ones of `jobs`. `respond(job, kind, data)`, `fail(job, note)` and `end(job, status)` are what
    all jobs have."""

    def __init__(
        self,
        ctx: ModuleContext,
        jobs: dict[int, Job],
        respond: Callable[[Job, str, dict[str, Any]], None],
        fail: Callable[[Job, str], None],
        end: Callable[[Job, int], None],
    ) -> None:
        self._ctx = ctx
        self._jobs = jobs
        self._respond = respond
        self._fail = fail
        self._finish = end

    def start(self, job: Job) -> None:
        sim = job.sim
        assert sim is not None
        if sim.exception in ("init", "starting"):
            self._fail(job, f"mock {sim.exception} exception generated")
        elif not sim.override:
            self._run(job)

    def _run(self, job: Job) -> None:
        sim = job.sim
        assert sim is not None
        job.running = True
        self._respond(job, "start", {})
        if sim.exception == "run":
            self._fail(job, "mock run exception generated")
        elif sim.override:
            return
        elif sim.run >= _TICK:
            job.timer = self._ctx.call_later(sim.run, self._end, job)
        else:
            self._ctx.call_soon(self._end, job)

    def _end(self, job: Job) -> None:
        if job.id in self._jobs:
            self._finish(job, 0)

    def override(self, msg: Message) -> Any:
        """`job-exec.override {jobid, event: start|finish, status}` for simulated jobs that ask for it."""
        job = self._jobs.get(msg.obj["jobid"])
        if job is None:
            raise RpcError(errno.ENOENT, f"job {msg.obj['jobid']} is not active")
        if job.sim is None or not job.sim.override:
            raise RpcError(errno.EINVAL, "job is not configured for override")
        event = msg.obj["event"]
        if event == "start" and not job.running:
            self._run(job)
        elif event == "finish" and job.running:
            self._finish(job, msg.obj.get("status") or 0)
        else:
            raise RpcError(errno.EINVAL, f"job is {'already' if job.running else 'not'} running, cannot {event} it")
        return EMPTY
