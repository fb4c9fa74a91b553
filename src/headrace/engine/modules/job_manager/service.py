"""The job manager: the service around the pure core (core.py). It owns the job store and its journal.

A request is checked here, passed to the core, and answered when its changes are durable (pipeline.py). Everything that
needs neither messages nor a clock is in the core.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import traceback
from collections.abc import Callable
from typing import Any

import msgspec

from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.engine.broker.module.privacy import is_private
from headrace.engine.broker.module.suspended import Resumption
from headrace.engine.broker.state.journal import Journal
from headrace.engine.jobs.pack import Submission, event_line, events_of
from headrace.engine.jobs.policy import Policy, PolicyConfigError
from headrace.engine.jobs.record import Job
from headrace.engine.jobs.storable import TOO_DEEP, is_deep
from headrace.engine.modules.job_manager import restore
from headrace.engine.modules.job_manager.admin import Admin
from headrace.engine.modules.job_manager.core import MOST_REQUEUES, Core
from headrace.engine.modules.job_manager.effects import (
    Alloc,
    Annotated,
    Answer,
    Cancel,
    Durable,
    Effect,
    Expiration,
    Free,
    Inherit,
    Prioritize,
    Purged,
    Raised,
    Rearm,
    Request,
    Start,
)
from headrace.engine.modules.job_manager.guest_jobs import GuestJobs
from headrace.engine.modules.job_manager.info import JobInfo
from headrace.engine.modules.job_manager.logs import LostOutput
from headrace.engine.modules.job_manager.peers import Exec, Scheduler
from headrace.engine.modules.job_manager.pipeline import Batch, Pipeline
from headrace.engine.modules.job_manager.plugins import Plugins
from headrace.engine.modules.job_manager.queues import Queues
from headrace.engine.modules.job_manager.reasons import Reasons
from headrace.engine.modules.job_manager.records import LogAppended
from headrace.engine.modules.job_manager.replay import restart
from headrace.engine.modules.job_manager.requests import Requests
from headrace.engine.modules.job_manager.store import GUEST_LOGS, LOGS, MAIN_LOG, Store
from headrace.engine.modules.job_manager.watch import EventsJournal
from headrace.formats.config import guests
from headrace.formats.spec import eventlog, jobid
from headrace.formats.spec.job_exception import FATAL
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.jobs import JOB_EXISTS, JOB_MANAGER, JOB_STORE

NAME = "job-manager"

# First requests of modules that are loaded while this module is suspended. Read-only requests are served, hellos wait
# until this module is resumed.
_SERVED_WHILE_SUSPENDED = frozenset((f"{NAME}.events-journal", f"{NAME}.getinfo"))
_HELLOS = frozenset((f"{NAME}.sched-hello", f"{NAME}.exec-hello"))
# The longest sleep until a deadline, in seconds. It is limited because clocks are set and machines are suspended.
_LONGEST_SLEEP = 60.0


def load(ctx: ModuleContext, args: list[str]) -> None:
    only(ctx, args)
    _Manager(ctx)


class _Manager:
    def __init__(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.policy = _policy(ctx.config)
        self.core = Core(Queues(self.policy.names), ctx.owner)
        self.core.most_requeues = _most_requeues(ctx.config)
        self.core.private = is_private(ctx.config)
        statedir = ctx.attrs.get("statedir", "")
        folder = statedir or ctx.attrs.get("rundir", "") or os.environ.get("TMPDIR") or "/tmp"
        self.lost_output = LostOutput(ctx)
        # Instances may share a run directory.
        output = "output" if statedir else f"output-{ctx.attrs.get('broker.pid', '')}"
        self.store = Store(folder, self.lost_output.add, output)
        self.core.deadlines.steady = ctx.monotonic
        self.guest_jobs = GuestJobs(ctx.owner, lambda name: guests.limit(ctx.config, name))
        self.journal = Journal(os.path.join(statedir, "jobs")) if statedir else None
        self.pipeline = Pipeline(ctx, self.core, self.store, self.journal, self._request, self._release, self._start)
        if self.journal is not None:
            self.core.now = ctx.now()
            self.pipeline.recover()
        touch = self.pipeline.touch
        self.sched = Scheduler(ctx, self.core, touch)
        self.exec = Exec(ctx, self.core, touch)
        self.events = EventsJournal(ctx, self.store)
        self.info = JobInfo(ctx, self.store)
        self.requests = Requests(ctx, self.core, self.store, self.exec, self.policy, touch)
        self.admin = Admin(ctx, self.core, self.store, touch)
        self.plugins = Plugins(ctx, self.core, touch)
        self.plugins.configure(ctx.config)
        # Jobs of an archive that is not completely restored yet.
        self._restored: list[Job] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        store = self.store
        ctx.watch_tables(lambda: (store.active, store.submissions, store.places, self.sched.tags))
        self._serve()
        ctx.subscribe("resource-expiration", self._instance_expires)
        ctx.on_disconnect(self._disconnected)
        ctx.on_config(self._configure)
        ctx.on_stats(self._stats)
        ctx.on_unload(self._unload)
        ctx.resumption = Resumption(self._resume, self._holds, _HELLOS)
        if self.journal is not None:
            restart(self.core)
            touch()
            for job in self.store.active.values():
                self._count(job)

    def _serve(self) -> None:
        requests, admin = self.requests, self.admin
        open_methods: dict[str, Callable[[Message], Any]] = {
            "list": admin.list,
            "raise": self._if_room(requests.raise_),
            "raiseall": requests.raiseall,
            "kill": requests.kill,
            "killall": requests.killall,
            "urgency": self._if_room(requests.urgency),
            "memo": self._if_room(requests.memo),
            "update": self._if_room(requests.update),
            "getattr": requests.getattr,
            "getinfo": admin.getinfo,
            "queue-list": admin.queue_list,
            "queue-status": admin.queue_status,
            "alloc-query": admin.alloc_query,
            "resource-status": admin.resource_status,
            "history.get": admin.history,
        }
        owner_methods = {
            "wait": requests.wait,
            "submit": self._submit,
            "restore": self._restore,
            "queue-enable": admin.queue_enable,
            "queue-start": admin.queue_start,
            "drain": admin.drain,
            "idle": admin.idle,
            "purge": admin.purge,
            "purge-id": admin.purge_id,
            "events-journal": self.events.open,
            "sched-hello": self.sched.hello,
            "sched-ready": self.sched.ready,
            "sched-successors": self.sched.successors,
            "reasons": Reasons(self.ctx, self.core).ask,
            "exec-hello": self.exec.hello,
            "jobtap": self.plugins.jobtap,
            "jobtap-query": self.plugins.query,
            **self.plugins.services(),
        }
        self.ctx.service(NAME, {**open_methods, **owner_methods}, open=open_methods, requests=JOB_MANAGER)
        methods = {"lookup": self._lookup, "append": self._append, "append-text": self._append_text}
        self.ctx.service("job-store", methods, requests=JOB_STORE)

    def _if_room(self, handler: Callable[[Message], Any]) -> Callable[[Message], Any]:
        """Wrap a handler of requests that end no job, to refuse them when only the journal's reserve is left."""

        def handle(msg: Message) -> Any:
            if (msg.obj or {}).get("severity") == FATAL:
                return handler(msg)
            size = len(msg.payload or b"")
            full = self.pipeline.refusal(0, size)
            if full is not None:
                raise RpcError(*full)
            try:
                return handler(msg)
            except RpcError:
                self.pipeline.take_back(size)
                raise

        return handle

    # -- submission

    def _submit(self, msg: Message) -> None:
        """`submit {jobs}` from ingest: {errors: [[id, text, errno]]}.

        Each job is {id, userid, urgency, flags, jobspec, submission: [J's header, payload, signature, updates]}.
        """
        core = self.core
        core.now = self.ctx.now()
        errors: list[list[Any]] = []
        jobs = msg.obj["jobs"]
        full = self.pipeline.refusal(len(jobs), sum(map(_submission_size, jobs)))
        if full is not None:
            self.ctx.respond(msg, {"errors": [[body["id"], full[1], full[0]] for body in jobs]})
            return
        for body in jobs:
            id = body["id"]
            refusal = self.guest_jobs.refusal(body["userid"], _submission_size(body))
            if refusal:
                errors.append([id, refusal, errno.EAGAIN])
                continue
            head, text, tail, updates = body["submission"]
            first, second = self.store.texts.encode(text)
            submission = Submission(head, first, tail, updates, second)
            refusal = core.submit(id, body["userid"], body["urgency"], body["flags"], body["jobspec"])
            if refusal:
                errors.append([id, refusal, errno.EINVAL])
            else:
                job = core.active.get(id)
                # The job has already ended if its dependency failed meanwhile.
                job = job or next(done for done in core.finished if done.id == id)
                self.store.add(job, submission)
                self._count(job, len(text))
        core.effects.append(Answer(msg, {"errors": errors}))
        self.pipeline.touch()

    def _count(self, job: Job, size: int = 0) -> None:
        """Count an active job if it is a guest's, and move its jobspec to disk."""
        if job.userid == self.ctx.owner:
            return
        self.store.put_away(job)
        self.guest_jobs.begin(job.id, job.userid, size or len(self.store.text(self.store.submission(job.id))))

    def _finish(self, job: Job) -> None:
        self.guest_jobs.end(job.id, job.userid)
        self.store.finish(job)

    def _restore(self, msg: Message) -> None:
        """`restore {jobs: [{id, data: {KEY: text}}], final}`: {errors: [[id, text]]}.

        Adds jobs of another instance (restore.py). An archive may take several requests; `final` is true in the last
        one. Then its active jobs continue.
        """
        core = self.core
        core.now = self.ctx.now()
        full = self.pipeline.refusal(len(msg.obj["jobs"]), len(msg.payload or b""))
        if full is not None:
            raise RpcError(*full)
        errors: list[list[Any]] = []
        for body in msg.obj["jobs"]:
            try:
                job = restore.add(core, self.store, body["id"], body["data"])
            except restore.RestoreError as exc:
                errors.append([body["id"], str(exc)])
            else:
                if job is None:
                    errors.append([body["id"], JOB_EXISTS])
                else:
                    self._restored.append(job)
                    self._count(job)
        if msg.obj["final"]:
            jobs, self._restored = self._restored, []
            restore.resume(core, jobs)
        core.effects.append(Answer(msg, {"errors": errors}))
        self.pipeline.touch()

    # -- effects of the core

    def _request(self, requests: list[Request]) -> None:
        sched = self.sched
        for request in requests:
            match request:
                case Alloc(job):
                    sched.alloc(job)
                case Free(job, r):
                    sched.free(job, r)
                case Inherit(job, successor):
                    sched.inherit(job, successor)
                case Cancel(id):
                    sched.cancel(id)
                case Prioritize(priorities):
                    sched.prioritize(priorities)

    def _release(self, batch: Batch) -> None:
        """Publish the events of a batch and carry out its effects.

        A batch is released only once, so an error in one part must not prevent the others.
        """
        for job, first, events in batch.news:
            job.shown = first + len(events)
        safely = self._safely
        safely(self.info.publish, batch.news)
        safely(self.events.publish, batch.news)
        for job in batch.finished:
            safely(self._finish, job)
        for effect in batch.effects:
            safely(self._take_effect, effect)
        # Called even if no job ended, because a requeued job is no longer running.
        safely(self.admin.jobs_ended)
        if batch.finished:
            safely(self.requests.jobs_ended, batch.finished)
            self.ctx.removed(len(batch.finished))

    def _safely(self, part: Callable[..., None], *args: Any) -> None:
        try:
            part(*args)
        except Exception:
            self.ctx.log(logging.ERROR, f"{part}: {traceback.format_exc()}")

    def _start(self, job: Job) -> None:
        self.exec.start(job)

    def _take_effect(self, effect: Effect) -> None:
        match effect:
            case Answer(msg, body):
                self.ctx.respond(msg, body)
            case Start(job):
                self._start(job)
            case Rearm():
                self._arm()
            case Raised(id, type, severity):
                self.ctx.publish("job-exception", {"id": id, "type": type, "severity": severity}, private=True)
            case Expiration(id, time):
                self.sched.expiration(id, time)
                self.exec.expiration(id, time)
            case Annotated(job):
                self.events.annotations(job.id, self.ctx.now(), job.annotations)
            case Durable(done):
                if not done.done():
                    done.set_result(None)
            case Purged(ids):
                self.store.forget(ids)
                self.ctx.removed(len(ids))
                self.ctx.publish("job-purge-inactive", {"jobs": ids}, private=True)

    # -- time

    def _arm(self) -> None:
        # Begin times are compared with `now`, which may be old: it was set at the core's last input.
        self.core.now = self.ctx.now()
        due = self.core.next_deadline()
        if due is None or (self._timer is not None and self._timer_due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self.ctx.call_later(min(due - self.ctx.monotonic(), _LONGEST_SLEEP), self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self.ctx.suspended is not None:
            return
        self.core.now = self.ctx.now()
        try:
            self.core.expire()
        finally:
            # An error in one job's handling must not affect the time limits of the others.
            self.core.effects.append(Rearm())
            self.pipeline.touch()

    def _instance_expires(self, event: Message) -> None:
        self.core.now = self.ctx.now()
        self.core.instance_expires(event.obj["expiration"])
        self.pipeline.touch()

    # -- the job store's own service

    def _lookup(self, msg: Message) -> dict[str, Any]:
        """`job-store.lookup {path}`: {"val": text} or {"dir": names} (docs/dev/interfaces.md)."""
        path: str = msg.obj["path"]
        parts = path.split(".") if path else []
        store = self.store
        ids = [*store.places, *store.active] if len(parts) < 4 else []
        if len(parts) < 4:
            depth = len(parts)
            names = {
                name[depth] for name in (jobid.encode(id, "dothex").split(".") for id in ids) if name[:depth] == parts
            }
            if not names and parts:
                raise RpcError(errno.ENOENT)
            return {"dir": sorted(names)}
        id, key = _split(path)
        if id is None or id not in store:
            raise RpcError(errno.ENOENT)
        return _entry(store, id, key)

    def _append(self, msg: Message) -> None:
        """`job-store.append {logs: [[id, log, entries]]}`. Entries are [time, name, context]."""
        for id, name, entries in msg.obj["logs"]:
            if id in self.store.active and name in GUEST_LOGS:
                self.store.append(id, name, b"".join(map(event_line, entries)))
                self.info.appended(id)

    def _append_text(self, msg: Message) -> None:
        """`job-store.append-text {logs: [[path, text]]}`: {unknown: [path]}.

        Appends events of a user to logs of any jobs, as a KVS append does. The response lists the paths that are not
        logs of the store; it is sent when the other texts are durable.

        Raises RpcError(EINVAL) for a text that does not consist of complete events, RpcError(ENOSPC).
        """
        known: list[tuple[int, str, bytes]] = []
        not_logs = []
        for path, text in msg.obj["logs"]:
            id, key = _split(path)
            if id is None or id not in self.store or key not in LOGS:
                not_logs.append(path)
                continue
            known.append((id, key, _events(key, text)))
        full = self.pipeline.refusal(0, len(msg.payload or b""))
        if full is not None:
            raise RpcError(*full)
        for id, key, lines in known:
            try:
                size = self.store.append_to_any(id, key, lines)
            except OSError as exc:
                raise RpcError(exc.errno or errno.EIO, exc.strerror or "") from None
            self.core.records.append(LogAppended(id, (key, size, lines)))
            if key == MAIN_LOG:
                self.info.appended_to_main(id, lines)
            else:
                self.info.appended(id)
        self.core.effects.append(Answer(msg, {"unknown": not_logs}))
        self.pipeline.touch()

    # -- configuration and unload

    def _disconnected(self, sender: str) -> None:
        self.sched.disconnected(sender)
        self.exec.disconnected(sender)
        self.requests.disconnected(sender)
        self.admin.disconnected(sender)

    def _configure(self, config: dict[str, Any]) -> None:
        policy, most_requeues = _policy(config), _most_requeues(config)
        self.core.most_requeues = most_requeues
        self.core.private = is_private(config)
        self.policy = self.requests.policy = policy
        self.core.queues.configure(policy.names)
        self.admin.configure(config)

    def _stats(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "journal": self.events.stats(),
            "active_jobs": len(self.core.active),
            "inactive_jobs": len(self.core.inactive),
            "max_jobid": self.core.max_jobid,
            "housekeeping": {"running": {}, "config": {"release-after": -1.0, "command": ""}},
        }
        durable = self.pipeline.stats()
        if durable:
            out["durable"] = durable
        return out

    def _holds(self, topic: str) -> bool:
        """True for messages to the part that is suspended.

        The job store and job-info are still served, as Flux's KVS would be.
        """
        ours = (NAME + ".", "sched.", "resource-", self.exec.service + ".")
        return topic not in _SERVED_WHILE_SUSPENDED and topic.startswith(ours)

    def _resume(self, args: list[str]) -> None:
        only(self.ctx, args)
        self._configure(self.ctx.config)
        self.plugins.reset()
        self._arm()

    async def _unload(self) -> None:
        await self.pipeline.close()
        self.lost_output.close()
        self.store.spill.close()
        if self.journal is None:
            # Without a journal, the jobs are forgotten, so their output can be deleted.
            shutil.rmtree(self.store.output, ignore_errors=True)


def _events(key: str, text: str) -> bytes:
    """The text to append to a log, encoded. Raises RpcError(EINVAL).

    It must consist of complete events (RFC 18), since readers get a log by lines.
    """
    try:
        eventlog.decode(text)
        if text and not text.endswith("\n"):
            raise eventlog.EventlogError("the last line has no newline")
        if any(is_deep(context) for _, _, context in events_of(text)):
            raise eventlog.EventlogError(TOO_DEEP)
        return text.encode()
    except (eventlog.EventlogError, msgspec.DecodeError, RecursionError, UnicodeEncodeError) as exc:
        raise RpcError(errno.EINVAL, f"{key}: only events can be appended to a log of a job: {exc}") from None


def _split(path: str) -> tuple[int | None, str]:
    """Split a path of the job store into job id and key. The id is None if the path is not a job's."""
    parts = path.split(".")
    try:
        return jobid.parse(".".join(parts[:4])), ".".join(parts[4:])
    except ValueError:
        return None, ""


def _entry(store: Store, id: int, key: str) -> dict[str, Any]:
    keys = store.keys(id)
    if key in keys:
        try:
            return {"val": store.lookup(id, key)}
        except (KeyError, FileNotFoundError):
            raise RpcError(errno.ENOENT) from None
        except OSError as exc:
            raise RpcError(exc.errno or errno.EIO, exc.strerror or "") from None
    prefix = f"{key}." if key else ""
    names = sorted({name[len(prefix) :].partition(".")[0] for name in keys if name.startswith(prefix)})
    if not names:
        raise RpcError(errno.ENOENT)
    return {"dir": names}


def _submission_size(body: dict[str, Any]) -> int:
    """Size of one job of `submit` in bytes. Raises RpcError(EPROTO) for an invalid submission.

    Only ingest in the same broker can send a valid submission: its payload is not JSON, so it can contain bytes.
    """
    parts = body["submission"]
    if len(parts) == 4:
        head, text, tail, _updates = parts
        if isinstance(head, bytes) and isinstance(text, bytes) and isinstance(tail, bytes):
            return len(head) + len(text) + len(tail)
    expected = "jobs: each submission must be [header, payload, signature, updates], the first three as bytes"
    raise RpcError(errno.EPROTO, f"job-manager.submit: {expected}")


def _most_requeues(config: dict[str, Any]) -> int:
    """`most-requeues` in the table [headrace] of a configuration. Raises RpcError."""
    table = config.get("headrace", {})
    most = table.get("most-requeues", MOST_REQUEUES) if isinstance(table, dict) else MOST_REQUEUES
    if isinstance(most, int) and not isinstance(most, bool) and most >= 0:
        return most
    raise RpcError(errno.EINVAL, f"headrace.most-requeues: {most}: must be a whole number, 0 or more")


def _policy(config: dict[str, Any]) -> Policy:
    try:
        return Policy(config)
    except PolicyConfigError as exc:
        raise RpcError(errno.EINVAL, str(exc)) from None
