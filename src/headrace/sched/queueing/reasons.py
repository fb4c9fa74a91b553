"""Why each pending job waits, and its estimated start, as users see them in annotations. Pure.

The keys of annotations are those that Flux's commands show: `reason_pending` (text), `jobs_ahead` (the number of jobs
before it in its queue) and `t_estimate` (seconds since the epoch).
"""

from __future__ import annotations

import json
from collections.abc import Generator, Hashable, Iterable, Iterator
from heapq import merge
from math import inf
from typing import Any

from headrace.sched.graph import Scheduler
from headrace.sched.graph.inside import parts
from headrace.sched.graph.request import JobRequest
from headrace.sched.graph.selection import Selection
from headrace.sched.graph.usage import Allocation
from headrace.sched.queueing.forecast import STEP, Place, Supply, Waiting, forecast, text
from headrace.sched.queueing.pending import UNLIMITED, Position
from headrace.sched.queueing.queue import Queue
from headrace.sched.queueing.why import PROMISED, at_the_front, shortage, takes_whole_nodes

# The types of single cores and GPUs.
_SINGLE = ("core", "gpu")
# The number of running jobs counted in one step.
_PER_STEP = 200
# The number of jobs at the front of a queue with backfill that are annotated unasked.
_FRONT = 16
# A job without a time limit ends this far after its start. Times that far ahead are no estimates: neither the end
# itself nor a start planned for it.
FAR = UNLIMITED // 2


def of_front(queue: Queue, now: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The jobs at the front of a queue with their `reason_pending` and, if known, `t_estimate`.

    The start of the first job is searched for if it has no reservation.
    """
    scheduler = queue.scheduler
    for place, jobid in enumerate(queue.first(_FRONT if queue.policy.backfill else 1)):
        request = queue.pending[jobid].request
        notes: dict[str, Any] = {"reason_pending": shortage(scheduler, request, now)}
        plan = queue.planned.get(jobid)
        if plan is None and place == 0:
            plan = scheduler.reserve(jobid, request, now).allocation
            if plan is not None:
                scheduler.cancel(jobid)
        if place == 0 and notes["reason_pending"] is PROMISED:
            notes["reason_pending"] = at_the_front(scheduler, request, now)
        yield jobid, _with_start(notes, plan, now)


class Explainer:
    """The reasons of pending jobs.

    Jobs with equal requests lack the same resources. These are counted once for each `state` of graph and time that the
    caller passes.
    """

    def __init__(self) -> None:
        self._short: dict[str, str] = {}
        self._state: object = None

    def explain(self, queue: Queue, jobid: int, now: int, state: object) -> dict[str, Any]:
        """`reason_pending`, `jobs_ahead` and, with a reservation, `t_estimate` of a job pending in `queue`."""
        entry = queue.pending[jobid]
        ahead = queue.waiting.count_before(entry.position)
        short = self._shortage(queue, entry.shape, entry.request, now, state)
        if short is PROMISED and not ahead:
            short = at_the_front(queue.scheduler, entry.request, now)
        notes = {"reason_pending": text(short, ahead), "jobs_ahead": ahead}
        return _with_start(notes, queue.planned.get(jobid), now)

    def _shortage(self, queue: Queue, shape: str, request: JobRequest, now: int, state: object) -> str:
        if state != self._state:
            self._short, self._state = {}, state
        short = self._short.get(shape)
        if short is None:
            short = self._short[shape] = shortage(queue.scheduler, request, now)
        if short is PROMISED and not queue.policy.backfill:
            # The queue makes no reservations, so the job waits only for the jobs before it, unless its caller has
            # entered allocations that begin later.
            held = queue.scheduler.jobs
            return short if any(held[one].start > now for one in queue.running) else ""
        return short


def _with_start(notes: dict[str, Any], plan: Allocation | None, now: int) -> dict[str, Any]:
    if plan is not None and now < plan.start < now + FAR:
        notes["t_estimate"] = float(plan.start)
    return notes


def places(
    scheduler: Scheduler, queues: Iterable[Queue], now: int, kinds: tuple[str, str] = _SINGLE
) -> Iterator[tuple[int, Place] | None]:
    """The places of the jobs in all queues of a scheduler, by priority and arrival.

    See `forecast.forecast`. Jobs may be added and removed during the iteration. `kinds` are the types that count as
    cores and GPUs: single ones, or pools of units.
    """
    return forecast(_waiting(scheduler, queues, kinds), lambda constraint: _supply(scheduler, constraint, kinds), now)


def _waiting(scheduler: Scheduler, queues: Iterable[Queue], kinds: tuple[str, str]) -> Iterator[Waiting]:
    by_shape: dict[str, tuple[Hashable, int, int]] = {}
    lines = [_line(queue) for queue in queues if queue.pending]
    for (_, _, jobid), ahead, queue in merge(*lines, key=lambda item: item[0]):
        entry = queue.pending.get(jobid)
        if entry is None:
            continue
        found = by_shape.get(entry.shape)
        if found is None:
            found = by_shape[entry.shape] = _needs(scheduler, entry.request, kinds)
        plan = queue.planned.get(jobid)
        length = entry.length
        yield Waiting(jobid, ahead, *found, inf if length >= UNLIMITED else length, plan.start if plan else 0.0)


def _line(queue: Queue) -> Iterator[tuple[Position, int, Queue]]:
    """The jobs of a queue in order, each with the number of jobs before it."""
    return ((place, ahead, queue) for ahead, place in enumerate(queue.waiting.order))


def _needs(scheduler: Scheduler, request: JobRequest, kinds: tuple[str, str]) -> tuple[Hashable, int, int]:
    """The constraint on the nodes of a job (JSON; None: all), and the cores and GPUs that it takes.

    A whole node counts with the average.
    """
    graph = scheduler.graph
    key = json.dumps(request.constraint, sort_keys=True) if request.constraint else None
    needs = request.needs
    nodes = needs.get("node", 0) if takes_whole_nodes(request, scheduler) else 0
    totals = graph.totals[graph.root]
    cores, gpus = (
        max(needs.get(kind, 0), nodes * (totals.get(kind, 0) // max(len(graph.nodes()), 1))) for kind in kinds
    )
    return key, cores, gpus


def _supply(scheduler: Scheduler, constraint: Hashable, kinds: tuple[str, str]) -> Generator[None, None, Supply]:
    """The free resources of the nodes that satisfy a constraint (JSON; None: all), and the ends of jobs."""
    graph = scheduler.graph
    allowed = scheduler.allowed(json.loads(constraint)) if isinstance(constraint, str) else None
    usable = {v for v in (graph.nodes() if allowed is None else allowed) if graph.up[v]}
    held_cores = held_gpus = 0
    ends = []
    for count, jobid in enumerate(list(scheduler.jobs), 1):
        if count % _PER_STEP == 0:
            yield STEP
        job = scheduler.jobs.get(jobid)
        if job is None or job.reserved:
            continue
        cores, gpus = _taken(job.selection, usable, kinds)
        if cores + gpus:
            held_cores += cores
            held_gpus += gpus
            ends.append((inf if job.end - job.start >= FAR else float(job.end), cores, gpus))
    of_nodes = [graph.totals[v] for v in usable]
    cores, gpus = (sum(total.get(kind, 0) for total in of_nodes) for kind in kinds)
    return Supply(cores - held_cores, gpus - held_gpus, ends)


def _taken(selection: Selection, usable: set[int], kinds: tuple[str, str]) -> tuple[int, int]:
    """The amounts of two types that a selection has on some nodes."""
    if kinds == _SINGLE:
        found = [part for part in parts(selection) if part.vertex in usable]
        return sum(part.cores.bit_count() for part in found), sum(part.gpus.bit_count() for part in found)
    types, parent = selection.graph.type, selection.graph.parent
    sums = dict.fromkeys(kinds, 0)
    for v, mark in selection.marks.items():
        if types[v] in sums and parent[v] in usable:
            sums[types[v]] += mark.needs
    return sums[kinds[0]], sums[kinds[1]]
