"""Simulated execution: jobs that hold their resources for a while without running anything.

Benchmarks use it to measure everything except processes, users to test a queue at scale. job.py reads the attributes
in jobspecs that request it.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from typing import Any

from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.engine.modules.job_exec.job import Job
from headrace.formats.spec.message import Message

# Runs shorter than this number of seconds end in the next loop turn, because timers round up to milliseconds.
_TICK = 0.0005


class Simulator:
    """Runs the simulated jobs among `jobs`.

    `running(job)`, `fail(job, note)` and `end(job, status)` are the leader's functions for all jobs.
    """

    def __init__(
        self,
        ctx: ModuleContext,
        jobs: dict[int, Job],
        running: Callable[[Job], None],
        fail: Callable[[Job, str], None],
        end: Callable[[Job, int], None],
    ) -> None:
        self._ctx = ctx
        self._jobs = jobs
        self._running = running
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
        self._running(job)
        if sim.exception == "run":
            self._fail(job, "mock run exception generated")
        elif sim.override or sim.run == math.inf:
            return
        elif sim.run >= _TICK:
            job.timer = self._ctx.call_later(sim.run, self._end, job)
        else:
            self._ctx.call_soon(self._end, job)

    def _end(self, job: Job) -> None:
        if job.id in self._jobs:
            self._finish(job, 0)

    def override(self, msg: Message) -> Any:
        """`job-exec.override {jobid, event: start|finish, status}`: start or finish a simulated job."""
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
