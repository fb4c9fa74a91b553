"""Why each job in the graph scheduler's queues waits, and the basis for its estimate. Pure, a part of the pool."""

from __future__ import annotations

import json
from collections.abc import Generator, Hashable, Iterator
from heapq import merge
from math import inf
from typing import Any

from headrace.graph.request import JobRequest, total_needs
from headrace.modules.sched.graph.pool import UNLIMITED, Pool
from headrace.queueing.forecast import STEP, Place, Supply, Waiting, forecast, text
from headrace.queueing.pending import Position
from headrace.queueing.queue import Queue
from headrace.queueing.why import PROMISED, shortage, takes_whole_nodes

# The number of running jobs counted in one step.
_PER_STEP = 200
# A job without a time limit ends so many seconds after its start that a time this far ahead is no estimate: neither a
# start that was planned for its end, nor the end itself.
_FAR = UNLIMITED // 2


class Explainer:
    """The reasons of a pool's pending jobs. Jobs with equal requests lack the same resources, which are counted once
    for each `state` of pool and time that the caller passes.
    """

    def __init__(self) -> None:
        self._short: dict[str, str] = {}
        self._state: object = None

    def explain(self, pool: Pool, jobid: int, now: int, state: object) -> dict[str, Any] | None:
        """The annotations of a job: `reason_pending`, `jobs_ahead` and, with a reservation, `t_estimate`; None for a
        job that is not pending.
        """
        name = pool.where.get(jobid)
        if name is None:
            return None
        queue = pool.queues[name]
        entry = queue.pending[jobid]
        ahead = queue.waiting.count_before(entry.position)
        notes: dict[str, Any] = {
            "reason_pending": text(self._shortage(pool, queue, entry.shape, entry.request, now, state), ahead),
            "jobs_ahead": ahead,
        }
        plan = queue.planned.get(jobid)
        if plan is not None and now < plan.start < now + _FAR:
            notes["t_estimate"] = float(plan.start)
        return notes

    def _shortage(self, pool: Pool, queue: Queue, shape: str, request: JobRequest, now: int, state: object) -> str:
        if state != self._state:
            self._short, self._state = {}, state
        short = self._short.get(shape)
        if short is None:
            short = self._short[shape] = shortage(pool.scheduler, request, now)
        # Without backfill there are no reservations, so the job waits only for the jobs before it.
        return "" if short is PROMISED and not queue.policy.backfill else short


def places(pool: Pool, now: int) -> Iterator[tuple[int, Place] | None]:
    """The places of the jobs in all queues, by priority and arrival (`forecast.forecast`)."""
    return forecast(_waiting(pool), lambda constraint: _supply(pool, constraint), now)


def _waiting(pool: Pool) -> Iterator[Waiting]:
    by_shape: dict[str, tuple[Hashable, int, int]] = {}
    lines = [_line(queue) for queue in pool.queues.values() if queue.pending]
    for (_, _, jobid), ahead, queue in merge(*lines, key=lambda item: item[0]):
        entry = queue.pending.get(jobid)
        if entry is None:
            continue
        found = by_shape.get(entry.shape)
        if found is None:
            found = by_shape[entry.shape] = _needs(pool, entry.request)
        plan = queue.planned.get(jobid)
        length = entry.request.duration
        yield Waiting(jobid, ahead, *found, inf if length >= UNLIMITED else length, plan.start if plan else 0.0)


def _line(queue: Queue) -> Iterator[tuple[Position, int, Queue]]:
    """The jobs of a queue in order, each with the number of jobs before it."""
    return ((place, ahead, queue) for ahead, place in enumerate(queue.waiting.order))


def _needs(pool: Pool, request: JobRequest) -> tuple[Hashable, int, int]:
    """The constraint that says which nodes a job may use (JSON; None: all), and the number of cores and GPUs that it
    takes; whole nodes count with the average.
    """
    key = json.dumps(request.constraint, sort_keys=True) if request.constraint else None
    needs = total_needs(request.resources)
    nodes = needs.get("node", 0) if takes_whole_nodes(request, pool.scheduler) else 0
    totals = pool.graph.totals[pool.graph.root]
    cores, gpus = (
        max(needs.get(kind, 0), nodes * (totals.get(kind, 0) // max(len(pool.nodes.vertex), 1)))
        for kind in ("core", "gpu")
    )
    return key, cores, gpus


def _supply(pool: Pool, constraint: Hashable) -> Generator[None, None, Supply]:
    """The free resources of the nodes that satisfy a constraint (JSON; None: all nodes), and the ends of the others."""
    allowed = pool.scheduler.allowed(json.loads(constraint)) if isinstance(constraint, str) else None
    vertex = pool.nodes.vertex
    ranks = 0
    for rank, v in vertex.items():
        if pool.up >> rank & 1 and (allowed is None or v in allowed):
            ranks |= 1 << rank
    held_cores = held_gpus = 0
    ends = []
    for count, (jobid, held) in enumerate(list(pool.held.items()), 1):
        if count % _PER_STEP == 0:
            yield STEP
        cores = gpus = 0
        for share in held.shares:
            if ranks >> share.rank & 1:
                cores += share.cores.bit_count()
                gpus += share.gpus.bit_count()
        allocation = pool.scheduler.jobs.get(jobid)
        if allocation is not None and cores + gpus:
            held_cores += cores
            held_gpus += gpus
            length = allocation.end - allocation.start
            ends.append((inf if length >= _FAR else float(allocation.end), cores, gpus))
    totals = pool.graph.totals
    of_nodes = [totals[v] for rank, v in vertex.items() if ranks >> rank & 1]
    have = {kind: sum(total.get(kind, 0) for total in of_nodes) for kind in ("core", "gpu")}
    return Supply(have["core"] - held_cores, have["gpu"] - held_gpus, ends)
