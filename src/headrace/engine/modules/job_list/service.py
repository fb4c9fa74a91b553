"""The job-list service (RFC 43): attributes of active and inactive jobs, for commands like `flux jobs`.

The service follows the job manager's journal. Only the reasons of pending jobs are not in the journal, because updating
thousands of them would cost too much. They are requested from the job manager for each listing that includes
annotations. Active jobs are objects. Inactive jobs are packed, in the order of their ends, and unpacked when a listing
reaches them. Long listings are made in slices, between which the broker does other work.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

from headrace.engine.broker.budget import is_guest
from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import EMPTY, Empty, Handler, ModuleContext, RpcError
from headrace.engine.broker.module.privacy import is_hidden, refuse_if_hidden
from headrace.engine.modules.job_list.match import Match, MatchError, compiled
from headrace.engine.modules.job_list.record import ATTRS, NO_SUMMARY, Job, Packer, summarize
from headrace.engine.modules.job_list.stats import Passed, Stats, demand
from headrace.formats.spec.job_state import INACTIVE, NEW, PENDING, RUNNING
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.jobs import JOB_LIST

NAME = "job-list"

# A slice ends after this many jobs, matching or not, or after this many seconds, if tests take long.
_SLICE = 250
_SLICE_SECONDS = 0.002
# The first jobs of a listing are sent one per message, as in flux-core. After this number of jobs, messages have more
# jobs.
_SINGLE = 32
_PER_MESSAGE = 125
# Limits for a guest: jobs in one response, and listings that are streamed at the same time.
MOST_FOR_GUEST = 10_000
GUEST_LISTINGS = 8
# The attribute to which the reason of a pending job is added, if the request names it.
_REASON_IN = "annotations"
# A scheduler's annotations on a job that it cannot start yet. They are outdated once the job waits for something else.
_WAITING = frozenset(("reason_pending", "jobs_ahead", "t_estimate"))
# Seconds between two responses to a client that streams statistics.
_STATS_PERIOD = 0.5
# The journal marks the end of the past events with an empty batch for this id.
_ANY_ID = 0xFFFFFFFFFFFFFFFF


def load(ctx: ModuleContext, args: list[str]) -> Awaitable[None]:
    only(ctx, args)
    # The module counts as loaded once it has read the past events, so that a listing during a restart has all jobs.
    return _Lister(ctx).caught_up


class _Waiting(NamedTuple):
    """A `list-id` request that waits until its job has reached `state` (the bit of a state; 0: any)."""

    state: int
    msg: Message


class _Lister:
    def __init__(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.active: dict[int, Job] = {}
        # The attributes of the last jobspec.
        self.summary = NO_SUMMARY
        self.inactive: dict[int, bytes] = {}
        ctx.watch_tables(lambda: (self.active, self.inactive))
        self.packer = Packer()
        self.stats = Stats()
        self.stats.configure(ctx.config)
        self.passed = Passed()
        # The time at which the last job ended; before that, the time of this load.
        self.last_end = time.time()
        self.waiting: dict[int, list[_Waiting]] = {}
        self.lookups = 0
        self.guests_turn = asyncio.Lock()
        # Journal messages since `job-state-pause`; None if the journal is not paused.
        self.paused: list[Message] | None = None
        self.watchers = ctx.streams("job-stats")
        self.stats_due = False
        self.caught_up: asyncio.Future[None] = ctx.loop.create_future()
        self.listings = ctx.streams("list")
        ctx.service(
            NAME,
            {
                "list": self._after_catching_up(self._list),
                "list-id": self._list_id,
                "list-attrs": lambda msg: {"attrs": [*ATTRS[1:], "all"]},
                "job-stats": self._after_catching_up(self._job_stats),
                "metrics": self._after_catching_up(self._metrics),
                "job-state-pause": self._pause,
                "job-state-unpause": self._unpause,
            },
            open=("list", "list-id", "list-attrs", "job-stats"),
            requests=JOB_LIST,
        )
        ctx.on_config(self._configure)
        ctx.on_stats(self._stats)
        ctx.on_disconnect(self._disconnected)
        ctx.subscribe("job-purge-inactive", self._purged)
        ctx.call("job-manager.events-journal", {"full": True, "grouped": True}, self._journal, streaming=True)

    def _after_catching_up(self, answer: Handler) -> Handler:
        """Wrap a handler so that requests wait until the past events have been read.

        After a restart of the instance, clients send requests as soon as the socket exists, while modules are still
        being loaded.
        """

        async def later(msg: Message) -> Any:
            await asyncio.shield(self.caught_up)
            found = answer(msg)
            return await found if isinstance(found, Awaitable) else found

        return lambda msg: answer(msg) if self.caught_up.done() else later(msg)

    def _stats(self) -> dict[str, Any]:
        pending, running, inactive = self.stats.groups()
        return {
            "jobs": {"pending": pending, "running": running, "inactive": inactive},
            "idsync": {"lookups": self.lookups, "waits": len(self.waiting)},
            "stats_watchers": len(self.watchers),
        }

    def _configure(self, config: dict[str, Any]) -> None:
        self.stats.configure(config)
        self._stats_changed()

    # -- the journal

    def _caught_up(self) -> None:
        if not self.caught_up.done():
            self.caught_up.set_result(None)

    def _pause(self, msg: Message) -> Empty:
        """`job-state-pause`: fall behind the job manager, so that clients can be tested in this situation."""
        if self.paused is None:
            self.paused = []
        return EMPTY

    def _unpause(self, msg: Message) -> Empty:
        missed, self.paused = self.paused or [], None
        for reply in missed:
            self._journal(reply)
        return EMPTY

    def _journal(self, reply: Message) -> None:
        if self.paused is not None:
            self.paused.append(reply)
            return
        if reply.errnum:
            self._caught_up()
            if reply.errnum != errno.ENODATA:
                text = reply.text or os.strerror(reply.errnum)
                self.ctx.log(logging.ERROR, f"job-manager.events-journal: {text}: listings are no longer updated")
            return
        body = reply.obj
        job_ids = body["ids"] if "ids" in body else [body.get("id", _ANY_ID)]
        if not body.get("events") or job_ids[0] in (_ANY_ID, -1):
            self._caught_up()
            return
        for job_id in job_ids:
            job = self.active.get(job_id)
            if job is not None:
                self._take(job, body)
            elif job_id in self.inactive:
                self._apply_late_events(job_id, body["events"])
            else:
                job = self.active[job_id] = Job(job_id)
                self._take(job, body)
        if self.watchers:
            self._stats_changed()

    def _take(self, job: Job, body: dict[str, Any]) -> None:
        """Apply a batch of one job's events, and its jobspec and R if they are included."""
        old, queue = job.state, job.queue
        if "jobspec" in body:
            jobspec = body["jobspec"]
            # Many jobs of a user share one jobspec object.
            if jobspec is not self.summary.jobspec:
                self.summary = summarize(jobspec, self.summary)
            job.take_jobspec(self.summary)
            queue = job.queue
        for event in body["events"]:
            job.take_event(event["timestamp"], event["name"], event.get("context") or {})
        if "R" in body:
            job.take_r(body["R"])
        if job.queue != queue and old != NEW:
            new, job.state = job.state, old
            self.stats.requeue(job, queue)
            job.state = new
        if job.state != old:
            self.stats.move(job, old)
            if self.caught_up.done():
                self.passed.move(job, old)
        if job.state == INACTIVE:
            del self.active[job.id]
            self.last_end = job.t_inactive or self.last_end
            self.inactive[job.id] = self.packer.pack(job)
            self.ctx.removed()
        elif job.state == NEW and _rejected(body):
            del self.active[job.id]
        waiting = self.waiting.get(job.id)
        if waiting:
            self._wake(job, waiting)

    def _apply_late_events(self, job_id: int, events: list[dict[str, Any]]) -> None:
        """Apply events after `clean`. Only a memo or an annotation can still change the job."""
        job = self.packer.unpack(job_id, self.inactive[job_id])
        for event in events:
            if event["name"] in ("memo", "annotations"):
                job.take_event(event["timestamp"], event["name"], event.get("context") or {})
        self.inactive[job_id] = self.packer.pack(job)

    def _purged(self, msg: Message) -> None:
        self.ctx.removed(len(msg.obj["jobs"]))
        for job_id in msg.obj["jobs"]:
            data = self.inactive.pop(job_id, None)
            if data is not None:
                self.stats.purge(self.packer.unpack(job_id, data))
            for entry in self.waiting.pop(job_id, ()):
                self.ctx.respond_error(entry.msg, errno.ENOENT)
        if self.watchers:
            self._stats_changed()

    # -- list

    def _list(self, msg: Message) -> Awaitable[dict[str, Any]] | None:
        body = msg.obj
        limit, since = body["max_entries"], body.get("since") or 0.0
        if limit < 0:
            raise RpcError(errno.EPROTO, "invalid payload: max_entries must be a number, 0 for no limit")
        if limit > sys.maxsize:
            raise RpcError(errno.EPROTO, f"invalid payload: max_entries must be at most {sys.maxsize}, 0 for no limit")
        names = _names(body["attrs"])
        try:
            match = compiled(body.get("constraint"))
        except MatchError as exc:
            raise RpcError(errno.EPROTO, f"invalid payload: invalid constraint: {exc}") from None
        walk = self._walk(match, since)
        if is_hidden(self.ctx, msg):
            walk = (job if job is not None and job.userid == msg.userid else None for job in walk)
        if not msg.streaming:
            return self._gathered_for_guest(walk, names, limit) if is_guest(msg) else _gathered(walk, names, limit)
        if is_guest(msg) and sum(other.userid == msg.userid for other in self.listings) >= GUEST_LISTINGS:
            raise RpcError(errno.EAGAIN, f"user {msg.userid} has {GUEST_LISTINGS} listings that are not at their end")
        self.listings.add(msg)
        _Listing(self, msg, walk, names, limit, _REASON_IN in body["attrs"]).run()
        return None

    async def _gathered_for_guest(
        self, jobs: Iterator[Job | None], names: tuple[str, ...], limit: int
    ) -> dict[str, Any]:
        """Like `_gathered`, but for one guest at a time. Raises RpcError(E2BIG).

        The number is limited because a whole response is kept in memory.
        """
        async with self.guests_turn:
            found = await _gathered(jobs, names, min(limit, MOST_FOR_GUEST + 1) if limit else MOST_FOR_GUEST + 1)
        if len(found["jobs"]) > MOST_FOR_GUEST:
            text = f"more than {MOST_FOR_GUEST} jobs in one answer for a guest: set max_entries, or ask for a stream"
            raise RpcError(errno.E2BIG, text)
        return found

    def explain(self, jobs: list[Job], attributes: list[dict[str, Any]], done: Callable[[], None]) -> None:
        """Add the reasons of pending jobs to `attributes` (in the order of `jobs`), then call `done`."""
        pending = {job.id: at for at, job in enumerate(jobs) if job.state & PENDING}
        if not pending:
            done()
            return

        def answered(reply: Message) -> None:
            # After an error, the jobs are listed without reasons.
            if not reply.errnum:
                own = frozenset(reply.obj["own"])
                for id, notes in reply.obj["reasons"]:
                    _annotate(attributes[pending[id]], notes, id in own)
            done()

        self.ctx.call("job-manager.reasons", {"ids": list(pending)}, answered)

    def _walk(self, match: Match, since: float) -> Iterator[Job | None]:
        """Yield matching jobs in the order of RFC 43, each once, and None for each other job."""
        test = match.test
        # Jobs that were listed while active. They may be inactive when the listing reaches the inactive jobs.
        listed: set[int] = set()
        active = [job for job in self.active.values() if job.state & match.states]
        pending = [job for job in active if job.state & PENDING]
        pending.sort(key=lambda job: (-1 if job.priority is None else job.priority, -job.id), reverse=True)
        running = [job for job in active if job.state & RUNNING]
        running.sort(key=lambda job: job.t_run or 0.0, reverse=True)
        for job in itertools.chain(pending, running):
            # A job that has ended since the listing began is listed among the inactive jobs.
            if job.state != INACTIVE and (test is None or test(job)):
                listed.add(job.id)
                yield job
            else:
                yield None
        if not match.states & INACTIVE:
            return
        unpack = self.packer.unpack
        for job_id in list(reversed(self.inactive)):
            data = self.inactive.get(job_id)
            if data is None or job_id in listed:
                continue
            job = unpack(job_id, data)
            if since > 0 and (job.t_inactive or 0.0) <= since:
                return
            yield job if test is None or test(job) else None

    # -- list-id

    def _list_id(self, msg: Message) -> dict[str, Any] | None:
        job_id, state = msg.obj["id"], msg.obj.get("state") or 0
        if not 0 <= state <= INACTIVE:
            raise RpcError(errno.EPROTO, f"invalid payload: state is {state}, it must be that of a job (RFC 21)")
        # Invalid attributes are refused before the request waits.
        _names(msg.obj["attrs"])
        job = self._find(job_id)
        if job is not None:
            if not state or job.state >= state or is_hidden(self.ctx, msg, job.userid):
                self._answer(msg, job)
                return None
            self.waiting.setdefault(job_id, []).append(_Waiting(state, msg))
            return None
        # The journal may be behind. If the job manager knows the job, its events will arrive.
        self.lookups += 1
        self.waiting.setdefault(job_id, []).append(_Waiting(state, msg))

        def known(reply: Message) -> None:
            self.lookups -= 1
            if reply.errnum and self._forget(job_id, msg):
                self.ctx.respond_error(msg, errno.ENOENT)

        self.ctx.call("job-info.lookup", {"id": job_id, "keys": ["eventlog"], "flags": 0}, known)
        return None

    def _find(self, job_id: int) -> Job | None:
        job = self.active.get(job_id)
        if job is None and job_id in self.inactive:
            job = self.packer.unpack(job_id, self.inactive[job_id])
        return job

    def _wake(self, job: Job, waiting: list[_Waiting]) -> None:
        for entry in list(waiting):
            if job.state >= entry.state or is_hidden(self.ctx, entry.msg, job.userid):
                waiting.remove(entry)
                self._answer(entry.msg, job)
        if not waiting:
            del self.waiting[job.id]

    def _answer(self, msg: Message, job: Job) -> None:
        """Respond to `list-id`."""
        if is_hidden(self.ctx, msg, job.userid):
            self.ctx.respond_error(msg, errno.ENOENT)
            return
        attrs = msg.obj["attrs"]
        attributes = job.attributes(_names(attrs))
        if _REASON_IN in attrs:
            self.explain([job], [attributes], lambda: self.ctx.respond(msg, {"job": attributes}))
        else:
            self.ctx.respond(msg, {"job": attributes})

    def _forget(self, job_id: int, msg: Message) -> bool:
        """Remove a waiting request; False if it has already been answered."""
        entries = self.waiting.get(job_id, [])
        others = [entry for entry in entries if entry.msg is not msg]
        if others:
            self.waiting[job_id] = others
        else:
            self.waiting.pop(job_id, None)
        return len(others) < len(entries)

    def _disconnected(self, sender: str) -> None:
        for job_id, entries in list(self.waiting.items()):
            for entry in entries:
                if entry.msg.sender == sender:
                    self._forget(job_id, entry.msg)

    # -- job-stats

    def _job_stats(self, msg: Message) -> dict[str, Any] | None:
        refuse_if_hidden(self.ctx, msg)
        if not msg.streaming:
            return self.stats.as_object()
        self.watchers.add(msg)
        self.ctx.respond(msg, self.stats.as_object())
        return None

    def _metrics(self, msg: Message) -> dict[str, Any]:
        """`metrics`: `{results, wait, run}` (Passed), `demand`, and `idle_since` (None if jobs are active)."""
        idle_since = None if self.active else self.last_end
        return {**self.passed.as_object(), "demand": demand(self.active.values()), "idle_since": idle_since}

    def _stats_changed(self) -> None:
        if not self.stats_due:
            self.stats_due = True
            self.ctx.call_later(_STATS_PERIOD, self._send_stats)

    def _send_stats(self) -> None:
        self.stats_due = False
        self.watchers.send(self.stats.as_object())


class _Listing:
    """One streaming listing. If `explains` is true, it includes the reasons of pending jobs."""

    def __init__(
        self,
        lister: _Lister,
        msg: Message,
        jobs: Iterator[Job | None],
        names: tuple[str, ...],
        limit: int,
        explains: bool,
    ) -> None:
        self.lister = lister
        self.msg = msg
        self.jobs = jobs
        self.names = names
        self.explains = explains
        # -1 means no limit: the number only decreases, so it never becomes 0.
        self.remaining = limit or -1
        self.sent = 0

    def run(self) -> None:
        """Send the next slice, then schedule the following one."""
        if self.msg not in self.lister.listings:
            return
        found, more = _slice(self.jobs, self.remaining)
        self.remaining -= len(found)
        attributes = [job.attributes(self.names) for job in found]
        if self.explains:
            self.lister.explain(found, attributes, lambda: self._send_slice(attributes, more))
        else:
            self._send_slice(attributes, more)

    def _send_slice(self, attributes: list[dict[str, Any]], more: bool) -> None:
        """Send a slice as messages, then schedule the next slice or end the stream."""
        ctx, listings = self.lister.ctx, self.lister.listings
        if self.msg not in listings:
            return
        at = 0
        while at < len(attributes):
            size = 1 if self.sent < _SINGLE else _PER_MESSAGE
            self._send(attributes[at : at + size])
            at += size
        if more:
            ctx.call_soon(self.run)
            return
        listings.remove(self.msg)
        ctx.respond_error(self.msg, errno.ENODATA)

    def _send(self, batch: list[dict[str, Any]]) -> None:
        if not batch:
            return
        body: dict[str, Any] = {"jobs": batch}
        if not self.sent:
            body["version"] = 1
        self.sent += len(batch)
        self.lister.ctx.respond(self.msg, body)


def _slice(jobs: Iterator[Job | None], most: int) -> tuple[list[Job], bool]:
    """The matching jobs of the next slice, and True if more may follow.

    At most `most` jobs are returned if it is positive.
    """
    end = time.monotonic() + _SLICE_SECONDS
    found: list[Job] = []
    for looked, job in enumerate(jobs, 1):
        if job is not None:
            found.append(job)
            if len(found) == most:
                return found, False
        if looked == _SLICE or time.monotonic() >= end:
            return found, True
    return found, False


async def _gathered(jobs: Iterator[Job | None], names: tuple[str, ...], limit: int) -> dict[str, Any]:
    """The response to a request that is not streaming."""
    attributes: list[dict[str, Any]] = []
    more = True
    while more:
        found, more = _slice(jobs, limit - len(attributes) if limit else -1)
        attributes += [job.attributes(names) for job in found]
        if more:
            await asyncio.sleep(0)
    return {"jobs": attributes}


def _names(attrs: list[Any]) -> tuple[str, ...]:
    """The attribute names of a request. Raises RpcError(EINVAL) for an unknown attribute."""
    if "all" in attrs:
        return ATTRS
    for name in attrs:
        if not isinstance(name, str):
            raise RpcError(errno.EINVAL, "attr has no string value")
        if name not in _KNOWN:
            raise RpcError(errno.EINVAL, f"{name} is not a valid attribute")
    return tuple(dict.fromkeys(attrs))


_KNOWN = frozenset(ATTRS)


def _annotate(attributes: dict[str, Any], notes: dict[str, Any], own: bool) -> None:
    """Add the reason of a pending job to its attributes.

    A scheduler's annotations take precedence, unless the reason is the job manager's `own`: then the job is not with
    the scheduler, and the scheduler's annotations are outdated.
    """
    annotations = attributes.get(_REASON_IN) or {}
    sched = annotations.get("sched", {})
    if own:
        sched = {key: value for key, value in sched.items() if key not in _WAITING}
    sched = {**notes, **sched}
    if sched:
        attributes[_REASON_IN] = {**annotations, "sched": sched}


def _rejected(body: dict[str, Any]) -> bool:
    """True if validation refused the job (event `invalidate`). Such a job is not listed."""
    return any(event["name"] == "invalidate" for event in body["events"])
