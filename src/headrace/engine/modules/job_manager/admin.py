"""Requests about the whole instance: queues, drain and idle, purge, counts, history."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from typing import Any

from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.engine.broker.module.privacy import is_hidden, refuse_if_hidden
from headrace.engine.jobs.record import inactive_user
from headrace.engine.modules.job_manager.core import Core
from headrace.engine.modules.job_manager.effects import Answer, Purged
from headrace.engine.modules.job_manager.queues import QueueError
from headrace.engine.modules.job_manager.store import Store
from headrace.formats.spec import duration as durations
from headrace.formats.spec import slices
from headrace.formats.spec.job_state import INACTIVE, RUNNING, SCHED
from headrace.formats.spec.message import Message
from headrace.formats.spec.rset import ResourceSet

# Seconds between two checks of the limits on inactive jobs, and the number of jobs per purge.
_PURGE_PERIOD = 2.0
_PURGE_BATCH = 100
# The most jobs that one request may purge.
_PURGE_BATCH_MAX = 1000


class Admin:
    """The handlers. `touch` is called after every input to the core."""

    def __init__(
        self,
        ctx: ModuleContext,
        core: Core,
        store: Store,
        touch: Callable[[], None],
    ) -> None:
        self.ctx = ctx
        self.core = core
        self.store = store
        self.touch = touch
        self.draining: list[Message] = []
        self.idling: list[Message] = []
        self.age_limit = self.number_limit = -1.0
        self._timer = False
        self.configure(ctx.config)

    def configure(self, config: dict[str, Any]) -> None:
        """`[job-manager] inactive-age-limit, inactive-num-limit`; raises RpcError(EINVAL)."""
        table = config.get("job-manager", {})
        if not isinstance(table, dict):
            raise RpcError(errno.EINVAL, "job-manager: must be a table")
        age, number = table.get("inactive-age-limit", ""), table.get("inactive-num-limit", -1)
        if not isinstance(number, int) or isinstance(number, bool):
            raise RpcError(errno.EINVAL, "job-manager.inactive-num-limit: must be a number")
        if number < 0 and "inactive-num-limit" in table:
            raise RpcError(errno.EINVAL, "job-manager.inactive-num-limit: must be >= 0")
        if not isinstance(age, str):
            raise RpcError(errno.EINVAL, f"job-manager.inactive-age-limit: Expected string, not {age!r}")
        try:
            self.age_limit = durations.parse(age) if age else -1.0
        except ValueError as exc:
            raise RpcError(errno.EINVAL, f"job-manager.inactive-age-limit: invalid FSD: {exc}") from None
        self.number_limit = number
        if not self._timer and (self.age_limit >= 0 or number >= 0):
            self._timer = True
            self.ctx.call_later(_PURGE_PERIOD, self._purge_old)

    def _answer(self, msg: Message, body: dict[str, Any] | None = None) -> None:
        self.core.effects.append(Answer(msg, body))
        self.touch()

    # -- queues

    def queue_list(self, msg: Message) -> dict[str, Any]:
        return {"queues": self.core.queues.names}

    def queue_status(self, msg: Message) -> dict[str, Any]:
        try:
            status = self.core.queues.status((msg.obj or {}).get("name"))
        except QueueError as exc:
            raise RpcError(errno.EINVAL, str(exc)) from None
        if status["start"] and not self.core.allocations.ready:
            status.update(start=False, stop_reason="Scheduler is offline")
        return status

    def _selected(self, body: dict[str, Any]) -> list[str]:
        try:
            return self.core.queues.select(body.get("name"), bool(body.get("all")))
        except QueueError as exc:
            raise RpcError(errno.EINVAL, str(exc)) from None

    def queue_enable(self, msg: Message) -> None:
        """`queue-enable {enable, name?, all, reason?, nocheckpoint?}`."""
        body = msg.obj
        keep = not body.get("nocheckpoint")
        self.core.set_queues_enabled(self._selected(body), body["enable"], body.get("reason"), keep)
        self._answer(msg)

    def queue_start(self, msg: Message) -> None:
        """`queue-start {start, name?, all, reason?, nocheckpoint?}`."""
        body = msg.obj
        self.core.now = self.ctx.now()
        keep = not body.get("nocheckpoint")
        self.core.set_queues_started(self._selected(body), body["start"], body.get("reason"), keep)
        self._answer(msg)

    # -- waiting until no job is active

    def drain(self, msg: Message) -> None:
        """`drain`: responds when no job is active."""
        self.draining.append(msg)
        self.jobs_ended()

    def idle(self, msg: Message) -> None:
        """`idle`: responds with {pending} when no job is running."""
        self.idling.append(msg)
        self.jobs_ended()

    def jobs_ended(self) -> None:
        if self.draining and not self.store.active:
            waiting, self.draining = self.draining, []
            for msg in waiting:
                self.ctx.respond(msg)
        if self.idling and not self.core.running:
            waiting, self.idling = self.idling, []
            pending = len(self.core.active)
            for msg in waiting:
                # The core is ahead of the journal and of the published events. A response now would be too early:
                # after a restart, listings would still show jobs as running whose ends are not in the journal.
                self._answer(msg, {"pending": pending})

    def disconnected(self, sender: str) -> None:
        self.draining = [msg for msg in self.draining if msg.sender != sender]
        self.idling = [msg for msg in self.idling if msg.sender != sender]

    # -- purge

    def purge(self, msg: Message) -> None:
        """`purge {age_limit, num_limit, batch, force}`: {count}. Without force, jobs are only counted."""
        body = msg.obj
        given = {name: limit for name, limit in body.items() if limit is not None}
        age, number = given.get("age_limit", -1.0), given.get("num_limit", -1)
        batch = given.get("batch", _PURGE_BATCH_MAX)
        if not 1 <= batch <= _PURGE_BATCH_MAX:
            raise RpcError(errno.EINVAL, f"batch must be from 1 to {_PURGE_BATCH_MAX}")
        self.core.now = self.ctx.now()
        ids = self.core.purgeable(age, number)
        if body.get("force"):
            ids = self._purge(ids[:batch])
        self._answer(msg, {"count": len(ids)})

    def purge_id(self, msg: Message) -> None:
        """`purge-id {id, force}`, or {jobs: [id...], force}: {count}."""
        jobs, one = msg.obj.get("jobs"), msg.obj.get("id")
        if jobs is None and one is None:
            raise RpcError(errno.EPROTO, "job-manager.purge-id: jobs: missing, expected array")
        jobs = [one] if jobs is None else jobs
        for id in jobs:
            if id in self.core.active:
                raise RpcError(errno.EINVAL, "cannot purge active job")
            if id not in self.core.inactive:
                raise RpcError(errno.ENOENT, "id not found")
        ids = self._purge(jobs) if msg.obj.get("force") else jobs
        self._answer(msg, {"count": len(ids)})

    def _purge(self, ids: list[int]) -> list[int]:
        purged = self.core.purge(ids)
        if purged:
            self.core.effects.append(Purged(purged))
            self.touch()
        return purged

    def _purge_old(self) -> None:
        self._timer = False
        if self.age_limit < 0 and self.number_limit < 0:
            return
        self.core.now = self.ctx.now()
        ids = self.core.purgeable(self.age_limit, int(self.number_limit))
        self._purge(ids[:_PURGE_BATCH])
        self._timer = True
        self.ctx.call_later(0.05 if len(ids) > _PURGE_BATCH else _PURGE_PERIOD, self._purge_old)

    # -- counts and lists

    def getinfo(self, msg: Message) -> dict[str, Any]:
        refuse_if_hidden(self.ctx, msg)
        return {"max_jobid": self.core.max_jobid}

    def alloc_query(self, msg: Message) -> dict[str, Any]:
        refuse_if_hidden(self.ctx, msg)
        core = self.core
        queued = sum(
            job.state == SCHED and job.priority > 0 and not job.alloc_pending and core.queues.started(job.queue)
            for job in core.active.values()
        )
        return {"queue_length": queued, "alloc_pending": core.allocations.pending, "running": core.running}

    async def resource_status(self, msg: Message) -> dict[str, Any]:
        """`resource-status`: {allocated: R}, as the scheduler reports it; empty without a scheduler."""
        try:
            return {"allocated": (await self.ctx.rpc("sched.resource-status", {}))["allocated"]}
        except RpcError:
            return {"allocated": ResourceSet().to_obj()}

    def list(self, msg: Message) -> dict[str, Any]:
        """`list {max_entries}`: active jobs, most urgent first, then ended waitable jobs (zombies)."""
        most = (msg.obj or {})["max_entries"] or None
        jobs = sorted(self.core.active.values(), key=lambda job: (not job.state & RUNNING, -job.priority, job.id))
        listed: list[dict[str, Any]] = [
            {
                "id": job.id,
                "userid": job.userid,
                "urgency": job.urgency,
                "priority": job.priority,
                "t_submit": job.t_submit,
                "state": job.state,
                **({"annotations": job.annotations} if job.annotations else {}),
            }
            for job in jobs
        ]
        over = self.core.inactive
        listed += (
            {"id": id, "userid": inactive_user(over[id]), "state": INACTIVE} for id in self.core.zombies if id in over
        )
        listed = [entry for entry in listed if not is_hidden(self.ctx, msg, entry["userid"])]
        return {"jobs": listed[:most]}

    def history(self, msg: Message) -> dict[str, Any]:
        """`history.get {slice}`: the ids of the sender's jobs within the slice, newest first.

        Raises RpcError(EINVAL).
        """
        try:
            chosen = slices.parse(msg.obj["slice"])
        except slices.SliceError as exc:
            raise RpcError(errno.EINVAL, str(exc)) from None
        active = (id for id, job in self.core.active.items() if job.userid == msg.userid)
        inactive = (id for id, known in self.core.inactive.items() if inactive_user(known) == msg.userid)
        return {"jobs": sorted(itertools.chain(active, inactive), reverse=True)[chosen]}
