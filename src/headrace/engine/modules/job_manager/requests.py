"""Requests about jobs: raise, kill, urgency, memo, update, wait.

Requests are checked here and executed by the core. Error messages are flux-core's, because its clients print them.
Guests have access to their own jobs, within RFC 30 and the limits of RFC 33. The instance owner has access to all jobs.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from typing import Any

from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.engine.broker.module.privacy import is_hidden
from headrace.engine.jobs.pack import event_line
from headrace.engine.jobs.policy import Policy, PolicyError, UnknownQueue
from headrace.engine.jobs.record import Job, updated_jobspec
from headrace.engine.jobs.storable import unstorable
from headrace.engine.modules.job_manager.core import Core
from headrace.engine.modules.job_manager.effects import Answer
from headrace.engine.modules.job_manager.peers import Exec
from headrace.engine.modules.job_manager.store import Store
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.job_exception import SEVERITIES
from headrace.formats.spec.job_state import CLEANUP, RUN
from headrace.formats.spec.message import ROLE_OWNER, USERID_UNKNOWN, Message
from headrace.formats.spec.urgency import URGENCY_DEFAULT, URGENCY_EXPEDITE, URGENCY_HOLD

_ANY = frozenset((-1, 0xFFFFFFFFFFFFFFFF))
_ALL_USERS = frozenset((-1, USERID_UNKNOWN))
_DURATION = "attributes.system.duration"
_QUEUE = "attributes.system.queue"
_CONSTRAINTS = "attributes.system.constraints"
_UPDATABLE = frozenset((_DURATION, _QUEUE, _CONSTRAINTS))
_OTHERS = "guests can only access their own jobs"
_NO_MORE = "there are no more waitable jobs"
_NOT_WAITABLE = "invalid job id, or job may be inactive and not waitable"


class Requests:
    """The handlers. `touch` is called after every input to the core."""

    def __init__(
        self,
        ctx: ModuleContext,
        core: Core,
        store: Store,
        exec_: Exec,
        policy: Policy,
        touch: Callable[[], None],
    ) -> None:
        self.ctx = ctx
        self.core = core
        self.store = store
        self.exec = exec_
        self.policy = policy
        self.touch = touch
        self.waiters: dict[int, list[Message]] = {}
        self.waiting_any: list[Message] = []

    def _begin(self) -> None:
        self.core.now = self.ctx.now()
        self.touch()

    def _answer(self, msg: Message, body: dict[str, Any] | None = None) -> None:
        """Respond once all changes so far are durable."""
        self.core.effects.append(Answer(msg, body))
        self.touch()

    def _job(self, msg: Message, deed: str) -> Job:
        """The active job of a request. Raises RpcError.

        `deed` completes the error message "guests ... their own jobs".
        """
        id = msg.obj["id"]
        userid = self.core.user_of(id)
        if userid is None or is_hidden(self.ctx, msg, userid):
            raise RpcError(errno.ENOENT, "unknown job id")
        job = self.core.active.get(id)
        if job is None:
            raise RpcError(errno.ENOENT, "job is inactive")
        if not msg.rolemask & ROLE_OWNER and msg.userid != job.userid:
            raise RpcError(errno.EPERM, f"guests {deed} their own jobs")
        return job

    def _selected(self, msg: Message, states: int, deed: str) -> list[Job]:
        """Active jobs in one of `states` of the request's user (-1: all users). Raises RpcError.

        `deed` completes the error message "guests ... their own jobs".
        """
        userid = -1 if msg.obj.get("userid") is None else msg.obj["userid"]
        if not msg.rolemask & ROLE_OWNER and userid != msg.userid:
            raise RpcError(errno.EPERM, f"guests {deed} their own jobs")
        everyone = userid in _ALL_USERS
        return [job for job in self.core.active.values() if job.state & states and (everyone or job.userid == userid)]

    # -- exceptions and signals

    def raise_(self, msg: Message) -> None:
        """`raise {id, severity, type, note?}`."""
        body = msg.obj
        job = self._job(msg, "can only raise exceptions on")
        kind, severity = _exception(body)
        self._begin()
        self.core.raise_exception(job, kind, severity, body.get("note") or "", msg.userid)
        self._answer(msg)

    def raiseall(self, msg: Message) -> None:
        """`raiseall {dry_run, userid, states, severity, type, note?}`: {count, errors}."""
        body = msg.obj
        kind, severity = _exception(body)
        jobs = self._selected(msg, body["states"], "can only raise exceptions on")
        if not body["dry_run"]:
            self._begin()
            for job in jobs:
                # The end of one job may end dependent jobs in this list; raise_exception skips those.
                self.core.raise_exception(job, kind, severity, body.get("note") or "", msg.userid)
        self._answer(msg, {"count": len(jobs), "errors": 0})

    def kill(self, msg: Message) -> Any:
        """`kill {id, signum}`: send a signal to a running job."""
        job = self._job(msg, "can only send signals to")
        signum = _signum(msg.obj)
        if job.state != RUN or not job.start_sent:
            raise RpcError(errno.EINVAL, "job is not running")
        self.exec.kill(job.id, signum)
        return EMPTY

    def killall(self, msg: Message) -> dict[str, Any]:
        """`killall {dry_run, userid, signum}`: {count, errors}."""
        signum = _signum(msg.obj)
        jobs = [job for job in self._selected(msg, RUN, "can only send signals to") if job.start_sent]
        if not msg.obj["dry_run"]:
            for job in jobs:
                self.exec.kill(job.id, signum)
        return {"count": len(jobs), "errors": 0}

    # -- urgency, memo, update

    def urgency(self, msg: Message) -> None:
        """`urgency {id, urgency}`: {old_urgency}."""
        urgency = msg.obj["urgency"]
        if not URGENCY_HOLD <= urgency <= URGENCY_EXPEDITE:
            raise RpcError(errno.EINVAL, "urgency value is out of range")
        job = self._job(msg, "can only reprioritize")
        if not msg.rolemask & ROLE_OWNER and urgency > max(job.urgency, URGENCY_DEFAULT):
            raise RpcError(errno.EPERM, "guests can only adjust urgency <= MAX(current, default)")
        if job.state & (RUN | CLEANUP):
            raise RpcError(errno.EINVAL, "urgency cannot be changed once resources are allocated")
        old = job.urgency
        if old != urgency or urgency == URGENCY_HOLD:
            self._begin()
            self.core.set_urgency(job, urgency, msg.userid)
        self._answer(msg, {"old_urgency": old})

    def memo(self, msg: Message) -> None:
        """`memo {id, volatile, memo}`."""
        job = self._job(msg, "can only add a memo to")
        memo = msg.obj["memo"]
        _check_storable("memo", memo)
        self._begin()
        self.core.memo(job, memo, bool(msg.obj.get("volatile")))
        self._answer(msg)

    def update(self, msg: Message) -> Any:
        """`update {id, updates}`: change a job's duration, queue or constraints."""
        job = self._job(msg, "may only update")
        updates = dict(msg.obj["updates"])
        for key, value in updates.items():
            if key not in _UPDATABLE and key not in self.core.policy.updatable:
                raise RpcError(errno.EINVAL, f"update of {key} not supported")
            if key != _DURATION:
                _check_storable(key, value)
        if not updates:
            raise RpcError(errno.EINVAL, "nothing to update")
        if job.state == CLEANUP:
            raise RpcError(errno.EINVAL, "job is in CLEANUP: it cannot be updated any more")
        owner = bool(msg.rolemask & ROLE_OWNER)
        if job.state == RUN and (not owner or set(updates) != {_DURATION}):
            denied = errno.EPERM if set(updates) == {_DURATION} else errno.EINVAL
            name = next((key for key in updates if key != _DURATION), _DURATION).rpartition(".")[2]
            raise RpcError(denied, f"update of {name} for running job not supported")
        if _DURATION in updates:
            updates[_DURATION] = self._duration(job, updates[_DURATION])
        if _QUEUE in updates:
            self._change_queue(job, updates)
        if not owner or _QUEUE in updates:
            try:
                self.policy.check(updated_jobspec(job.jobspec, updates))
            except PolicyError as exc:
                raise RpcError(errno.EINVAL, str(exc)) from None
        # As with the limits of queues, the owner may set any duration.
        self._ask_policy(job, {key: value for key, value in updates.items() if not (owner and key == _DURATION)})
        if _QUEUE in updates or _CONSTRAINTS in updates:
            return self._update_if_feasible(msg, job, updates)
        if job.state == RUN:
            return self._update_if_agreed(msg, job, updates)
        self._apply_update(msg, job, updates)
        return None

    def _ask_policy(self, job: Job, updates: dict[str, Any]) -> None:
        for key, value in updates.items():
            refusal = self.core.policy.update(job, key, value)
            if refusal:
                raise RpcError(errno.EINVAL, refusal)

    def _duration(self, job: Job, value: Any) -> float:
        """The duration of an update in seconds, as a float: the journal takes no integer of more than 64 bits."""
        duration = _seconds(value)
        if duration is None:
            raise RpcError(errno.EPROTO, f"duration must be a number of seconds, not {_cut(value)}")
        if duration < 0:
            raise RpcError(errno.EINVAL, "duration must not be negative")
        if job.state == RUN and duration and job.ends_after(duration) < self.ctx.now():
            raise RpcError(errno.EINVAL, "requested duration would place the job's expiration in the past")
        return duration

    def _change_queue(self, job: Job, updates: dict[str, Any]) -> None:
        name = updates[_QUEUE]
        if not isinstance(name, str):
            raise RpcError(errno.EINVAL, f"queue must be a name, not {name!r}")
        refusal = self.core.queues.refusal(name)
        if refusal:
            raise RpcError(errno.EINVAL, refusal)
        if name == job.queue:
            raise RpcError(errno.EINVAL, f"job queue is already set to {name}")
        try:
            constraint = self.policy.constraint_for(js.constraints(job.jobspec), job.queue, name)
        except UnknownQueue as exc:
            raise RpcError(errno.EINVAL, str(exc)) from None
        updates.setdefault(_CONSTRAINTS, constraint)

    async def _update_if_feasible(self, msg: Message, job: Job, updates: dict[str, Any]) -> None:
        jobspec = updated_jobspec(job.jobspec, updates)
        try:
            await self.ctx.rpc("feasibility.check", {"jobspec": jobspec})
        except RpcError as exc:
            if exc.errnum != errno.ENOSYS:
                raise
        job = self._job(msg, "may only update")
        if job.state & (RUN | CLEANUP):
            raise RpcError(errno.EINVAL, "the job was allocated meanwhile")
        self._apply_update(msg, job, updates)

    async def _update_if_agreed(self, msg: Message, job: Job, updates: dict[str, Any]) -> None:
        """Change the duration of a running job, unless the scheduler refuses (RFC 27)."""
        body = {"id": job.id, "expiration": job.ends_after(updates[_DURATION])}
        try:
            await self.ctx.rpc("sched.expiration", body)
        except RpcError as exc:
            # A scheduler that is absent, or does not know the job yet, does not refuse.
            if exc.errnum not in (errno.ENOSYS, errno.ENOENT):
                raise RpcError(exc.errnum, f"scheduler refused expiration update: {exc.text}") from None
        job = self._job(msg, "may only update")
        if job.state != RUN:
            raise RpcError(errno.EINVAL, "the job ended meanwhile")
        self._apply_update(msg, job, updates)

    def _apply_update(self, msg: Message, job: Job, updates: dict[str, Any]) -> None:
        self._begin()
        self.core.update(job, updates)
        self._answer(msg)

    def getattr(self, msg: Message) -> dict[str, Any]:
        """`getattr {id, attrs}`: jobspec, R, eventlog of any job, as in the events journal (watch.py)."""
        id = msg.obj["id"]
        out: dict[str, Any] = {"id": id}
        try:
            if not msg.rolemask & ROLE_OWNER and msg.userid != self.store.owner(id):
                raise RpcError(errno.EPERM, _OTHERS)
            for name in msg.obj["attrs"]:
                if name == "jobspec":
                    out[name] = self.store.jobspec(id, True)
                elif name == "R":
                    out[name] = self.store.r(id, True)
                elif name == "eventlog":
                    out[name] = b"".join(map(event_line, self.store.events(id))).decode()
                else:
                    raise RpcError(errno.ENOENT, f"{name}: unknown job attribute")
        except KeyError:
            if is_hidden(self.ctx, msg):
                # The response must not disclose whether the job exists.
                raise RpcError(errno.EPERM, _OTHERS) from None
            raise RpcError(errno.ENOENT, "unknown job id") from None
        return out

    # -- waiting for jobs

    def wait(self, msg: Message) -> None:
        """`wait {id}`: {id, success, errstr} when a waitable job (-1: any) is inactive; once per job."""
        id = msg.obj["id"]
        if id in _ANY:
            self._wait_any(msg)
            return
        # The result of an inactive job belongs to the first unanswered request for it.
        if id in self.core.zombies and id not in self.waiters:
            self._reap(msg, id)
            self._refuse_surplus()
            return
        job = self.core.active.get(id)
        if job is None or not job.waitable or id in self.waiters:
            raise RpcError(errno.ECHILD, _NOT_WAITABLE)
        self.waiters[id] = [msg]
        self._refuse_surplus()

    def _wait_any(self, msg: Message) -> None:
        for id in self.core.zombies:
            if id not in self.waiters:
                self._reap(msg, id)
                self._refuse_surplus()
                return
        if self._unclaimed() <= len(self.waiting_any):
            raise RpcError(errno.ECHILD, _NO_MORE)
        self.waiting_any.append(msg)

    def _unclaimed(self) -> int:
        """The number of jobs that requests for any job can still get."""
        active = sum(job.waitable and job.id not in self.waiters for job in self.core.active.values())
        return active + sum(id not in self.waiters for id in self.core.zombies)

    def _refuse_surplus(self) -> None:
        """Refuse the latest requests for any job if there are more requests than jobs left."""
        if self.waiting_any:
            available = self._unclaimed()
            surplus, self.waiting_any = self.waiting_any[available:], self.waiting_any[:available]
            for msg in surplus:
                self.ctx.respond_error(msg, errno.ECHILD, _NO_MORE)

    def _reap(self, msg: Message, id: int) -> None:
        self._begin()
        text = self.core.reap(id)
        self._answer(msg, {"id": id, "success": not text, "errstr": text})

    def jobs_ended(self, jobs: list[Job]) -> None:
        """Answer requests that wait for jobs whose ends have become durable."""
        if not (self.waiters or self.waiting_any):
            return
        for job in jobs:
            waiters = self.waiters.pop(job.id, None)
            if job.id not in self.core.zombies:
                # The job was purged before its end was durable.
                if waiters:
                    self.ctx.respond_error(waiters[0], errno.ECHILD, _NOT_WAITABLE)
                elif job.waitable:
                    self._refuse_surplus()
            elif waiters:
                self._reap(waiters[0], job.id)
            elif self.waiting_any:
                self._reap(self.waiting_any.pop(0), job.id)

    def disconnected(self, sender: str) -> None:
        self.waiting_any = [msg for msg in self.waiting_any if msg.sender != sender]
        for id, waiters in list(self.waiters.items()):
            if waiters[0].sender == sender:
                del self.waiters[id]


def _seconds(value: Any) -> float | None:
    """A finite number as a float; None for anything else."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) else None


def _cut(value: Any) -> str:
    """A value for an error message, shortened, because it may have thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 64:
        return "a whole number of more than 64 bits"
    return repr(value)


def _check_storable(name: str, value: Any) -> None:
    """Refuse a value that the journal cannot keep. Raises RpcError(EINVAL)."""
    why = unstorable(value)
    if why:
        raise RpcError(errno.EINVAL, f"{name}: {why}")


def _exception(body: dict[str, Any]) -> tuple[str, int]:
    kind, severity = body["type"], body["severity"]
    if severity not in SEVERITIES:
        raise RpcError(errno.EPROTO, f"invalid exception severity {severity!r}: it is 0 (most severe) to 7")
    if not kind or any(char.isspace() for char in kind):
        raise RpcError(errno.EPROTO, f"invalid exception type {kind!r}: it is one word")
    return kind, severity


def _signum(body: dict[str, Any]) -> int:
    signum: int = body["signum"]
    if not 0 < signum < 65:
        raise RpcError(errno.EINVAL, f"Invalid signal number {signum!r}")
    return signum
