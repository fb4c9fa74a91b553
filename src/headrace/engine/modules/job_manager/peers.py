"""The job manager's peers as messages: a scheduler (RFC 27) and an exec service (RFC 32).

Effects of the core become requests here, and responses become inputs of the core. If a peer disconnects, or responds
with an error that the protocol does not define, the core treats it as gone until its next hello.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.engine.jobs.record import Job
from headrace.engine.modules.job_manager.core import Core
from headrace.formats.spec.jobspec import Bare
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.sched import AllocResponse

if TYPE_CHECKING:
    from headrace.engine.jobs.exec_responses import ExecResponse

# Takeovers (`sched.inherit`) are sent in batches, since they do not change which resources are free: after this many
# seconds, or when this many are collected. The number is smaller than the number of successors that the scheduler
# still has in its list when it names more.
_BATCH_DELAY = 0.005
_BATCH_SIZE = 16
_GONE = "the exec service is gone"


class Scheduler:
    """Requests to `sched`; `touch` is called after every input to the core."""

    def __init__(self, ctx: ModuleContext, core: Core, touch: Callable[[], None]) -> None:
        self.ctx = ctx
        self.core = core
        self.touch = touch
        self.sender = ""
        self.tags: dict[int, int] = {}
        self.unannounced: list[tuple[int, int, float]] = []
        self.hellos = ctx.streams("sched-hello")
        self.bare = Bare()

    def hello(self, msg: Message) -> None:
        """`sched-hello`: responds with every job that holds resources and its R, then ENODATA."""
        partial = " +partial-ok" if (msg.obj or {}).get("partial-ok") is True else ""
        self.ctx.log(logging.DEBUG, f"scheduler: hello{partial}")
        self.hellos.add(msg)
        self._drop()
        for job in self.core.allocations.holders():
            body = {"id": job.id, "priority": job.priority, "userid": job.userid, "t_submit": job.t_submit, "R": job.r}
            self.ctx.respond(msg, body)
        self.hellos.remove(msg)
        self.ctx.respond_error(msg, errno.ENODATA)

    def ready(self, msg: Message) -> dict[str, Any]:
        """`sched-ready {mode, limit}`."""
        mode, limit = msg.obj["mode"], msg.obj.get("limit") or 0
        if mode == "single":
            mode, limit = "limited", 1
        if mode not in ("unlimited", "limited") or (mode == "limited") != (limit > 0):
            raise RpcError(errno.EPROTO, 'sched-ready: mode must be "unlimited", or "limited" with a limit')
        self.ctx.log(logging.DEBUG, f"scheduler: ready {mode}")
        self.sender = msg.sender
        self.touch()
        return {"count": self.core.allocations.scheduler_is_ready(limit)}

    def disconnected(self, sender: str) -> None:
        if sender and sender == self.sender:
            self._drop()
            self.touch()

    def _drop(self) -> None:
        self.sender = ""
        for tag in self.tags.values():
            self.ctx.forget(tag)
        self.tags.clear()
        self.unannounced.clear()
        if self.core.allocations.ready:
            self.core.allocations.scheduler_is_gone()

    def alloc(self, job: Job) -> None:
        if not job.alloc_pending:
            return
        body = {
            "id": job.id,
            "priority": job.priority,
            "userid": job.userid,
            "t_submit": job.t_submit,
            # The environment is the largest part of a jobspec and does not affect scheduling.
            "jobspec": self.bare.of(job.jobspec),
        }
        self._announce()
        self.tags[job.id] = self.ctx.call("sched.alloc", body, self._reply, streaming=True)

    def _reply(self, reply: Message) -> None:
        if reply.errnum:
            if self.core.allocations.ready:
                # ENOSYS means that the scheduler was unloaded. The next scheduler gets the jobs.
                level = logging.DEBUG if reply.errnum == errno.ENOSYS else logging.ERROR
                self.ctx.log(level, f"sched.alloc: {_text(reply)}")
                self._drop()
                self.touch()
            return
        body = reply.obj
        try:
            kind = AllocResponse(body["type"])
        except ValueError:
            self.ctx.log(logging.ERROR, f"sched.alloc: unknown type of response {body['type']!r}: must be 0 to 3")
            self._drop()
            self.touch()
            return
        if kind is not AllocResponse.ANNOTATE:
            tag = self.tags.pop(body["id"], None)
            if tag is not None:
                self.ctx.forget(tag)
        self.core.now = self.ctx.now()
        self.core.allocations.reply(body["id"], kind, body.get("R"), body.get("annotations"), body.get("note") or "")
        self.touch()

    def cancel(self, id: int) -> None:
        # If the request was answered in the meantime, the core frees the unwanted resources.
        if id in self.tags:
            self._announce()
            self.ctx.call("sched.cancel", {"id": id})

    def prioritize(self, priorities: dict[int, int]) -> None:
        self._announce()
        self.ctx.call("sched.prioritize", {"jobs": list(priorities.items())})

    def free(self, job: Job, r: dict[str, Any] | None) -> None:
        self._announce()
        self.ctx.call("sched.free", {"id": job.id, "R": r, "final": True})

    def inherit(self, job: Job, successor: Job) -> None:
        """Report that `successor` took over the resources of `job`. This answers its alloc request.

        Reports are sent in batches: each message wakes a process, and a takeover does not change which resources are
        free.
        """
        tag = self.tags.pop(successor.id, None)
        if tag is not None:
            self.ctx.forget(tag)
        if not self.unannounced:
            self.ctx.call_later(_BATCH_DELAY, self._announce)
        self.unannounced.append((job.id, successor.id, successor.expiration))
        if len(self.unannounced) == _BATCH_SIZE:
            self._announce()

    def _announce(self) -> None:
        if self.unannounced:
            unannounced, self.unannounced = self.unannounced, []
            self.ctx.call("sched.inherit", {"jobs": unannounced})

    def successors(self, msg: Message) -> Any:
        """`sched-successors {ids, expiration}`: replace the list of successors (successors.py).

        An extension of RFC 27.
        """
        if msg.sender == self.sender:
            self.core.allocations.successors.name(msg.obj["ids"], msg.obj["expiration"])
        return EMPTY

    def expiration(self, id: int, expiration: float) -> None:
        self._announce()
        self.ctx.call("sched.expiration", {"id": id, "expiration": expiration}, self._logged)

    def _logged(self, reply: Message) -> None:
        if reply.errnum and reply.errnum != errno.ENOSYS:
            self.ctx.log(logging.WARNING, f"{reply.topic}: {_text(reply)}")


class Exec:
    """Requests to the exec service that said hello last."""

    def __init__(self, ctx: ModuleContext, core: Core, touch: Callable[[], None]) -> None:
        self.ctx = ctx
        self.core = core
        self.touch = touch
        self.service = ""
        self.sender = ""
        self.tags: dict[int, int] = {}

    def hello(self, msg: Message) -> Any:
        """`exec-hello {service}`."""
        if self.service:
            self._drop("the exec service was replaced")
        self.service, self.sender = msg.obj["service"], msg.sender
        self.core.exec_is_ready()
        self.touch()
        return EMPTY

    def disconnected(self, sender: str) -> None:
        if sender and sender == self.sender:
            self._drop(_GONE)

    def _drop(self, note: str) -> None:
        for tag in self.tags.values():
            self.ctx.forget(tag)
        self.tags.clear()
        self.service = self.sender = ""
        self.core.now = self.ctx.now()
        self.core.exec_gone(note)
        self.touch()

    def start(self, job: Job) -> None:
        id, sender = job.id, self.sender
        if not job.start_sent or id in self.tags:
            # The exec service disconnected while the start waited for the disk, and the job was failed then.
            return
        body = {"id": id, "userid": job.userid, "jobspec": job.jobspec, "R": job.r, "reattach": False}
        requeues_left = self.core.requeues_left(job)
        if requeues_left is not None:
            body["requeues_left"] = requeues_left

        def answer(reply: Message) -> None:
            # A response of an earlier exec service, or of an earlier load of this one, does not concern this start.
            if self.tags.get(id) != tag:
                return
            if reply.errnum:
                del self.tags[id]
                if reply.errnum != errno.ENODATA:
                    self.core.now = self.ctx.now()
                    absent, service_gone = reply.errnum == errno.ENOSYS, self.sender == sender
                    if absent and service_gone:
                        # The service was unloaded and has ended its jobs. The next service starts this job.
                        self.service = self.sender = ""
                    self.core.exec_failed(id, "" if absent else f"{reply.topic}: {_text(reply)}", service_gone)
                    self.touch()
                return
            self._reply(reply.obj)

        tag = self.tags[id] = self.ctx.call(f"{self.service}.start", body, answer, streaming=True)

    def _reply(self, body: ExecResponse) -> None:
        if body["type"] == "release" and body["data"]["final"]:
            tag = self.tags.pop(body["id"], None)
            if tag is not None:
                self.ctx.forget(tag)
        self.core.now = self.ctx.now()
        self.core.exec_reply(body)
        self.touch()

    def kill(self, id: int, signum: int) -> None:
        self.ctx.call(f"{self.service}.kill", {"id": id, "signum": signum})

    def expiration(self, id: int, expiration: float) -> None:
        self.ctx.call(f"{self.service}.expiration", {"id": id, "expiration": expiration})


def _text(reply: Message) -> str:
    return reply.text or os.strerror(reply.errnum)
