"""The use of a graph by jobs: the planners, and the amounts that each job added to them.

Each change adds the spans of one job, and removing the same spans undoes it exactly. The scheduler decides the
consequences for other jobs. Times are whole seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.sched.graph.matcher import View
from headrace.sched.graph.model import Graph
from headrace.sched.graph.planner import Planner
from headrace.sched.graph.selection import Selection


class SpanConflictError(ValueError):
    """Resources to be allocated are not free: `vertex` is the first of them."""

    def __init__(self, graph: Graph, vertex: int) -> None:
        super().__init__(f"{graph.path(vertex)}: not free during the time asked for")
        self.vertex = vertex


class Allocation(NamedTuple):
    """The resources of a job during [start, end) seconds; `reserved` if it starts later than requested."""

    jobid: int
    start: int
    end: int
    reserved: bool
    selection: Selection


class Spans(NamedTuple):
    """The amounts that a job added to planners.

    `units` are vertices of which it has one unit, `users` vertices that it shares. Other amounts are listed with the
    map of planners and the key in it.

    `by_amount` has one planner for each amount. The planner is in every map where this job is the only user of that
    amount, and is copied before another use is added there (`Planner.copy_on_write`). `maps`, `keys` and `amounts` are
    parallel lists, not one list of tuples: the tuples would live as long as the job, and the garbage collector would
    visit each of them.
    """

    units: list[int]
    users: list[int]
    maps: list[Any]
    keys: list[Any]
    amounts: list[int]
    by_amount: dict[int, Planner]

    def hold(self, planners: dict[Any, Planner], key: int | str, start: int, end: int, amount: int) -> None:
        """Add an amount that is in use in [start, end)."""
        self.maps.append(planners)
        self.keys.append(key)
        self.amounts.append(amount)
        own = self.by_amount.get(amount)
        if own is None:
            own = self.by_amount[amount] = Planner(start, end, amount)
            own.copy_on_write = True
        add_use(planners, key, own, start, end, amount)


def add_use(planners: dict[Any, Planner], key: int | str, own: Planner, start: int, end: int, amount: int) -> None:
    """Add an amount that is in use in [start, end) to the planner at `key`.

    `own` is a planner with only that use, which is stored if there is none yet. A stored planner that is
    `copy_on_write` is replaced by a copy first, since other keys share it.
    """
    plan = planners.get(key)
    if plan is None:
        planners[key] = own
        return
    if plan.copy_on_write:
        plan = planners[key] = plan.copy()
    plan.add(start, end, amount)


class Usage:
    """The jobs of a graph with their allocations, as planners by vertex.

    `plans` have the units in use of a vertex, `busy` the amounts in use below it by type, and `shared` the jobs that
    use it without taking units of it, which keep other jobs from holding it whole. `busy` is that of the hierarchy of
    `graph`; `aggregates` has the same for every hierarchy.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.plans: dict[int, Planner] = {}
        self.shared: dict[int, Planner] = {}
        self.busy: dict[int, dict[str, Planner]] = {}
        self.aggregates = {graph.subsystem: self.busy}
        for other in graph.others:
            self.aggregates[other.subsystem] = {}
        self.view = View(graph, self.plans, self.shared, self.busy)
        self.jobs: dict[int, Allocation] = {}
        self._spans: dict[int, Spans] = {}
        # By pool with more in use than its size: the spans of time, with the excess in each.
        self._excess: dict[int, list[tuple[int, int, int]]] = {}

    def view_of(self, tree: Graph) -> View:
        """The view for a match in one of the hierarchies."""
        if tree is self.graph:
            return self.view
        return View(tree, self.plans, self.shared, self.aggregates.setdefault(tree.subsystem, {}))

    # For a job of 10,000 cores this loop runs 10,000 times: a further function call would slow down every match.
    def add(  # noqa: C901, PLR0912, PLR0915
        self, jobid: int, selection: Selection, start: int, end: int, reserved: bool
    ) -> Allocation:
        """Enter a selection that is free during [start, end).

        Raises ValueError for a job that already holds resources, or an end that is not after the start.
        """
        if jobid in self.jobs:
            raise ValueError(f"job {jobid}: holds resources already; cancel it first")
        if end <= start:
            raise ValueError(f"job {jobid}: holds nothing between {start} and {end}; the end must come after the start")
        graph = self.graph
        if not graph.plain:
            return self._add_everywhere(jobid, selection, start, end, reserved)
        size, parent, totals, types, children = graph.size, graph.parent, graph.totals, graph.type, graph.children
        plans, shared, busy = self.plans, self.shared, self.busy
        own = Planner(start, end, 1)
        own.copy_on_write = True
        spans = Spans([], [], [], [], [], {1: own})
        units_held, users_held = spans.units, spans.users
        sums: dict[int, dict[str, int]] = {}
        for h, run in selection.runs.items():
            vertices = run.vertices
            units_held.extend(vertices)
            if plans.keys().isdisjoint(vertices):
                plans.update(dict.fromkeys(vertices, own))
            else:
                for v in vertices:
                    add_use(plans, v, own, start, end, 1)
            sums[h] = {kind: bits.bit_count() for kind, bits in run.ids.items()}
        maps, keys, counted, by_amount = spans.maps, spans.keys, spans.amounts, spans.by_amount
        for v, needs, exclusive, _, _ in selection.inner_order():
            up = parent[v]
            amounts: dict[str, int] | None
            if exclusive:
                units = size[v] if children[v] else needs
                if units == 1:
                    units_held.append(v)
                    add_use(plans, v, own, start, end, 1)
                else:
                    spans.hold(plans, v, start, end, units)
                if not children[v] and up >= 0:
                    # A single resource is added to the sums above at once, since most jobs consist of these.
                    above = sums.get(up)
                    if above is None:
                        above = sums[up] = {}
                    kind = types[v]
                    above[kind] = above.get(kind, 0) + units
                    continue
                amounts = totals[v]
            else:
                amounts = sums.get(v)
                if amounts:
                    counts = busy.get(v)
                    if counts is None:
                        counts = busy[v] = {}
                    for name, amount in amounts.items():
                        # This is `spans.hold` written out, because it is the most frequent case for large jobs.
                        of_amount = by_amount.get(amount)
                        if of_amount is None:
                            of_amount = by_amount[amount] = Planner(start, end, amount)
                            of_amount.copy_on_write = True
                        plan = counts.get(name)
                        if plan is None:
                            counts[name] = of_amount
                        else:
                            if plan.copy_on_write:
                                plan = counts[name] = plan.copy()
                            plan.add(start, end, amount)
                        maps.append(counts)
                        keys.append(name)
                        counted.append(amount)
                elif not children[v] and size[v] > 1:
                    spans.hold(plans, v, start, end, needs)
                    amounts = {types[v]: needs}
                else:
                    users_held.append(v)
                    add_use(shared, v, own, start, end, 1)
            if up >= 0 and amounts:
                above = sums.get(up)
                if above is None:
                    sums[up] = dict(amounts)
                else:
                    for name, amount in amounts.items():
                        above[name] = above.get(name, 0) + amount
        allocation = Allocation(jobid, start, end, reserved, selection)
        self.jobs[jobid] = allocation
        self._spans[jobid] = spans
        if self._excess:
            self.settle(list(self._excess))
        return allocation

    def _add_everywhere(self, jobid: int, selection: Selection, start: int, end: int, reserved: bool) -> Allocation:
        """As `add`, for a graph with several hierarchies, or vertices with several parents.

        An amount counts above its vertex in each hierarchy, through each parent.
        """
        own = Planner(start, end, 1)
        own.copy_on_write = True
        spans = Spans([], [], [], [], [], {1: own})
        held = taken(selection)
        used = {item.vertex for item in selection.items}
        trees = {tree.subsystem: tree for tree in (self.graph, *self.graph.others)}
        for v, amount in held.items():
            spans.hold(self.plans, v, start, end, amount)
        for subsystem, tree in trees.items():
            sums: dict[int, dict[str, int]] = {}
            for v, amount in held.items():
                for above in tree.ancestors(v):
                    counts = sums.setdefault(above, {})
                    counts[tree.type[v]] = counts.get(tree.type[v], 0) + amount
            for v in list(used):
                used.update(tree.ancestors(v))
            busy = self.aggregates.setdefault(subsystem, {})
            for above, counts in sums.items():
                used.add(above)
                planners = busy.setdefault(above, {})
                for kind, amount in counts.items():
                    spans.hold(planners, kind, start, end, amount)
        for v in used.difference(held):
            spans.users.append(v)
            add_use(self.shared, v, own, start, end, 1)
        allocation = Allocation(jobid, start, end, reserved, selection)
        self.jobs[jobid] = allocation
        self._spans[jobid] = spans
        if self._excess:
            self.settle(list(self._excess))
        return allocation

    def _check_everywhere(self, selection: Selection, start: int, end: int) -> None:
        """As `check`, for graphs that are not one tree."""
        size = self.graph.size
        for v, amount in taken(selection).items():
            plan = self.plans.get(v)
            if amount + (plan.peak(start, end) if plan is not None else 0) > size[v]:
                raise SpanConflictError(self.graph, v)
        for item in selection.items:
            plan = self.plans.get(item.vertex)
            if not item.exclusive:
                # No other job may hold the whole vertex.
                if plan is not None and plan.peak(start, end) >= size[item.vertex]:
                    raise SpanConflictError(self.graph, item.vertex)
            elif any(self.view_of(tree).shares(item.vertex, start, end) for tree in (self.graph, *self.graph.others)):
                raise SpanConflictError(self.graph, item.vertex)

    def check(self, selection: Selection, start: int, end: int) -> None:
        """Raise SpanConflictError if a selection is not free during [start, end)."""
        if not self.graph.plain:
            self._check_everywhere(selection, start, end)
            return
        size, children = self.graph.size, self.graph.children
        plans, shared = self.plans, self.shared
        for run in selection.runs.values():
            if plans.keys().isdisjoint(run.vertices) and shared.keys().isdisjoint(run.vertices):
                continue
            for v in run.vertices:
                for planner in (plans.get(v), shared.get(v)):
                    if planner is not None and planner.peak(start, end):
                        raise SpanConflictError(self.graph, v)
        for v, needs, exclusive, _, _ in selection.inner_order():
            plan = plans.get(v)
            if plan is not None and plan.times:
                counted = exclusive or (size[v] > 1 and not children[v])
                takes = 1 if not counted else size[v] if children[v] else needs
                if plan.peak(start, end) + takes > size[v]:
                    raise SpanConflictError(self.graph, v)
            elif needs > size[v]:
                raise SpanConflictError(self.graph, v)
            if exclusive and self.view.shares(v, start, end):
                raise SpanConflictError(self.graph, v)

    def cancel(self, jobid: int) -> None:
        """Release all resources of a job. Raises KeyError for an unknown job."""
        allocation = self.jobs.pop(jobid)
        start, end = allocation.start, allocation.end
        units, users, maps, keys, amounts, common = self._spans.pop(jobid)
        own = common[1]
        for held, vertices in ((self.plans, units), (self.shared, users)):
            for v in vertices:
                plan = held[v]
                if plan is own:
                    del held[v]
                else:
                    plan.add(start, end, -1)
                    if not plan.times:
                        del held[v]
        for planners, key, amount in zip(maps, keys, amounts, strict=True):
            plan = planners[key]
            if plan is common.get(amount):
                del planners[key]
            else:
                plan.add(start, end, -amount)
        if self._excess:
            self.settle(list(self._excess))

    def settle(self, pools: Iterable[int]) -> None:
        """Limit the use of pools that is counted above them to their sizes, at each moment.

        More may be in use: a pool became smaller, or a job holds resources that were not free. Above the pool, the
        excess must not reduce the free amount of other pools.
        """
        graph = self.graph
        for v in pools:
            for start, end, amount in self._excess.pop(v, ()):
                self._count_above(v, start, end, amount)
            plan, size = self.plans.get(v), graph.size[v]
            if plan is None or max(plan.used, default=0) <= size:
                continue
            ends = [*plan.times[1:], plan.times[-1]]
            steps = zip(plan.times, ends, plan.used, strict=True)
            self._excess[v] = [(start, end, used - size) for start, end, used in steps if used > size]
            for start, end, amount in self._excess[v]:
                self._count_above(v, start, end, -amount)

    def _count_above(self, v: int, start: int, end: int, amount: int) -> None:
        """Change the amount in use, above a vertex, of the vertex's type."""
        kind = self.graph.type[v]
        for tree in (self.graph, *self.graph.others):
            busy = self.aggregates[tree.subsystem]
            for above in tree.ancestors(v):
                counts = busy.setdefault(above, {})
                plan = counts.get(kind)
                if plan is None:
                    plan = counts[kind] = Planner()
                elif plan.copy_on_write:
                    plan = counts[kind] = plan.copy()
                plan.add(start, end, amount)

    def hand_over(self, jobid: int, successor: int) -> Allocation:
        """Transfer the resources of a job to another job, which holds nothing. Raises KeyError."""
        _, start, end, reserved, selection = self.jobs.pop(jobid)
        allocation = self.jobs[successor] = Allocation(successor, start, end, reserved, selection)
        self._spans[successor] = self._spans.pop(jobid)
        return allocation

    def holders(self, nodes: Iterable[int]) -> list[int]:
        """The jobs that hold or have reserved resources of some nodes."""
        graph = self.graph
        if not graph.plain:
            gone = {u for v in nodes for u in graph.preorder(v)}
            chosen = {job: {item.vertex for item in found.selection.items} for job, found in self.jobs.items()}
            return [job for job, vertices in chosen.items() if not gone.isdisjoint(vertices)]
        inside = {u for v in nodes for u in graph.preorder(v)}
        above = {u for v in nodes for u in graph.ancestors(v)}
        found = []
        for jobid, allocation in self.jobs.items():
            inner = allocation.selection.inner
            if not inside.isdisjoint(inner) or any(inner[v].whole for v in above & inner.keys()):
                found.append(jobid)
        return found

    def free(self, v: int, type: str, at: int) -> int:
        """The amount of a type that is free at a moment in the subtree of `v`."""
        have = self.graph.totals[v].get(type, 0)
        plan = self.plans.get(v)
        if plan is not None and plan.at(at) >= self.graph.size[v]:
            return 0
        planner = self.busy.get(v, {}).get(type)
        return have - planner.at(at) if planner else have


def taken(selection: Selection) -> dict[int, int]:
    """The units of each vertex that become unavailable through a selection.

    These are the units taken of pools and single resources, and the contents of exclusive vertices.
    """
    graph = selection.graph
    found: dict[int, int] = {}
    for v, needs, exclusive, _, _ in selection.items:
        if exclusive and graph.children[v]:
            found.update((u, graph.size[u]) for u in graph.preorder(v))
        elif exclusive or (not graph.children[v] and graph.size[v] > 1):
            found.setdefault(v, needs)
    return found
