"""Why pending jobs wait: `job-manager.reasons`, for listings.

Reasons are determined for each request and not stored. The job manager knows why a job has not been sent to the
scheduler: it has dependencies, it is held, its queue is stopped, or it exceeds the number of requests that the
scheduler takes at a time. The scheduler knows the reasons of the other jobs.
"""

from __future__ import annotations

from typing import Any

from headrace.engine.broker.module.context import ModuleContext
from headrace.engine.jobs.record import Job
from headrace.engine.modules.job_manager import withheld
from headrace.engine.modules.job_manager.core import Core
from headrace.formats.spec.job_state import DEPEND, PENDING, PRIORITY
from headrace.formats.spec.message import Message

# Seconds to wait for the scheduler. After that the response is sent without its reasons.
_REASONS_TIMEOUT = 5.0
SOON = "about to be scheduled"
# The reason for schedulers without `sched.reasons`.
_NO_ANSWER = "waits for the scheduler, which does not say for what"


def own_reason(core: Core, job: Job) -> str:
    """Why a pending job is not sent to the scheduler; "" if it is."""
    if job.state == DEPEND:
        return "dependency: " + ", ".join(job.dependencies or ())
    if job.state == PRIORITY:
        limit = core.policy.waits_for(job)
        return withheld.reason(limit) if limit else "waits for a priority"
    if job.priority <= 0:
        return "held"
    if not core.queues.started(job.queue):
        return core.queues.stop_note(job.queue)
    if not core.allocations.ready:
        return "no scheduler is loaded"
    limit = core.allocations.withheld.limit(job)
    if limit:
        return withheld.reason(limit)
    if job.alloc_pending:
        return ""
    if core.allocations.limited.limit:
        return f"behind {core.allocations.limited.limit} or more jobs"
    return SOON


class Reasons:
    """`reasons {ids}`: {reasons: [[id, {reason_pending, jobs_ahead, t_estimate}]], own: [id]}.

    Jobs in `own` are not with the scheduler, so its earlier annotations on them are outdated.
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
                # The scheduler gives no reason for a job whose request is still on its way.
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
