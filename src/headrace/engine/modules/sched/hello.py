"""The hello protocol (RFC 27): schedulers recover running jobs before they accept requests."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from typing import Any

import msgspec

from headrace.engine.broker.module.context import ModuleContext
from headrace.engine.modules.sched.options import Log, Options
from headrace.formats.spec import jobid
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.job_exception import FATAL, SCHEDULER_RESTART
from headrace.formats.spec.message import Message

# A flag of job-info.lookup: return R with all updates applied (RFC 43).
_CURRENT = 2


def hello(
    ctx: ModuleContext,
    options: Options,
    log: Log,
    recover: Callable[[int, dict[str, Any], int], None],
    resources: Callable[[], str],
) -> None:
    """Call `recover(id, R, freed)` for each running job, then report that the scheduler is ready.

    `freed` are the ranks that the job has already released, as a bit set. `resources()` describes the scheduler's
    resources for the log. If `recover` raises ValueError, the job gets a fatal exception, since its resources could be
    allocated twice.
    """

    def take(job: int, r: dict[str, Any], freed: str) -> None:
        try:
            recover(job, r, Idset.parse(freed).bits)
        except ValueError as exc:
            lost(job, str(exc))

    def lost(job: int, why: str) -> None:
        log(logging.ERROR, f"resources of job {job} cannot be recovered: {why}")
        note = f"failed to reallocate R: {why}"
        ctx.call("job-manager.raise", {"id": job, "severity": FATAL, "type": SCHEDULER_RESTART, "note": note})

    def answered(reply: Message) -> None:
        if reply.errnum == errno.ENODATA:
            ctx.call("job-manager.sched-ready", options.sched_ready, accepted)
        elif reply.errnum:
            log(logging.ERROR, f"job-manager.sched-hello: {reply.text or os.strerror(reply.errnum)}")
        else:
            job = reply.obj
            who = f"id={jobid.encode(job['id'])} priority={job['priority']} userid={job['userid']}"
            log(logging.DEBUG, f"hello: {who} t_submit={job['t_submit']:.1f}")
            if "R" in job:
                take(job["id"], job["R"], job.get("free", ""))
            else:
                look_up(job["id"], job.get("free", ""))

    def look_up(job: int, freed: str) -> None:
        def found(answer: Message) -> None:
            if answer.errnum:
                lost(job, answer.text or os.strerror(answer.errnum))
            else:
                take(job, msgspec.json.decode(answer.obj["R"]), freed)

        ctx.call("job-info.lookup", {"id": job, "keys": ["R"], "flags": _CURRENT}, found)

    def accepted(reply: Message) -> None:
        if reply.errnum:
            log(logging.ERROR, f"job-manager.sched-ready: {reply.text or os.strerror(reply.errnum)}")
        else:
            log(logging.INFO, f"ready: {options} {resources()}")

    ctx.call("job-manager.sched-hello", {"partial-ok": options.partial_ok}, answered, streaming=True)


def acquire_ended(ctx: ModuleContext, reply: Message, known: bool) -> None:
    """Log the error that ended `resource.acquire`. `known` is True if resources had been acquired."""
    then = "changes of nodes are not noticed until the scheduler is reloaded" if known else "nothing can be scheduled"
    ctx.log(logging.ERROR, f"resource.acquire: {reply.text or os.strerror(reply.errnum)}: {then}")
