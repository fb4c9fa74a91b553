"""The core of the graph scheduler: the graph, the resources of running jobs, and the queues.

Pure: time is an argument, in whole seconds, and decisions are returned. All queues share one graph, and this module
handles their interactions: a job that overruns its time limit cancels reservations of every queue, and released
resources are offered to every queue. A job without a time limit is planned with a very long one (`UNLIMITED`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from math import ceil
from typing import Any

from headrace.engine.modules.sched.fair import Fair
from headrace.engine.modules.sched.graph_of_r import Nodes, graph_of, name_by_rank
from headrace.engine.modules.sched.r import Shares, each, shares_of_r
from headrace.engine.modules.sched.requests import BoundedCache, Requests
from headrace.engine.modules.sched.settings import Settings
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.rset import ResourceSet
from headrace.sched.graph import Allocation, Graph, Outcome, Scheduler
from headrace.sched.graph.formats import rv1
from headrace.sched.graph.holdings import Loss
from headrace.sched.graph.policies import Policy
from headrace.sched.graph.request import JobRequest, Request
from headrace.sched.queueing.pending import UNLIMITED, shape_of
from headrace.sched.queueing.queue import OVERRUN, Decision, Queue, overrun

# Types whose free amounts decide which start times are tried. The first type orders nodes if the policy does not.
_FILTERS = ("core", "gpu", "node")
# Searches of the graph per queue and pass. A search takes about 0.1 ms.
SEARCH_BUDGET = 32


class RepairableScheduler(Scheduler):
    """A scheduler that refuses a request only if it fails with all resources up.

    Resources that are down may be repaired. The result depends only on the request and on properties. It is cached,
    since it is needed for every pending job.
    """

    def __init__(self, graph: Graph, policy: Policy) -> None:
        super().__init__(graph, policy, _FILTERS)
        self._possible: BoundedCache[Outcome] = BoundedCache()

    def satisfiable(self, request: JobRequest) -> Outcome:
        shape = shape_of(request)
        found = self._possible.get(shape)
        if found is None:
            graph = self.graph
            up, graph.up = graph.up, bytearray(b"\1") * len(graph)
            try:
                found = super().satisfiable(request)
            finally:
                graph.up = up
            self._possible.put(shape, len(shape), found)
        return found

    def set_property(self, v: int, key: str, value: str) -> None:
        super().set_property(v, key, value)
        self._possible.clear()

    def grow(self, part: Graph) -> list[int]:
        added = super().grow(part)
        self._possible.clear()
        return added

    def shrink(self, ranks: int, take: bool = False) -> Loss:
        loss = super().shrink(ranks, take)
        self._possible.clear()
        return loss


class Held:
    """The resources of a running job, its end (seconds since the epoch, 0: no limit), and its queue."""

    __slots__ = ("expiration", "queue", "shares")

    def __init__(self, shares: Shares, expiration: float, queue: str) -> None:
        self.shares = shares
        self.expiration = expiration
        self.queue = queue


class Pool:
    """The resources of an instance and their jobs. Ranks are down until `set_up`.

    Raises GraphError or RsetError for an R that has no valid graph.
    """

    def __init__(self, r: Mapping[str, Any], settings: Settings) -> None:
        self.settings = settings
        self.rset = ResourceSet.from_obj(r)
        self.graph = graph_of(r, self.rset)
        self.nodes = Nodes(self.graph)
        self.scheduler: Scheduler = RepairableScheduler(self.graph, settings.match_policy)
        self.up = 0
        self.queues: dict[str, Queue] = {}
        self.where: dict[int, str] = {}
        self.held: dict[int, Held] = {}
        # Statistics: seconds that building the graph took, jobs started, jobs refused.
        self.load_time = 0.0
        self.matched = self.refused = 0
        self.fair = Fair(settings.fair_share)
        self._ends: list[tuple[int, int]] = []
        # Cached: (generation of the graph, True if every vertex was up in this generation).
        self._all_up_known = (-1, False)
        self.requests = Requests(self.graph)
        for v in self.nodes.vertex.values():
            self.scheduler.set_status(v, False)

    def tables(self) -> Iterator[dict[int, Any]]:
        """The tables with one entry per job."""
        yield self.where
        yield self.held
        yield self.fair.jobs
        for queue in self.queues.values():
            yield queue.pending

    # Resources

    def set_up(self, ranks: int) -> None:
        """Mark ranks (a bit set) up; unknown ranks are ignored."""
        self._set_status(ranks & self.nodes.all & ~self.up, True)
        self.up |= ranks & self.nodes.all

    def set_down(self, ranks: int) -> None:
        """Mark ranks down: running jobs keep their resources on them, pending jobs do not get any."""
        self._set_status(ranks & self.up, False)
        self.up &= ~ranks

    def _set_status(self, ranks: int, up: bool) -> None:
        for rank in each(ranks):
            self.scheduler.set_status(self.nodes.vertex[rank], up)
        if ranks:
            self.touch()

    def remove(self, ranks: int) -> None:
        """Remove ranks that left the instance (RFC 28 shrink); jobs keep their resources on other ranks."""
        for queue in self.queues.values():
            queue.drop_plans()
        for jobid in self.scheduler.shrink(ranks, take=True).ended:
            self._queue(self.held[jobid].queue).running.discard(jobid)
        self.rset = self.rset.exclude_ranks(Idset.from_bits(ranks))
        self.nodes = Nodes(self.graph)
        self.up &= ~ranks
        for held in self.held.values():
            held.shares = tuple(share for share in held.shares if not ranks >> share.rank & 1)
        self.touch()

    def add(self, r: Mapping[str, Any]) -> None:
        """Add all ranks of an R; they are initially down.

        Raises GraphError if a rank is already known, and RsetError. Nothing is changed then.
        """
        part, more = rv1.from_object(r), ResourceSet.from_obj(r)
        name_by_rank(part)
        rset = self.rset.union(more)
        added = self.scheduler.grow(part)
        for queue in self.queues.values():
            queue.drop_plans()
        self.rset = rset
        self.nodes = Nodes(self.graph)
        for v in added:
            if self.graph.type[v] == "node":
                self.scheduler.set_status(v, False)
        self.touch()

    def change_properties(self, add: Mapping[str, int], remove: Mapping[str, int]) -> None:
        """Add and remove properties; the arguments have ranks (bit sets) by property."""
        graph, properties = self.graph, self.nodes.properties
        for name, ranks in add.items():
            for rank in each(ranks & self.nodes.all):
                self.scheduler.set_property(self.nodes.vertex[rank], name, "")
            properties[name] = properties.get(name, 0) | (ranks & self.nodes.all)
        for name, ranks in remove.items():
            for rank in each(ranks & self.nodes.all):
                graph.properties.get(self.nodes.vertex[rank], {}).pop(name, None)
            properties[name] = properties.get(name, 0) & ~ranks
        rset = self.rset.without_properties(lambda _name: False)
        for name, ranks in properties.items():
            if ranks & rset.ranks.bits:
                rset = rset.with_property(name, Idset.from_bits(ranks & rset.ranks.bits))
        self.rset = rset
        self._rebuild(self.scheduler.policy)

    def configure(self, settings: Settings) -> None:
        """Apply other settings. Pending jobs are planned again, running jobs keep their resources."""
        if settings.fair_share != self.settings.fair_share:
            self.fair.configure(settings.fair_share)
        self.settings = settings
        self._rebuild(settings.match_policy)

    def _rebuild(self, policy: Policy) -> None:
        """Make a new scheduler and new queues with the same jobs."""
        old, waiting = self.scheduler, self.queues
        self.scheduler = RepairableScheduler(self.graph, policy)
        for jobid in self.held:
            allocation = old.jobs.get(jobid)
            if allocation is not None:
                self.scheduler.add(jobid, allocation.selection, allocation.start, allocation.end, False)
        self.queues = {}
        for name, queue in waiting.items():
            for jobid in queue.first(len(queue.pending)):
                entry = queue.pending[jobid]
                self._queue(name).submit(jobid, entry.request, -entry.position[0], entry.position[1])
            self._queue(name).running.update(jobid for jobid in queue.running if jobid in self.scheduler.jobs)

    # Jobs

    def _queue(self, name: str) -> Queue:
        queue = self.queues.get(name)
        if queue is None:
            own = self.settings.for_queue(name)
            queue = self.queues[name] = Queue(self.scheduler, own.policy, own.depth, own.reservations, SEARCH_BUDGET)
        return queue

    def submit(
        self, jobid: int, request: JobRequest, priority: int, queue: str, userid: int = 0, t_submit: float | None = None
    ) -> None:
        """Add a pending job. Raises ValueError for an id that is in use."""
        self._queue(queue).submit(jobid, request, self.fair.enter(jobid, userid, priority), t_submit)
        self.where[jobid] = queue

    def cancel(self, jobid: int) -> bool:
        """Remove a pending job; False for any other job."""
        self.fair.forget(jobid)
        return self._withdraw(jobid)

    def _withdraw(self, jobid: int) -> bool:
        name = self.where.pop(jobid, None)
        if name is None:
            return False
        queue = self.queues[name]
        if jobid in queue.planned and len(self.queues) > 1:
            self.touch()
        queue.cancel(jobid)
        return True

    def reprioritize(self, priorities: Iterable[tuple[int, int]]) -> None:
        """Set the priorities of pending jobs, pairs of id and priority; unknown jobs are ignored."""
        where, weigh = self.where, self.fair.weigh
        self._rank((jobid, weigh(jobid, priority)) for jobid, priority in priorities if jobid in where)

    def _rank(self, priorities: Iterable[tuple[int, int]]) -> None:
        changed: dict[str, dict[int, int]] = {name: {} for name in self.queues}
        for jobid, priority in priorities:
            name = self.where[jobid]
            if self.queues[name].pending[jobid].position[0] != -priority:
                changed[name][jobid] = priority
            else:
                # An earlier pair of this call may have another priority.
                changed[name].pop(jobid, None)
        for name, found in changed.items():
            if found:
                self.queues[name].reprioritize_all(found)

    def started(self, jobid: int, allocation: Allocation, expiration: float) -> Shares:
        """Record the allocation that a queue made for a job; returns its resources."""
        shares = self.nodes.shares(allocation)
        self._enter(jobid, Held(shares, expiration, self.where.pop(jobid)), allocation)
        return shares

    def forget(self, jobid: int) -> None:
        """Remove a job that a queue has refused."""
        self.refused += 1
        del self.where[jobid]
        self.fair.forget(jobid)

    def recover(self, jobid: int, r: Mapping[str, Any], freed: int, now: int) -> None:
        """Add a running job, without the ranks in `freed` (a bit set), which it has released.

        Raises GraphError, RsetError or SpanConflictError if its resources are unknown or not free.
        """
        shares = tuple(share for share in shares_of_r(r) if not freed >> share.rank & 1)
        expiration = float(r["execution"].get("expiration") or 0.0)
        start = min(int(r["execution"].get("starttime") or now), now)
        end = _end(start, expiration)
        allocation = self.scheduler.add(jobid, self.nodes.selection(shares), start, max(end, now + OVERRUN), False)
        self.held[jobid] = Held(shares, expiration, "")
        self._queue("").running.add(jobid)
        self._will_end(jobid, allocation)
        self.touch()

    def free(self, jobid: int, now: int = 0) -> bool:
        """Release all resources of a job; False if it has none."""
        known = self._release_all(jobid, now)
        self.fair.forget(jobid)
        return known

    def _release_all(self, jobid: int, now: int) -> bool:
        held = self.held.pop(jobid, None)
        if held is None:
            return False
        self._charge(jobid, held.shares, now)
        queue = self._queue(held.queue)
        if jobid in self.scheduler.jobs:
            queue.finish(jobid)
        else:
            queue.running.discard(jobid)
        if len(self.queues) > 1:
            self.touch()
        return True

    def _charge(self, jobid: int, shares: Shares, now: int) -> None:
        """Count the usage of resources that a job releases."""
        allocation = self.scheduler.jobs.get(jobid)
        if allocation is not None and now > allocation.start:
            self.fair.charge(jobid, sum(share.cores.bit_count() for share in shares), allocation.start, now)

    def successors(self, count: int, now: int) -> list[int]:
        """Pending jobs that may take over, in this order, resources of ending jobs with the same request.

        The list is empty unless the scheduler would certainly decide the same: nothing else is free for the first job,
        no other queue has pending jobs, the queue keeps no reservations, and no vertex is down, because a successor
        must not get a vertex that is down.
        """
        waiting = [queue for queue in self.queues.values() if queue.pending]
        if len(waiting) != 1 or waiting[0].policy.keeps or not self._all_up():
            return []
        alike = waiting[0].alike(count)
        return alike if self._is_exhausted(waiting[0].pending[alike[0]].request, now) else []

    def _all_up(self) -> bool:
        if self._all_up_known[0] != self.scheduler.generation:
            self._all_up_known = (self.scheduler.generation, 0 not in self.graph.up)
        return self._all_up_known[1]

    def _is_exhausted(self, request: JobRequest, now: int) -> bool:
        """True if all resources of some type in the request are in use."""
        root = self.graph.root
        wanted = {part.type for top in request.resources for part in _parts(top)}
        return any(not self.scheduler.free(root, type, now) for type in _FILTERS if type in wanted)

    def inherit(self, jobid: int, successor: int, now: int, expiration: float) -> bool:
        """Give all resources of a job to its successor; False if the job has no resources.

        Overrides any decision that was made for the successor in the meantime.
        """
        held, allocation = self.held.get(jobid), self.scheduler.jobs.get(jobid)
        end = max(_end(now, expiration), now + 1)
        if held is not None and allocation is not None and (allocation.start, allocation.end) == (now, end):
            queue = self._queue(held.queue)
            if successor in queue.pending and successor not in queue.planned:
                # Usually, if jobs are short, only the owner of the allocation changes.
                queue.hand_over(jobid, successor)
                del self.where[successor], self.held[jobid]
                self.fair.forget(jobid)
                self._enter(successor, Held(held.shares, expiration, held.queue), allocation)
                return True
        if successor in self.where:
            self._withdraw(successor)
        elif successor in self.held:
            self._release_all(successor, now)
        self.free(jobid, now)
        if held is None or allocation is None:
            return False
        for queue in self.queues.values():
            queue.drop_plans()
        # The resources are free: they were released above, and all reservations are dropped.
        taken = self.scheduler.enter(successor, allocation.selection, now, end, False)
        self._queue(held.queue).hold(successor, taken)
        self._enter(successor, Held(held.shares, expiration, held.queue), taken)
        return True

    def _enter(self, jobid: int, held: Held, allocation: Allocation) -> None:
        """Record the resources of a job that was pending."""
        self.held[jobid] = held
        self._will_end(jobid, allocation)
        self.matched += 1

    def release(self, jobid: int, ranks: int, now: int = 0) -> bool:
        """Release a job's resources on some ranks (a bit set); False if it has no resources."""
        held = self.held.get(jobid)
        if held is None:
            return False
        part = [share for share in held.shares if ranks >> share.rank & 1]
        held.shares = tuple(share for share in held.shares if not ranks >> share.rank & 1)
        if part:
            self._charge(jobid, tuple(part), now)
            self.scheduler.release(jobid, self.nodes.selection(part))
            if jobid not in self.scheduler.jobs:
                self._queue(held.queue).running.discard(jobid)
            self.touch()
        return True

    def set_expiration(self, jobid: int, expiration: float) -> None:
        """Set the end of a running job. Raises KeyError."""
        self.held[jobid].expiration = expiration
        held = self.scheduler.jobs.get(jobid)
        if held is not None:
            end = _end(held.start, expiration)
            for queue in self.queues.values():
                queue.drop_plans(end)
            self._reach(jobid, held, end)
            self.touch()

    def _reach(self, jobid: int, held: Allocation, end: int) -> None:
        self.scheduler.cancel(jobid)
        self._will_end(jobid, self.scheduler.add(jobid, held.selection, held.start, max(end, held.start + 1), False))

    def _will_end(self, jobid: int, allocation: Allocation) -> None:
        if allocation.end - allocation.start < UNLIMITED:
            heappush(self._ends, (allocation.end, jobid))
            if len(self._ends) > 2 * len(self.held) + 1024:
                self._ends = [entry for entry in self._ends if entry[1] in self.held]
                heapify(self._ends)

    # Scheduling

    def schedule(self, now: int) -> list[Decision]:
        """Make one pass over all queues, a few milliseconds each. While `unfinished`, the next call continues."""
        self._hold_overrun(now)
        self._rank(self.fair.news(self.where, now))
        decisions: list[Decision] = []
        for queue in sorted(self.queues.values(), key=_urgency) if len(self.queues) > 1 else self.queues.values():
            decisions += queue.schedule(now)
        return decisions

    @property
    def unfinished(self) -> bool:
        return any(queue.unfinished for queue in self.queues.values())

    def next_start(self) -> int | None:
        """The start of the earliest reservation."""
        return min((start for queue in self.queues.values() if (start := queue.next_start()) is not None), default=None)

    def _hold_overrun(self, now: int) -> None:
        """Extend the allocations of jobs that overrun their end, and drop conflicting reservations."""
        late = []
        while self._ends and self._ends[0][0] <= now:
            end, jobid = heappop(self._ends)
            allocation = self.scheduler.jobs.get(jobid)
            if allocation is not None and jobid in self.held and allocation.end == end:
                late.append((jobid, allocation))
        # A job without an expiration also has a planned end, but is not late after it.
        ends = [now + overrun(max(now - _end(each.start, self.held[jobid].expiration), 0)) for jobid, each in late]
        for queue in self.queues.values() if late else ():
            queue.drop_plans(max(ends))
        for (jobid, allocation), until in zip(late, ends, strict=True):
            self._reach(jobid, allocation, until)

    def touch(self) -> None:
        """Let all queues retry their pending jobs after a change."""
        for queue in self.queues.values():
            queue.touch()

    def check(self, request: JobRequest) -> Outcome:
        """The outcome of the request with all configured resources up and idle."""
        return self.scheduler.satisfiable(request)

    def allocated(self) -> dict[int, tuple[int, int]]:
        """The cores and GPUs (bit sets) that jobs hold, by rank."""
        found: dict[int, tuple[int, int]] = {}
        for held in self.held.values():
            for rank, cores, gpus in held.shares:
                have = found.get(rank, (0, 0))
                found[rank] = (have[0] | cores, have[1] | gpus)
        return found


def _end(start: int, expiration: float) -> int:
    """The planned end of a job that started at `start`."""
    return ceil(min(expiration, start + UNLIMITED)) if expiration else start + UNLIMITED


def _parts(request: Request) -> Iterator[Request]:
    yield request
    for part in request.with_:
        yield from _parts(part)


def _urgency(queue: Queue) -> int:
    first = queue.first(1)
    return queue.pending[first[0]].position[0] if first else 0
