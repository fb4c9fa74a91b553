"""Counts of nodes by their free amounts, in one pass, to explain why a job is refused or waits.

Most nodes are alike, so nodes with equal amounts are counted together. All vertices that a job holds whole share one
planner, which is read once; an idle node has no planners.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from headrace.sched.graph.model import Graph
from headrace.sched.graph.planner import Planner
from headrace.sched.graph.scheduler import Scheduler


def held(graph: Graph, nodes: Iterable[int]) -> list[tuple[Mapping[str, int], int]]:
    """The amounts by type of idle nodes, each with the number of nodes that have them."""
    totals = graph.totals
    counts = Counter([id(totals[v]) for v in nodes])
    shapes = {id(totals[v]): totals[v] for v in nodes} if counts else {}
    return [(shapes[key], count) for key, count in counts.items()]


def free(scheduler: Scheduler, nodes: Iterable[int], kinds: Sequence[str], now: int) -> dict[tuple[int, ...], int]:
    """The free amounts of `kinds` at a moment, as tuples in that order, each with its number of nodes."""
    graph, busy, plans, used = scheduler.graph, scheduler.busy, scheduler.plans, _Used(now)
    nothing = (0,) * len(kinds)
    full: dict[int, tuple[int, ...]] = {}
    found: dict[tuple[int, ...], int] = {}
    for v in nodes:
        totals = graph.totals[v]
        have = full.get(id(totals))
        if have is None:
            have = full[id(totals)] = tuple([totals.get(kind, 0) for kind in kinds])
        plan = plans.get(v)
        if plan is not None and used(plan) >= graph.size[v]:
            have = nothing
        elif v in busy:
            of = busy[v]
            have = tuple([n - used(of[kind]) if kind in of else n for kind, n in zip(kinds, have, strict=True)])
        found[have] = found.get(have, 0) + 1
    return found


def idle(scheduler: Scheduler, nodes: Iterable[int], now: int) -> int:
    """The number of idle nodes at a moment."""
    used, shared, busy = _Used(now), scheduler.shared, scheduler.busy
    plans, size = scheduler.plans, scheduler.graph.size
    count = 0
    for v in nodes:
        plan, users, counts = plans.get(v), shared.get(v), busy.get(v)
        if plan is not None and used(plan) >= size[v]:
            continue
        if counts is not None and any([used(planner) for planner in counts.values()]):
            continue
        count += users is None or not used(users)
    return count


class _Used:
    """Callable: the amount in use in a planner at a moment. A planner of many vertices is read only once."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._known: dict[int, int] = {}

    def __call__(self, plan: Planner) -> int:
        if not plan.copy_on_write:
            return plan.at(self._now)
        used = self._known.get(id(plan))
        if used is None:
            used = self._known[id(plan)] = plan.at(self._now)
        return used
