"""Why pending jobs wait: `job-manager.reasons`, for listings, with the scheduler's part of the answer.

Reasons are found when somebody asks and are not kept. The job manager itself knows of jobs that are not before the
scheduler: those with dependencies, held ones, those of a stopped queue, and those beyond the number of requests that
the scheduler takes at a time.
"""

from __future__ import annotations

from typing import Any

from headrace.engine.broker.module.context import ModuleContext
from headrace.engine.jobs.record import Job
from headrace.engine.modules.job_manager.core import Core
from headrace.formats.spec.job_state import DEPEND, PENDING, PRIORITY
from headrace.formats.spec.message import Message

# Seconds that the scheduler has for its part; after that the response is sent without it.
_REASONS_TIMEOUT = 5.0
SOON = "about to be scheduled"
# The reason for schedulers without `sched.reasons`.
_NO_ANSWER = "waits for the scheduler, which does not say for what"


def own_reason(core: Core, job: Job) -> str:
    """Why a pending job is not sent to the scheduler; "" if it is."""
    if job.state == DEPEND:
        return "dependency: " + ", ".join(job.dependencies or ())
    if job.state == PRIORITY:
        return "waits for a priority"
    if job.priority <= 0:
        return "held"
    if not core.queues.started(job.queue):
        return core.queues.stop_note(job.queue)
    if not core.allocations.ready:
        return "no scheduler is loaded"
    if job.alloc_pending:
        return ""
    if core.allocations.limited.limit:
        return f"behind {core.allocations.limited.limit} or more jobs"
    return SOON


class Reasons:
    """The request `reasons {ids}`: {reasons: [[id, {reason_pending, jobs_ahead, t_estimate}]], own: [id]} of those that
    wait. Jobs in `own` are not before the scheduler: what it annotated to them earlier does not hold any more.
    """

    def __init__(self, ctx: ModuleContext, core: Core) -> None:
        self._ctx = ctx
        self._core = core

    def ask(self, msg: Message) -> dict[str, Any] | None:
        """Respond at once, or after the scheduler's response. Jobs that are not pending are omitted."""
        known, others = [], []
        for id in msg.obj["ids"]:
            job = self._core.active.get(id)
            if job is None or not job.state & PENDING:
                continue
            reason = own_reason(self._core, job)
            if reason:
                known.append([id, {"reason_pending": reason}])
            else:
                others.append(id)
        if not others:
            return {"reasons": known, "own": [id for id, _ in known]}
        self._ask_scheduler(msg, known, others)
        return None

    def _ask_scheduler(self, msg: Message, known: list[list[Any]], ids: list[int]) -> None:
        def answered(reply: Message) -> None:
            timer.cancel()
            if reply.errnum:
                finish([], _NO_ANSWER)
            else:
                # A request under way to the scheduler is not a reason to wait.
                finish(reply.obj["reasons"], SOON)

        def give_up() -> None:
            self._ctx.forget(tag)
            finish([], _NO_ANSWER)

        def finish(found: list[list[Any]], otherwise: str) -> None:
            explained = {id for id, _ in found}
            rest = [[id, {"reason_pending": otherwise}] for id in ids if id not in explained]
            self._ctx.respond(msg, {"reasons": known + found + rest, "own": [id for id, _ in known]})

        timer = self._ctx.call_later(_REASONS_TIMEOUT, give_up)
        tag = self._ctx.call("sched.reasons", {"ids": ids}, answered)
