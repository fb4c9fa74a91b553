"""The graph scheduler: RFC 27 towards the job manager, RFC 28 towards the resource module.

This file handles messages and time; the other files of this package do everything else. All messages of a loop turn are
scheduled in one pass at its end. A pass is limited to a few milliseconds and continued in later turns, so that it does
not block the broker's other work.
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.engine.modules.sched import options, queries, settings
from headrace.engine.modules.sched.guest_checks import MALFORMED, GuestChecks, malformed, of_request
from headrace.engine.modules.sched.hello import acquire_ended, hello
from headrace.engine.modules.sched.pool import Pool
from headrace.engine.modules.sched.r import in_use, summary
from headrace.engine.modules.sched.reasons import Reasons
from headrace.formats.spec.constraint import ConstraintError
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.sched import FEASIBILITY, SCHED, AllocResponse
from headrace.formats.spec.rset import ResourceSet
from headrace.sched.graph import GraphError
from headrace.sched.graph.formats.writers import graph_object, short_graph_object
from headrace.sched.graph.labels import labels_of
from headrace.sched.graph.request import JobRequest, RequestError
from headrace.sched.queueing.forecast import Place
from headrace.sched.queueing.queue import Refused, Started
from headrace.sched.queueing.reasons import FAR, Explainer, of_front, places
from headrace.sched.queueing.why import refusal

NAME = "sched-graph"

_NOWHERE = (
    "no requested resource is on a node with a rank, so tasks have no node to run on: request a node or a core, too"
)
# Seconds before pending jobs are annotated with reasons. In a busy system, the first jobs of a queue change faster than
# users can read.
_EXPLAIN_AFTER = 0.1
# The number of successors that are named to the job manager. New ones are named when half of them are used up.
_SUCCESSORS = 64


class _System(msgspec.Struct):
    duration: float | None = None
    queue: str | None = None
    constraints: msgspec.Raw = msgspec.Raw(b"null")


class _Attributes(msgspec.Struct):
    system: _System = msgspec.field(default_factory=_System)


class _Jobspec(msgspec.Struct):
    resources: msgspec.Raw
    attributes: _Attributes | None = None


class _Alloc(msgspec.Struct):
    """The parts of a `sched.alloc` request that are decoded.

    The rest is skipped, because environments are long and most requests are equal (`requests.py` caches them by text).
    """

    id: int
    priority: int
    jobspec: _Jobspec
    userid: int = 0
    t_submit: float = 0.0


_decode_alloc = msgspec.json.Decoder(_Alloc).decode


class _Job:
    """A pending job and its request. `resources` is the request as JSON; `msg` no longer has a body."""

    __slots__ = ("annotated", "duration", "id", "msg", "request", "resources")

    def __init__(self, id: int, msg: Message, request: JobRequest, resources: bytes, duration: float) -> None:
        self.id = id
        self.msg = msg
        self.request = request
        self.resources = resources
        self.duration = duration
        self.annotated = _NOTHING

    def share(self, other: _Job) -> None:
        """Share equal objects with another pending job."""
        self.msg.keep_way_back(other.msg)
        if self.request is other.request:
            self.resources = other.resources


# Flags of `flux module debug`, as in flux-core: deny every request; annotate each pending job with the number of jobs
# ahead of it; refuse to change the expiration of running jobs.
_FAIL_ALLOC, _COUNT_AHEAD, _REFUSE_TIME = 1, 2, 4
# Empty annotations. It can be shared, because dicts of annotations are replaced, never changed.
_NOTHING: dict[str, Any] = {}


class Variant(NamedTuple):
    """The configuration of the scheduler under one of its module names.

    `read(config, arguments)` returns the settings. `queue_depth` is the default of that option (0: no limit). With
    `names_policy`, the log message of a ready scheduler contains the match policy.
    """

    read: Callable[[Mapping[str, Any], Sequence[str]], settings.Settings]
    queue_depth: int
    names_policy: bool


def load(ctx: ModuleContext, args: list[str]) -> None:
    Scheduler(ctx, args, Variant(settings.read, 0, names_policy=True))


class Scheduler:
    """The module: requests, passes and responses."""

    def __init__(self, ctx: ModuleContext, args: list[str], variant: Variant) -> None:
        self.ctx = ctx
        self.variant = variant
        self.options, self.log = options.read(ctx, args, variant.queue_depth)
        self.settings = self._read(ctx.config)
        self.pool: Pool | None = None
        self.expiration = 0.0
        self.jobs: dict[int, _Job] = {}
        self.last: _Job | None = None
        ctx.watch_tables(lambda: (self.jobs, *(self.pool.tables() if self.pool is not None else ())))
        self.now = 0
        self.continuing = False
        self.explaining = False
        self.due: Any = None
        # The successors that were named to the job manager.
        self.named: deque[int] = deque()
        self.passes = 0
        self.explainer = Explainer()
        reasons = Reasons(ctx, lambda id, _place: self._reason(id), self._places)
        ctx.service(
            "sched",
            {
                "alloc": self._alloc,
                "cancel": self._cancel,
                "free": self._free,
                "inherit": self._inherit,
                "prioritize": self._prioritize,
                "expiration": self._expiration,
                "reasons": reasons.ask,
                "resource-status": self._resource_status,
            },
            open=("resource-status",),
            requests=SCHED,
        )
        check = GuestChecks(ctx, self._check, lambda: self.continuing, apart=True)
        ctx.service("feasibility", {"check": check}, open=("check",), requests=FEASIBILITY)
        # Scripts request statistics and set debug flags by the name of Flux's default scheduler.
        ctx.service("sched-simple", {})
        queries.register(
            ctx,
            queries.Host(self._pool, lambda: self.settings, self._time, self._changed, self._resource_status, check),
        )
        ctx.on_stats(self._stats)
        ctx.on_config(self._configure)
        ctx.call("resource.acquire", None, self._resources, streaming=True)

    def _stats(self) -> dict[str, Any]:
        running = len(self.pool.held) if self.pool is not None else 0
        return {"pending": len(self.jobs), "running": running, "passes": self.passes}

    def _read(self, config: dict[str, Any]) -> settings.Settings:
        try:
            found = self.variant.read(config, self.options.rest)
        except (settings.SettingsError, options.OptionError) as exc:
            raise RpcError(errno.EINVAL, str(exc)) from None
        for name in sorted(found.queues.keys() - config.get("queues", {}).keys()):
            text = f"{settings.QMANAGER}: there is no queue {name}: its settings have no effect"
            self.log(logging.WARNING, text)
        return found

    def _configure(self, config: dict[str, Any]) -> None:
        new = self._read(config)
        if new != self.settings:
            self.settings = new
            if self.pool is not None:
                self.pool.configure(new)
                self._changed()

    def _pool(self) -> Pool:
        if self.pool is None:
            raise RpcError(errno.EAGAIN, "resources are not known yet")
        return self.pool

    def _time(self) -> int:
        """The current time in whole seconds. It never decreases."""
        self.now = max(self.now, int(self.ctx.now()))
        return self.now

    # -- passes

    def _changed(self) -> None:
        """Request a pass at the end of this loop turn, since the pool has changed."""
        self.ctx.at_flush(self._schedule)

    def _schedule(self) -> None:
        pool = self.pool
        if pool is None:
            return
        self.passes += 1
        for decision in pool.schedule(self._time()):
            if isinstance(decision, Started):
                self._start(decision)
            elif isinstance(decision, Refused):
                self._refuse(decision)
        self._name_successors()
        if pool.unfinished:
            if not self.continuing:
                self.continuing = True
                self.ctx.call_soon(self._continue)
            return
        self._wake_for_reservations()
        if self.jobs and not self.explaining:
            self.explaining = True
            self.ctx.call_later(_EXPLAIN_AFTER, self._explain)

    def _continue(self) -> None:
        self.continuing = False
        self._schedule()

    def _name_successors(self) -> None:
        """Name the successors to the job manager, as far as they are certain."""
        pool = self._pool()
        ids = [] if pool.unfinished else pool.successors(_SUCCESSORS, self.now)
        named = list(self.named)
        if ids != named and (len(named) < _SUCCESSORS // 2 or ids[: len(named)] != named):
            self.named = deque(ids)
            self.ctx.call("job-manager.sched-successors", {"ids": ids, "expiration": self.expiration})

    def _wake_for_reservations(self) -> None:
        if self.due is not None:
            self.due.cancel()
            self.due = None
        start = self._pool().next_start()
        if start is not None and start < self.now + FAR:
            self.due = self.ctx.call_later(start - self.ctx.now(), self._schedule)

    def _start(self, decision: Started) -> None:
        pool, job = self._pool(), self.jobs.pop(decision.jobid)
        self.ctx.removed()
        now = self.ctx.now()
        expiration = now + job.duration if job.duration else self.expiration
        if self.expiration:
            expiration = min(expiration, self.expiration)
        shares = pool.started(job.id, decision.allocation, expiration)
        if not shares:
            pool.free(job.id, self._time())
            self.ctx.respond(job.msg, {"id": job.id, "type": AllocResponse.DENY, "note": _NOWHERE})
            self._changed()
            return
        r = pool.nodes.write(shares, now, expiration)
        if self.settings.match_format != "rv1_nosched":
            write = short_graph_object if self.settings.match_format == "rv1_shorthand" else graph_object
            selection = decision.allocation.selection
            selection.labels = labels_of(selection, job.request)
            r["scheduling"] = write(pool.graph, decision.allocation)
        sched: dict[str, Any] = dict.fromkeys(job.annotated)
        sched["resource_summary"] = summary(r)
        self.ctx.respond(
            job.msg, {"id": job.id, "type": AllocResponse.SUCCESS, "annotations": {"sched": sched}, "R": r}
        )

    def _refuse(self, decision: Refused) -> None:
        pool, job = self._pool(), self.jobs.pop(decision.jobid)
        pool.forget(job.id)
        jobspec = {"resources": msgspec.json.decode(job.resources)}
        note = refusal(pool.scheduler, jobspec, job.request, decision.failure)
        self.ctx.respond(job.msg, {"id": job.id, "type": AllocResponse.DENY, "note": note})

    # -- changes of resources (RFC 28)

    def _resources(self, reply: Message) -> None:
        if reply.errnum:
            acquire_ended(self.ctx, reply, self.pool is not None)
            return
        body = reply.obj
        if self.pool is None:
            begin = self.ctx.monotonic()
            try:
                self.pool = self._load(body["resources"])
            except ValueError as exc:
                self.log(logging.ERROR, f"resource.acquire: {exc}: nothing can be scheduled")
                return
            self.pool.load_time = self.ctx.monotonic() - begin
            self.expiration = self.pool.rset.expiration
            self._update(body)
            hello(self.ctx, self.options, self.log, self._recover, self._resource_summary)
        else:
            self._update(body)
            self._changed()

    def _load(self, r: dict[str, Any]) -> Pool:
        """The pool of the graph in R. Without a valid graph, of R's nodes, cores and GPUs.

        Raises GraphError or RsetError.
        """
        try:
            return Pool(r, self.settings)
        except GraphError as exc:
            if "scheduling" not in r:
                raise
            self.log(logging.WARNING, f"the graph in R cannot be used, only its nodes, cores and GPUs: {exc}")
            return Pool({key: value for key, value in r.items() if key != "scheduling"}, self.settings)

    def _update(self, body: dict[str, Any]) -> None:
        pool = self._pool()
        if "shrink" in body:
            pool.remove(Idset.parse(body["shrink"]).bits)
        if "grow" in body:
            try:
                pool.add(body["grow"])
            except ValueError as exc:
                self.log(logging.ERROR, f"resource.acquire: {exc}: nothing is scheduled on the added resources")
        if "down" in body:
            pool.set_down(Idset.parse(body["down"]).bits)
        if "up" in body:
            pool.set_up(Idset.parse(body["up"]).bits)
        if "expiration" in body:
            self.expiration = float(body["expiration"])
            # In instances within jobs, scripts look for this log line of Flux's default scheduler.
            self.log(logging.INFO, f"as sched-simple: resource expiration updated to {self.expiration:.2f}")
        if "property-add" in body or "property-remove" in body:
            add, remove = (
                {name: Idset.parse(ranks).bits for name, ranks in body.get(key, {}).items()}
                for key in ("property-add", "property-remove")
            )
            pool.change_properties(add, remove)

    def _recover(self, job: int, r: dict[str, Any], freed: int) -> None:
        self._pool().recover(job, r, freed, self._time())

    def _resource_summary(self) -> str:
        policy = f"match-policy={self.settings.match_policy.name} " if self.variant.names_policy else ""
        return f"{policy}Rv1 {summary(self._pool().rset.to_obj())}"

    # -- requests of the job manager (RFC 27)

    def _alloc(self, msg: Message) -> None:
        pool = self._pool()
        body = _decode_alloc((msg.payload or b"").rstrip(b"\0"))
        if self.ctx.debug & _FAIL_ALLOC:
            self.ctx.respond(msg, {"id": body.id, "type": AllocResponse.DENY, "note": "DEBUG_FAIL_ALLOC"})
            return
        system = body.jobspec.attributes.system if body.jobspec.attributes is not None else _System()
        duration = system.duration or 0
        resources = bytes(body.jobspec.resources)
        try:
            request = pool.requests.of_parts(resources, duration, bytes(system.constraints))
        except (RequestError, ConstraintError) as exc:
            self.ctx.respond(msg, {"id": body.id, "type": AllocResponse.DENY, "note": str(exc)})
            return
        job = self.jobs[body.id] = _Job(body.id, msg, request, resources, duration)
        job.share(self.last or job)
        self.last = job
        pool.submit(body.id, request, body.priority, system.queue or "", body.userid, body.t_submit)
        self._changed()

    def _cancel(self, msg: Message) -> None:
        id = msg.obj["id"]
        job = self.jobs.pop(id, None)
        if job is not None:
            self._pool().cancel(id)
            self.ctx.removed()
            self.ctx.respond(job.msg, {"id": id, "type": AllocResponse.CANCEL})
            self._changed()

    def _prioritize(self, msg: Message) -> None:
        self._pool().reprioritize(msg.obj["jobs"])
        # The job manager drops its list of successors when it sends this request.
        self.named.clear()
        self._changed()

    def _free(self, msg: Message) -> Any:
        body, pool = msg.obj, self._pool()
        id = body["id"]
        if body.get("final", True) or "R" not in body:
            known = pool.free(id, self._time())
        else:
            known = pool.release(id, ResourceSet.from_obj(body["R"]).ranks.bits, self._time())
        if known:
            self._changed()
        else:
            self.log(logging.ERROR, f"sched.free: job {id} holds no resources")
        return EMPTY

    def _inherit(self, msg: Message) -> Any:
        """Handle jobs that took over the resources of others.

        A successor may be missing in `named` if the job manager did not yet have the latest list.
        """
        pool, now = self._pool(), self._time()
        for id, successor, expiration in msg.obj["jobs"]:
            self.jobs.pop(successor, None)
            if successor in self.named:
                self.named.remove(successor)
            if not pool.inherit(id, successor, now, expiration):
                self.log(logging.ERROR, f"sched.inherit: job {id} holds no resources")
        self._changed()
        return EMPTY

    def _expiration(self, msg: Message) -> Any:
        id, expiration = msg.obj["id"], float(msg.obj["expiration"])
        if id not in self._pool().held:
            raise RpcError(errno.ENOENT, f"job {id} holds no resources")
        if expiration < 0:
            raise RpcError(errno.EINVAL, "expiration must not be negative")
        if self.ctx.debug & _REFUSE_TIME:
            raise RpcError(errno.EINVAL, "DEBUG_REFUSE_EXPIRATION")
        if self.expiration and expiration > self.expiration:
            raise RpcError(errno.EINVAL, "expiration is after that of the instance itself")

        self._pool().set_expiration(id, expiration)
        self._changed()
        return EMPTY

    def _check(self, msg: Message) -> Any:
        jobspec = of_request(msg)
        pool = self._pool()
        try:
            request = pool.requests.uncached(jobspec)
            outcome = pool.check(request)
        except (RequestError, ConstraintError) as exc:
            raise RpcError(errno.EINVAL, str(exc)) from None
        except MALFORMED as exc:
            raise malformed(exc) from None
        if outcome.unsatisfiable:
            raise RpcError(errno.EINVAL, refusal(pool.scheduler, jobspec, request, outcome.failure))
        return EMPTY

    def _resource_status(self, msg: Message) -> dict[str, Any]:
        pool = self._pool()
        rset = pool.rset
        down = rset.select_ranks(Idset.from_bits(pool.nodes.all & ~pool.up))
        allocated = in_use(rset, pool.allocated())
        return {
            name: plain.replace(scheduling=None).to_obj()
            for name, plain in (("all", rset), ("down", down), ("allocated", allocated))
        }

    # -- why jobs wait

    def _explain(self) -> None:
        self.explaining = False
        pool, now = self._pool(), self._time()
        if self.ctx.debug & _COUNT_AHEAD:
            entries = [entry for queue in pool.queues.values() for entry in queue.pending.items()]
            entries.sort(key=lambda entry: (entry[1].position, entry[0]))
            for ahead, (id, _) in enumerate(entries):
                self._annotate(id, {"reason_pending": "insufficient resources", "jobs_ahead": ahead})
            return
        for queue in pool.queues.values():
            for id, notes in of_front(queue, now):
                self._annotate(id, notes)

    def _annotate(self, id: int, notes: dict[str, Any]) -> None:
        job = self.jobs[id]
        if notes != job.annotated:
            change = {**dict.fromkeys(job.annotated), **notes}
            job.annotated = notes
            self.ctx.respond(job.msg, {"id": id, "type": AllocResponse.ANNOTATE, "annotations": {"sched": change}})

    def _reason(self, id: int) -> dict[str, Any] | None:
        """The reason of a pending job for `sched.reasons`; None for a job that is not pending here."""
        pool, now = self._pool(), self._time()
        name = pool.where.get(id)
        if name is not None and self.ctx.debug & _COUNT_AHEAD:
            # With this debug flag, `_explain` sets the annotation.
            return {}
        return None if name is None else self.explainer.explain(pool.queues[name], id, now, (self.passes, now))

    def _places(self) -> Iterator[tuple[int, Place] | None]:
        pool = self._pool()
        return places(pool.scheduler, pool.queues.values(), self._time())
