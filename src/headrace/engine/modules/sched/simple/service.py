"""The first-come-first-served scheduler: RFC 27 towards the job manager, RFC 28 towards the resource module.

Jobs are tried in priority order, each queue on its own, up to the first that does not fit; it blocks its queue alone.
Whether a request can be satisfied at all is checked only if it is first and nothing is free for it, so that the common
case pays for allocation alone. A first job that remains pending for a moment is annotated with its reason.
"""

from __future__ import annotations

import errno
import heapq
import logging
import math
from collections.abc import Generator, Hashable, Iterable, Iterator
from typing import Any

import msgspec

from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.engine.modules.sched.common import options
from headrace.engine.modules.sched.common.guest_checks import GuestChecks
from headrace.engine.modules.sched.common.hello import acquire_ended, hello
from headrace.engine.modules.sched.common.jobspec import MALFORMED, malformed, of_request
from headrace.engine.modules.sched.common.kept import Kept
from headrace.engine.modules.sched.common.r import Shares, each, in_use, shares_of_r, summary
from headrace.engine.modules.sched.common.reasons import Reasons
from headrace.engine.modules.sched.simple.pool import ALLOC_MODES, Pool, Request, Unsatisfiable
from headrace.formats.spec import jobspec as js
from headrace.formats.spec.constraint import ConstraintError
from headrace.formats.spec.constraint_why import excluding
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.sched import ALLOC, FEASIBILITY, SCHED, AllocResponse
from headrace.formats.spec.rset import ResourceSet
from headrace.sched.queueing.forecast import STEP, Place, Supply, Waiting, forecast, text

NAME = "sched-simple"

# The number of requests that the job manager sends at a time by default, as with flux-core's scheduler.
_QUEUE_DEPTH = 8
# Seconds before a first job gets its reason; in a busy system, first jobs change faster than users can read.
_EXPLAIN_AFTER = 0.1
# The number of running jobs that an estimate takes into account, which limits its time.
_ESTIMATE_JOBS = 256
# The number of running jobs that are counted in one step of an estimate.
_PER_STEP = 200
# Flags of `flux module debug`, as in flux-core: deny every request; annotate each pending job with the number of jobs
# before it; refuse to change the time of running jobs.
_FAIL_ALLOC, _COUNT_AHEAD, _REFUSE_TIME = 1, 2, 4


class _Job:
    """A pending job and its request."""

    __slots__ = ("annotated", "duration", "id", "mask", "msg", "priority", "queue", "request")

    def __init__(self, msg: Message, request: Request, mask: int) -> None:
        body = msg.obj
        system = js.system(body["jobspec"])
        self.msg = msg
        self.id: int = body["id"]
        self.priority: int = body["priority"]
        self.request = request
        self.mask = mask
        self.queue: str = system.get("queue") or ""
        self.duration = float(system.get("duration") or 0.0)
        self.annotated: dict[str, Any] = {}


class _Held:
    """The resources of a running job and its end (0: no limit)."""

    __slots__ = ("expiration", "shares")

    def __init__(self, shares: Shares, expiration: float) -> None:
        self.shares = shares
        self.expiration = expiration


def load(ctx: ModuleContext, args: list[str]) -> None:
    _Scheduler(ctx, args)


def request_of(jobspec: dict[str, Any]) -> Request:
    """The allocator's request for a jobspec; raises JobspecError if it is not in slots."""
    wanted = js.slot_request(jobspec)
    nslots = wanted.nslots // wanted.nnodes if wanted.nnodes else wanted.nslots
    return Request(wanted.nnodes, nslots, wanted.cores, wanted.gpus, wanted.exclusive)


class _Scheduler:
    def __init__(self, ctx: ModuleContext, args: list[str]) -> None:
        self.ctx = ctx
        self.options, self.log = options.read(ctx, args, _QUEUE_DEPTH)
        try:
            self.alloc_mode = _alloc_mode(self.options.rest)
        except options.OptionError as exc:
            raise RpcError(errno.EINVAL, str(exc)) from None
        self.rset = ResourceSet()
        self.pool = Pool(self.rset, self.alloc_mode)
        self.expiration = 0.0
        self.masks: Kept[int] = Kept()
        self.jobs: dict[int, _Job] = {}
        self.queues: dict[str, list[tuple[int, int]]] = {}
        self.blocked: dict[str, int] = {}
        self.held: dict[int, _Held] = {}
        self.explaining = False
        self.acquired = False
        self.reasons = Reasons(ctx, self._reason, self._places)
        # The reasons by request and mask of ranks, within one slice of `sched.reasons`.
        self.short: dict[tuple[Request, int], str] = {}
        self.short_in = 0
        ctx.service(
            "sched",
            {
                "alloc": self._alloc,
                "cancel": self._cancel,
                "free": self._free,
                "prioritize": self._prioritize,
                "expiration": self._expiration,
                "reasons": self.reasons.ask,
                "resource-status": self._resource_status,
            },
            open=("resource-status",),
            requests={**SCHED, "alloc": ALLOC},
        )
        check = GuestChecks(ctx, self._check, lambda: False, apart=False)
        ctx.service("feasibility", {"check": check}, open=("check",), requests=FEASIBILITY)
        ctx.on_stats(lambda: {"pending": len(self.jobs), "running": len(self.held), "blocked": len(self.blocked)})
        ctx.on_unload(self._unload)
        ctx.call("resource.acquire", None, self._resources, streaming=True)

    def _unload(self) -> None:
        """Refuse the open requests, so that the job manager sends them to the next scheduler."""
        for job in self.jobs.values():
            self.ctx.respond_error(job.msg, errno.ENOSYS, f"{NAME} was unloaded")

    # -- resources come, go and change (RFC 28)

    def _resources(self, reply: Message) -> None:
        if reply.errnum:
            acquire_ended(self.ctx, reply, bool(self.rset.ranks))
            return
        body = reply.obj
        if "resources" in body:
            self.rset = ResourceSet.from_obj(body["resources"])
            self.expiration = self.rset.expiration
            self.pool = Pool(self.rset, self.alloc_mode)
            self._remask()
        if "shrink" in body:
            self.pool.remove(Idset.parse(body["shrink"]).bits)
            self.rset = self.rset.exclude_ranks(Idset.parse(body["shrink"]))
            self._remask()
        if "grow" in body:
            part = ResourceSet.from_obj(body["grow"])
            self.pool.add(part)
            self.rset = self.rset.union(part)
            self._remask()
        if "down" in body:
            self.pool.set_down(Idset.parse(body["down"]).bits)
        if "up" in body:
            self.pool.set_up(Idset.parse(body["up"]).bits)
        if "expiration" in body:
            self.expiration = float(body["expiration"])
            self.log(logging.INFO, f"resource expiration updated to {self.expiration:.2f}")
        if "property-add" in body or "property-remove" in body:
            self._change_properties(body.get("property-add", {}), body.get("property-remove", {}))
        if not self.acquired:
            self.acquired = True
            hello(self.ctx, self.options, self.log, self._recover, lambda: f"Rv1 {summary(self.rset.to_obj())}")
        self._retry()

    def _change_properties(self, add: dict[str, str], remove: dict[str, str]) -> None:
        properties = self.pool.properties
        for name, ranks in add.items():
            properties[name] = properties.get(name, 0) | Idset.parse(ranks).bits
        for name, ranks in remove.items():
            properties[name] = properties.get(name, 0) & ~Idset.parse(ranks).bits
        rset = self.rset.without_properties(lambda _name: False)
        for name, bits in properties.items():
            if bits:
                rset = rset.with_property(name, Idset.from_bits(bits & rset.ranks.bits))
        self.rset = rset
        self._remask()

    def _remask(self) -> None:
        """Evaluate all constraints again after a change of resources."""
        self.masks.clear()
        for job in self.jobs.values():
            job.mask = self._mask(js.constraints(job.msg.obj["jobspec"]))

    def _recover(self, job: int, r: dict[str, Any], freed: int) -> None:
        shares = self.pool.mark_allocated(share for share in shares_of_r(r) if not freed >> share.rank & 1)
        self.held[job] = _Held(shares, float(r["execution"].get("expiration") or 0.0))

    # -- requests of the job manager (RFC 27)

    def _alloc(self, msg: Message) -> None:
        jobspec = msg.obj["jobspec"]
        if self.ctx.debug & _FAIL_ALLOC:
            self.ctx.respond(msg, {"id": msg.obj["id"], "type": AllocResponse.DENY, "note": "DEBUG_FAIL_ALLOC"})
            return
        try:
            job = _Job(msg, request_of(jobspec), self._mask(js.constraints(jobspec)))
        except (js.JobspecError, ConstraintError) as exc:
            self.ctx.respond(msg, {"id": msg.obj["id"], "type": AllocResponse.DENY, "note": str(exc)})
            return
        self.jobs[job.id] = job
        self._enqueue(job)
        self.ctx.at_flush(self._schedule)

    def _enqueue(self, job: _Job) -> None:
        queue = self.queues.get(job.queue)
        if queue is None:
            queue = self.queues[job.queue] = []
        heapq.heappush(queue, (-job.priority, job.id))

    def _mask(self, constraint: dict[str, Any] | None) -> int:
        if not constraint:
            return -1
        key = msgspec.json.encode(constraint)
        mask = self.masks.get(key)
        if mask is None:
            mask = int(self.rset.matching_ranks(constraint).bits)
            self.masks.put(key, len(key), mask)
        return mask

    def _cancel(self, msg: Message) -> None:
        job = self.jobs.pop(msg.obj["id"], None)
        if job is not None:
            self.ctx.respond(job.msg, {"id": job.id, "type": AllocResponse.CANCEL})
            if self.blocked.get(job.queue) == job.id:
                del self.blocked[job.queue]
                self.ctx.at_flush(self._schedule)

    def _prioritize(self, msg: Message) -> None:
        for job_id, priority in msg.obj["jobs"]:
            job = self.jobs.get(job_id)
            if job is not None and job.priority != priority:
                job.priority = priority
                self._enqueue(job)
        self.blocked.clear()
        self.ctx.at_flush(self._schedule)

    def _free(self, msg: Message) -> Any:
        body = msg.obj
        held = self.held.get(body["id"])
        if held is None:
            self.log(logging.ERROR, f"sched.free: job {body['id']} holds no resources")
            return EMPTY
        if body.get("final", True) or "R" not in body:
            self.pool.free(held.shares)
            del self.held[body["id"]]
        else:
            ranks = {share.rank for share in shares_of_r(body["R"])}
            self.pool.free(share for share in held.shares if share.rank in ranks)
            held.shares = tuple(share for share in held.shares if share.rank not in ranks)
        self._retry()
        return EMPTY

    def _expiration(self, msg: Message) -> Any:
        held, expiration = self.held.get(msg.obj["id"]), float(msg.obj["expiration"])
        if held is None:
            raise RpcError(errno.ENOENT, f"job {msg.obj['id']} holds no resources")
        if expiration < 0:
            raise RpcError(errno.EINVAL, "expiration must not be negative")
        if self.ctx.debug & _REFUSE_TIME:
            raise RpcError(errno.EINVAL, "DEBUG_REFUSE_EXPIRATION")
        if self.expiration and expiration > self.expiration:
            raise RpcError(errno.EINVAL, "expiration is after that of the instance itself")
        held.expiration = expiration
        return EMPTY

    def _check(self, msg: Message) -> Any:
        jobspec = of_request(msg)
        try:
            self._refuse_impossible(request_of(jobspec), jobspec)
        except (Unsatisfiable, js.JobspecError, ConstraintError) as exc:
            raise RpcError(errno.EINVAL, str(exc)) from None
        except MALFORMED as exc:
            raise malformed(exc) from None
        return EMPTY

    def _refuse_impossible(self, request: Request, jobspec: dict[str, Any]) -> None:
        """Raise Unsatisfiable if an idle system is too small, with the part of the constraint that excludes
        every node.
        """
        constraint = js.constraints(jobspec)
        try:
            self.pool.check(request, self._mask(constraint))
        except Unsatisfiable as exc:
            nobody = self._nobody(constraint)
            raise Unsatisfiable(f"{exc}; {nobody}" if nobody else str(exc)) from None

    def _nobody(self, constraint: dict[str, Any] | None) -> str:
        """The part of a constraint that excludes every node; "" if there is none."""
        return excluding(constraint or {}, lambda part: bool(self._mask(part)))

    def _resource_status(self, msg: Message) -> dict[str, Any]:
        down = self.rset.select_ranks(Idset.from_bits(self.pool.all & ~self.pool.up))
        return {"all": self.rset.to_obj(), "down": down.to_obj(), "allocated": self._allocated().to_obj()}

    def _allocated(self) -> ResourceSet:
        used = {}
        for rank, (free, free_gpus) in self.pool.free_set().items():
            node = self.pool.nodes[rank]
            if free != node.cores or free_gpus != node.gpus:
                used[rank] = (node.cores & ~free, node.gpus & ~free_gpus)
        return in_use(self.rset, used)

    # -- scheduling

    def _retry(self) -> None:
        self.blocked.clear()
        if self.jobs:
            self.ctx.at_flush(self._schedule)

    def _head(self, name: str) -> _Job | None:
        """The next job of a queue; entries of canceled jobs or with outdated priorities are removed."""
        queue = self.queues[name]
        while queue:
            job = self.jobs.get(queue[0][1])
            if job is not None and -job.priority == queue[0][0]:
                return job
            heapq.heappop(queue)
        return None

    def _schedule(self) -> None:
        """Start every job that is first in its queue and fits."""
        if not self.acquired:
            return
        now = self.ctx.now()
        while True:
            best: _Job | None = None
            for name in self.queues:
                job = self._head(name)
                if job is None or self.blocked.get(name) == job.id:
                    continue
                if best is None or (-job.priority, job.id) < (-best.priority, best.id):
                    best = job
            if best is None:
                return
            self._try(best, now)

    def _try(self, job: _Job, now: float) -> None:
        shares = self.pool.allocate(job.request, job.mask)
        if shares is None:
            try:
                self._refuse_impossible(job.request, job.msg.obj["jobspec"])
            except Unsatisfiable as exc:
                self._drop(job)
                self.ctx.respond(job.msg, {"id": job.id, "type": AllocResponse.DENY, "note": str(exc)})
                return
            self.blocked[job.queue] = job.id
            if not self.explaining:
                self.explaining = True
                self.ctx.call_later(_EXPLAIN_AFTER, self._explain)
            return
        expiration = now + job.duration if job.duration else self.expiration
        if self.expiration:
            expiration = min(expiration, self.expiration)
        self._drop(job)
        self.held[job.id] = _Held(shares, expiration)
        r = self.pool.job_r(shares, now, expiration)
        sched: dict[str, Any] = dict.fromkeys(job.annotated)
        sched["resource_summary"] = summary(r)
        self.ctx.respond(
            job.msg, {"id": job.id, "type": AllocResponse.SUCCESS, "annotations": {"sched": sched}, "R": r}
        )

    def _drop(self, job: _Job) -> None:
        del self.jobs[job.id]
        heapq.heappop(self.queues[job.queue])

    # -- why the first job of a queue waits

    def _explain(self) -> None:
        self.explaining = False
        if self.ctx.debug & _COUNT_AHEAD:
            waiting = sorted(self.jobs.values(), key=lambda job: (-job.priority, job.id))
            for ahead, job in enumerate(waiting):
                self._annotate(job, {"reason_pending": "insufficient resources", "jobs_ahead": ahead})
            return
        for job_id in list(self.blocked.values()):
            head = self.jobs.get(job_id)
            if head is None:
                continue
            notes: dict[str, Any] = {"reason_pending": self.pool.shortage(head.request, head.mask)}
            start = self._estimate(head)
            if start:
                notes["t_estimate"] = start
            self._annotate(head, notes)

    def _annotate(self, job: _Job, notes: dict[str, Any]) -> None:
        if notes != job.annotated:
            change = {**dict.fromkeys(job.annotated), **notes}
            job.annotated = notes
            self.ctx.respond(job.msg, {"id": job.id, "type": AllocResponse.ANNOTATE, "annotations": {"sched": change}})

    def _estimate(self, job: _Job) -> float:
        """When enough running jobs will have ended for this one; 0 if unknown."""
        ending = sorted((held.expiration, id_) for id_, held in self.held.items() if held.expiration)[:_ESTIMATE_JOBS]
        released: list[_Held] = []
        start = 0.0
        for expiration, id_ in ending:
            held = self.held[id_]
            self.pool.free(held.shares)
            released.append(held)
            trial = self.pool.allocate(job.request, job.mask)
            if trial is not None:
                self.pool.free(trial)
                start = expiration
                break
        for held in released:
            self.pool.retake(held.shares)
        return start

    # -- why any job waits (`sched.reasons`)

    def _reason(self, id: int, place: Place | None) -> dict[str, Any] | None:
        """The reason of a pending job; None for a job that is not pending here."""
        job = self.jobs.get(id)
        if job is None:
            return None
        if self.ctx.debug & _COUNT_AHEAD:
            # With this debug flag, the annotation is set already.
            return {}
        ahead = place.ahead if place is not None else 0
        return {"reason_pending": text(self._shortage(job), ahead), "jobs_ahead": ahead}

    def _shortage(self, job: _Job) -> str:
        """What is short for a job now, "" for nothing; jobs with equal requests lack the same."""
        if not job.mask:
            # All constraints that no node satisfies have this mask, but each has its own reason.
            nobody = self._nobody(js.constraints(job.msg.obj["jobspec"]))
            if nobody:
                return nobody
        if self.short_in != self.reasons.slice:
            self.short, self.short_in = {}, self.reasons.slice
        short = self.short.get((job.request, job.mask))
        if short is None:
            trial = self.pool.allocate(job.request, job.mask)
            if trial is not None:
                self.pool.free(trial)
            short = "" if trial is not None else self.pool.shortage(job.request, job.mask)
            self.short[job.request, job.mask] = short
        return short

    def _places(self) -> Iterator[tuple[int, Place] | None]:
        return forecast(self._in_order(), self._supply, self.ctx.now())

    def _in_order(self) -> Iterator[Waiting]:
        """The pending jobs of all queues by priority and id."""
        for _, _, ahead, job in heapq.merge(*(self._line(name) for name in list(self.queues))):
            request = job.request
            slots = request.nslots * (request.nnodes or 1)
            cores, gpus = slots * request.cores, slots * request.gpus
            if request.exclusive:
                cores = max(cores, (request.nnodes or 1) * self.rset.ncores // max(len(self.pool.nodes), 1))
            yield Waiting(job.id, ahead, job.mask, cores, gpus, job.duration or math.inf)

    def _line(self, name: str) -> Iterator[tuple[int, int, int, _Job]]:
        """(-priority, id, jobs before it, job) of a queue, in order."""
        entries, ahead = list(self.queues[name]), 0
        while entries:
            priority, id = heapq.heappop(entries)
            job = self.jobs.get(id)
            if job is not None and job.priority == -priority:
                yield priority, id, ahead, job
                ahead += 1

    def _supply(self, mask: Hashable) -> Generator[None, None, Supply]:
        """The free resources of the ranks in a bit set, and the ends of the allocated ones."""
        assert isinstance(mask, int)
        usable = mask & self.pool.up
        cores = gpus = 0
        for rank in each(usable):
            cores += self.pool.nodes[rank].free.bit_count()
            gpus += self.pool.nodes[rank].free_gpus.bit_count()
        ends = []
        for count, held in enumerate(list(self.held.values()), 1):
            if count % _PER_STEP == 0:
                yield STEP
            inside = [share for share in held.shares if usable >> share.rank & 1]
            counts = [sum(bits.bit_count() for bits in kind) for kind in zip(*(share[1:] for share in inside))]
            if counts:
                ends.append((held.expiration or math.inf, counts[0], counts[1]))
        return Supply(cores, gpus, ends)


def _alloc_mode(args: Iterable[str]) -> str:
    """The last `alloc-mode` of the arguments, one of ALLOC_MODES. Raises OptionError for an invalid or unknown one."""
    mode = ALLOC_MODES[0]
    for arg in args:
        key, _, mode = arg.partition("=")
        if key != "alloc-mode":
            raise options.unknown(arg, ["alloc-mode"])
        if mode not in ALLOC_MODES:
            raise options.OptionError(f"alloc-mode={mode!r} is invalid: expected one of {', '.join(ALLOC_MODES)}")
    return mode
