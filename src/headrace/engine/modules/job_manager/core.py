"""The job manager's state machine (RFC 21, 27, 32): inputs in, records and effects out.

Pure: no I/O, no clock.

`post` changes a job by an event, `advance` then decides what follows from the job's new state. Neither does anything
but add records and effects. Effects are starts, responses and events for watchers; the caller releases them once the
records of the same step are durable. Requests to the scheduler are sent at once. Replaying the records restores the
same jobs (replay.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.engine.jobs.record import (
    Event,
    Job,
    failure_text,
    inactive_since,
    inactive_user,
    merged,
    requeues,
    summary,
)
from headrace.engine.modules.job_manager import dependencies as deps
from headrace.engine.modules.job_manager.allocations import Allocations
from headrace.engine.modules.job_manager.deadlines import Deadlines
from headrace.engine.modules.job_manager.effects import (
    Annotated,
    Effect,
    Expiration,
    Free,
    Raised,
    Rearm,
    Request,
    Start,
)
from headrace.engine.modules.job_manager.policy import DEFAULT, JobPolicy
from headrace.engine.modules.job_manager.policy_steps import PolicySteps
from headrace.engine.modules.job_manager.queues import Queues
from headrace.engine.modules.job_manager.records import (
    EventsPosted,
    JobAdded,
    JobReaped,
    JobsPurged,
    QueuesChanged,
    Record,
)
from headrace.engine.modules.job_manager.waiting import Waiting
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.job_exception import EXEC, FATAL, NODE_FAILURE, TIMEOUT
from headrace.formats.spec.job_state import CLEANUP, DEPEND, FLAG_DEBUG, INACTIVE, PRIORITY, RUN, RUNNING, SCHED

if TYPE_CHECKING:
    from headrace.engine.jobs.exec_responses import ExecResponse, FinishData, ReleaseData

# Seconds: the smallest difference of two timestamps that a double represents in this century.
_TICK = 1.2e-6

# How often a job may be requeued by default.
MOST_REQUEUES = 100

# Time limits of ended jobs that may remain in `deadlines` before a clean-up removes them ahead of time.
_SPARE_LIMITS = 1000

_TIMEOUT_NOTE = "resource allocation expired"


class Core:
    """All jobs of an instance. `now` (seconds since the epoch) is set by the caller before each input."""

    def __init__(self, queues: Queues, owner: int) -> None:
        self.now = 0.0
        self.owner = owner
        # True if the jobs of other users are hidden from a user (`access.private-mode`).
        self.private = False
        self.queues = queues
        # Decides about priorities and limits of jobs; `policy_steps.replace` changes it.
        self.policy: JobPolicy = DEFAULT
        self.steps = PolicySteps(self)
        self.active: dict[int, Job] = {}
        self.inactive: dict[int, int] = {}
        self.zombies: dict[int, str] = {}
        self.max_jobid = 0
        self.running = 0
        # How often a job may be requeued.
        self.most_requeues = MOST_REQUEUES
        self.exec_ready = False
        self.records: list[Record] = []
        # Records that remove jobs. They are written last: a later record of the same job would restore it in a replay.
        self.removals: list[Record] = []
        self.effects: list[Effect] = []
        # Requests to the scheduler. They are not delayed: it stores nothing, so a crash loses them on both sides.
        self.requests: list[Request] = []
        # Jobs with new events, and the index of the first new event of each. The job with the latest event is last;
        # records and listings follow that order.
        self.dirty: dict[Job, int] = {}
        # The latest event of each name, of pending jobs, for sharing between equal events.
        self._events: dict[str, Event] = {}
        # The latest context of each event name whose contexts are mostly equal, for sharing (`_shared`).
        self._contexts: dict[str, dict[str, Any]] = {}
        self.finished: list[Job] = []
        self.waiting = Waiting(self)
        self.allocations = Allocations(self)
        # The service sets a steady clock. A core without a service uses the time of day.
        self.deadlines = Deadlines(lambda: self.now)

    def has_news(self) -> bool:
        """True if records were added since the last `take`."""
        return bool(self.dirty or self.records or self.removals)

    def user_of(self, id: int) -> int | None:
        """The user of a job; None for a job that does not exist."""
        job = self.active.get(id)
        if job is not None:
            return job.userid
        known = self.inactive.get(id)
        return None if known is None else inactive_user(known)

    def take(self) -> tuple[list[Record], list[Effect]]:
        """The records and effects since the last call."""
        records = self.records
        for job, first in self.dirty.items():
            records.append(EventsPosted(job.id, (first, job.events[first:])))
        records += self.removals
        effects, self.records, self.removals, self.effects = self.effects, [], [], []
        self.dirty.clear()
        return records, effects

    # -- events

    def post(self, job: Job, name: str, context: dict[str, Any] | None = None) -> None:
        """Post an event at the present time.

        Timestamps are unique within a job, because clients compare events and sort them by timestamp.
        """
        events, time = job.events, self.now
        self.dirty[job] = self.dirty.pop(job, len(events))
        was = job.state
        if events and time < events[-1][0] + _TICK:
            time = events[-1][0] + _TICK
        event: Event = (time, name, context)
        if was <= SCHED:
            # Jobs that are submitted together, or get other priorities together, have equal events. Sharing them saves
            # memory while the jobs wait. Memos of users may be equal and still differ, as 1 and true do.
            latest = self._events.get(name)
            if latest is not None and event == latest and (name != "memo" or context is latest[2]):
                event = latest
            else:
                self._events[name] = event
        job.apply(event)
        if job.state != was:
            self.count(job, was)
            if (was | job.state) >= SCHED and self.policy is not DEFAULT:
                self.steps.entered(job)

    def post_shared(self, job: Job, name: str, context: dict[str, Any]) -> None:
        """Post an event whose context is mostly equal to that of the latest event of its name."""
        self.post(job, name, self._shared(name, context))

    def _shared(self, name: str, context: dict[str, Any]) -> dict[str, Any]:
        """The latest context of this event name if it equals `context`, else `context`.

        Sharing saves memory: 100,000 waiting jobs keep their events in memory.
        """
        last = self._contexts.get(name)
        if context == last:
            return last
        self._contexts[name] = context
        return context

    def count(self, job: Job, was: int) -> None:
        """Update `running` after a change of a job's state."""
        self.running += bool(job.state & RUNNING) - bool(was & RUNNING)

    def advance(self, job: Job) -> None:
        """Take the steps that a job's state allows, until a step has to wait for a response or a dependency."""
        if job.state == DEPEND:
            if job.dependencies:
                return
            self.post(job, "depend")
        if job.state == PRIORITY:
            self.steps.prioritize(job)
        if job.state == SCHED:
            self.allocations.request(job)
        elif job.state == RUN:
            self._start(job)
        elif job.state == CLEANUP:
            self._clean_up(job)

    def requeues_left(self, job: Job) -> int | None:
        """How often a job may still be requeued after the loss of a node; None if it does not request it."""
        if not js.system(job.jobspec).get("requeue"):
            return None
        return max(0, self.most_requeues - requeues(job))

    def trace(self, job: Job, what: str) -> None:
        """Post a debug event if the job has the debug flag."""
        if job.flags & FLAG_DEBUG:
            self.post(job, f"debug.{what}")

    def _start(self, job: Job) -> None:
        if self.exec_ready and not job.start_sent and not job.prologs:
            job.start_sent = True
            self.trace(job, "start-request")
            self.effects.append(Start(job))

    def _clean_up(self, job: Job) -> None:
        if job.state == INACTIVE:
            return
        if job.alloc_pending:
            self.allocations.cancel(job)
            return
        if (job.start_sent and not job.released) or job.epilogs:
            return
        if job.has_resources:
            self.trace(job, "free-request")
            self.post(job, "free")
            self.steps.ended(job)
            successor = self.allocations.successor_of(job)
            if successor is None:
                self.requests.append(Free(job, job.r))
            else:
                self.allocations.inherit(job, successor)
        else:
            self.steps.ended(job)
        self.post(job, "clean")
        self._retire(job)

    def _retire(self, job: Job) -> None:
        """Keep the summary of a job that became inactive, and handle the jobs that depend on it."""
        del self.active[job.id]
        self.inactive[job.id] = summary(job)
        self.finished.append(job)
        if job.waitable:
            self.zombies[job.id] = failure_text(job)
        self.waiting.ended(job)

    # -- submission and dependencies

    def submit(self, id: int, userid: int, urgency: int, flags: int, jobspec: dict[str, Any]) -> str:
        """Add a job; returns why it is refused, or ""."""
        if id in self.active or id in self.inactive:
            return f"job {id} exists already"
        job = Job(id, jobspec)
        # The policy is asked before the submit event sets the user.
        job.userid = userid
        refusal = self.queues.refusal(job.queue) or self.policy.validate(job)
        if refusal:
            return refusal
        try:
            needs = [deps.parse(item) for item in js.dependencies(jobspec)]
            for need in needs:
                self.waiting.check(job, userid, need)
        except deps.DependencyError as exc:
            return str(exc)
        self.active[id] = job
        self.max_jobid = max(self.max_jobid, id)
        self.records.append(JobAdded(id, jobspec))
        context = {"userid": userid, "urgency": urgency, "flags": flags, "version": 1}
        self.post_shared(job, "submit", context)
        self.steps.submitted(job)
        for need in needs:
            if need.description not in (job.dependencies or ()):
                self.post(job, "dependency-add", {"description": need.description})
        self.post(job, "validate")
        self.steps.hold(job)
        if needs and job.state == DEPEND:
            self.waiting.join_singletons(job)
            self.waiting.watch(job)
        self.advance(job)
        return ""

    # -- time

    def deadline(self, time: float, job: Job, what: str) -> None:
        """Schedule the removal of a job's dependency `what` by expire()."""
        self.deadlines.begin(time, job.id, what)
        self.effects.append(Rearm())

    def next_deadline(self) -> float | None:
        """When expire() is due next, on the steady clock of the deadlines."""
        return self.deadlines.next(self.now)

    def expire(self) -> None:
        """Handle begin times that have been reached, and jobs that have exceeded their time limits."""
        for job_id, what in self.deadlines.begun(self.now):
            job = self.active.get(job_id)
            if job is not None:
                self.waiting.remove(job, what)
                self.advance(job)
        for job_id, expiration in self.deadlines.over():
            job = self.active.get(job_id)
            if job is not None and job.state == RUN and job.expiration == expiration:
                self.raise_fatal(job, TIMEOUT, _TIMEOUT_NOTE)

    def _limit(self, job: Job) -> None:
        """Set the deadline for the time limit of a running job; expire() ignores deadlines that have moved."""
        if job.expiration and job.started and job.state == RUN:
            self.deadlines.limit(job.expiration, job.id, self.now)
            if self.deadlines.limits > 2 * len(self.active) + _SPARE_LIMITS:
                self.deadlines.keep((active.id, active.expiration) for active in self.active.values())
            self.effects.append(Rearm())

    # -- the exec service (RFC 32)

    def exec_is_ready(self) -> None:
        """Start the jobs in RUN, since an exec service is ready."""
        self.exec_ready = True
        for job in list(self.active.values()):
            if job.state == RUN:
                self._start(job)

    def exec_gone(self, note: str) -> None:
        """Fail the running jobs, since the exec service is gone."""
        self.exec_ready = False
        for job in list(self.active.values()):
            if job.start_sent and not job.released:
                self.exec_failed(job.id, note)

    def exec_failed(self, id: int, note: str, service_gone: bool = True) -> None:
        """Handle a failed start request.

        An empty note means that no service received the request; the start is then repeated, at once unless
        `service_gone` (another service has registered meanwhile), or when a service is ready.
        """
        job = self.active.get(id)
        if job is None or not job.start_sent:
            return
        job.start_sent = False
        if note:
            self.raise_fatal(job, EXEC, note)
            return
        if service_gone:
            self.exec_ready = False
        self.advance(job)

    def exec_reply(self, reply: ExecResponse) -> None:
        """Handle a response to a start request."""
        job = self.active.get(reply["id"])
        if job is None or not job.start_sent:
            return
        match reply["type"]:
            case "start":
                self.post(job, "start")
                self._limit(job)
                self.waiting.started(job)
            case "finish":
                self._finished(job, reply["data"])
            case "release":
                self._released(job, reply["data"])
            case "exception":
                data = reply["data"]
                extra = {"wait_status": data["wait_status"]} if "wait_status" in data else {}
                self.raise_exception(job, data["type"], data["severity"], data.get("note") or "", self.owner, extra)

    def _finished(self, job: Job, data: FinishData) -> None:
        if "requeue" in data and job.state == RUN:
            # The job is about to be requeued, so this is not its final status.
            return
        if job.status is None:
            self.post(job, "finish", {"status": data["status"]})
        self.advance(job)

    def _released(self, job: Job, data: ReleaseData) -> None:
        if "requeue" in data and job.state == RUN:
            self._requeue(job)
            return
        self.post(job, "release", {"ranks": data["ranks"], "final": data["final"]})
        self.advance(job)

    def _requeue(self, job: Job) -> None:
        """Make a job pending again that lost a node and requests to be requeued."""
        job.start_sent = False
        self.requests.append(Free(job, job.r))
        self.post(job, "free")
        self.post(job, "requeue", {"reason": NODE_FAILURE})
        self.advance(job)

    def raise_fatal(self, job: Job, kind: str, note: str) -> None:
        """End a job by an exception in the name of the instance owner."""
        self.raise_exception(job, kind, FATAL, note, self.owner)

    # -- requests about one job

    def raise_exception(
        self, job: Job, kind: str, severity: int, note: str, userid: int, extra: dict[str, Any] | None = None
    ) -> None:
        """Raise an exception (RFC 21); severity FATAL ends the job. An inactive job gets no event."""
        if job.state == INACTIVE:
            return
        if severity == FATAL and job.state == SCHED:
            self.allocations.forget_annotations(job)
        context = {"type": kind, "severity": severity, "note": note, "userid": userid}
        self.post(job, "exception", {**context, **extra} if extra else self._shared("exception", context))
        self.effects.append(Raised(job.id, kind, severity))
        if severity == FATAL:
            self._clean_up(job)

    def set_urgency(self, job: Job, urgency: int, userid: int) -> int:
        """Set the urgency; returns the old one. The caller has checked that the job has no resources."""
        old = job.urgency
        self.post(job, "urgency", {"userid": userid, "urgency": urgency})
        self._reprioritize(job)
        return old

    def _reprioritize(self, job: Job) -> None:
        was = job.priority
        self.advance(job)
        if job.priority != was:
            self.allocations.reprioritize(job)

    def update(self, job: Job, updates: dict[str, Any]) -> None:
        """Set attributes of the jobspec. A pending job is sent to the scheduler again."""
        duration = updates.get("attributes.system.duration")
        self.post(job, "jobspec-update", updates)
        self.steps.updated(job)
        if job.state == RUN and duration is not None:
            self._expire_at(job, job.ends_after(duration))
            return
        if job.state == PRIORITY:
            if job.alloc_pending:
                # The scheduler has the old jobspec. A new request follows its response to the cancellation.
                self.allocations.cancel(job)
            self.advance(job)

    def instance_expires(self, expiration: float) -> None:
        """Set a new expiration of the instance, which applies to running jobs without their own duration."""
        self.allocations.successors.expiration = expiration
        for job in list(self.active.values()):
            if job.state == RUN and not js.duration(job.jobspec) and job.expiration != expiration:
                self._expire_at(job, expiration)

    def _expire_at(self, job: Job, expiration: float) -> None:
        self.post(job, "resource-update", {"expiration": expiration})
        self.effects.append(Expiration(job.id, expiration))
        self._limit(job)

    def memo(self, job: Job, memo: dict[str, Any], volatile: bool) -> None:
        """Attach a memo to a job. A volatile memo is sent to current watchers and not recorded."""
        if volatile:
            job.annotations = merged(job.annotations or {}, {"user": memo})
            self.effects.append(Annotated(job))
        else:
            self.post(job, "memo", memo)

    # -- queues

    def set_queues_started(self, names: Iterable[str], started: bool, reason: str | None, checkpoint: bool) -> None:
        self.queues.set_started(list(names), started, reason, checkpoint)
        self._queues_changed()
        for job in sorted(self.active.values(), key=lambda job: (-job.priority, job.id)):
            if job.state == SCHED:
                self.allocations.request(job)

    def set_queues_enabled(self, names: Iterable[str], enabled: bool, reason: str | None, checkpoint: bool) -> None:
        self.queues.set_enabled(list(names), enabled, reason, checkpoint)
        self._queues_changed()

    def _queues_changed(self) -> None:
        self.records.append(QueuesChanged(0, self.queues.save()))

    # -- the end of jobs

    def purge(self, ids: list[int]) -> list[int]:
        """Remove inactive jobs; returns those that existed."""
        purged = [id for id in ids if self.inactive.pop(id, None) is not None]
        for id in purged:
            self.zombies.pop(id, None)
        if purged:
            self.removals.append(JobsPurged(0, purged))
        return purged

    def purgeable(self, age: float, number: int) -> list[int]:
        """Inactive jobs older than `age` seconds, or beyond the newest `number`; a negative limit means none."""
        out = []
        surplus = len(self.inactive) - number if number >= 0 else 0
        for index, (id, known) in enumerate(self.inactive.items()):
            old = 0 <= age < self.now - inactive_since(known)
            if not (old or index < surplus):
                break
            out.append(id)
        return out

    def reap(self, id: int) -> str:
        """Remove a waitable job that was waited for from the zombies; returns why it failed, or ""."""
        why = self.zombies.pop(id)
        self.removals.append(JobReaped(id, why))
        return why
