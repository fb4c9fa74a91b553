"""The jobs that hold resources of a graph, and all changes to jobs and graph.

Each change updates the planners (`usage`), the index of free resources (`timeline`) and the order among children
(`candidates`) together. Times are whole seconds and always arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.sched.graph import resize
from headrace.sched.graph.candidates import ChildOrder
from headrace.sched.graph.constraints import ConstraintCache
from headrace.sched.graph.inside import execution_ids
from headrace.sched.graph.matcher import Pick
from headrace.sched.graph.model import Graph
from headrace.sched.graph.policies import Policy, by_name
from headrace.sched.graph.selection import Selection, select
from headrace.sched.graph.timeline import Timeline
from headrace.sched.graph.usage import Allocation, SpanConflictError, Usage

# The types that are counted for subtrees by default (`-p`).
FILTERS = ("core", "node")


class InUseError(ValueError):
    """Nodes to be removed are in use: `jobs` hold or have reserved resources on them."""

    def __init__(self, jobs: list[int]) -> None:
        some = ", ".join(map(str, jobs[:8])) + (" ..." if len(jobs) > 8 else "")
        super().__init__(f"nodes in use by {len(jobs)} jobs ({some}): end them first, or take the nodes from them")
        self.jobs = jobs


class Loss(NamedTuple):
    """The jobs that a shrink affected.

    `reduced` jobs keep some resources, `ended` jobs keep none (a reservation is lost as a whole).
    """

    reduced: list[int]
    ended: list[int]


class Holdings:
    """A graph and the jobs that hold its resources, with a match policy.

    `filters` are the types whose amounts are counted for subtrees. A job that holds a vertex in one hierarchy holds it
    in all.
    """

    def __init__(self, graph: Graph, policy: Policy | str = "first", filters: Iterable[str] = FILTERS) -> None:
        self.graph = graph
        self.policy = by_name(policy) if isinstance(policy, str) else policy
        self.filters = tuple(filters)
        self._usage = Usage(graph)
        self.jobs = self._usage.jobs
        # The planners by vertex; see `Usage`.
        self.plans = self._usage.plans
        self.shared = self._usage.shared
        self.busy = self._usage.busy
        self.aggregates = self._usage.aggregates
        self._order = ChildOrder(graph, self.filters, self.policy.stops)
        self._orders = {graph.subsystem: self._order}
        self._constraints = ConstraintCache(graph)
        # Increases when the graph changes. Earlier answers of `satisfiable` may then be out of date.
        self.generation = 0
        self._timeline = Timeline(graph, self.policy, self._order, self._usage.view.in_use)
        # The lifted reservation, and whether it is still in the planners.
        self._lifted: tuple[Allocation, bool] | None = None

    def same_reservations_until(self, at: int, end: int) -> int:
        """The earliest end with which a job from `at` meets the same reservations as one until `end`.

        A job that ends between these two times fits no better than the one that ends at `end`.
        """
        return self._timeline.same_reservations_until(at, end)

    def prepare(self) -> None:
        """Build the index of free resources and the tables of nodes now, not at the first match."""
        self._timeline.prepare()
        self._order.prepare(self.graph.root)
        self._constraints.prepare()
        self.graph.least("node")
        for v in self.graph.nodes():
            execution_ids(self.graph, v)

    # Lifted reservations

    def lift(self, jobid: int) -> None:
        """Answer as if a reservation were not there, until `restore`. Raises KeyError."""
        held = self.jobs[jobid]
        # The index can usually ignore the reservation at no cost. Only a search reads the planners, so `_lift_fully`
        # removes the reservation from them before a search.
        self._lifted = held, self._timeline.lift(jobid)
        if not self._lifted[1]:
            self.cancel(jobid)

    def _lift_fully(self) -> None:
        """Remove the lifted reservation from the planners, before a search."""
        if self._lifted is not None and self._lifted[1]:
            held = self._lifted[0]
            self._timeline.restore(held.jobid)
            self.cancel(held.jobid)
            self._lifted = held, False

    def restore(self) -> None:
        """Undo `lift`."""
        if self._lifted is None:
            return
        held, partly = self._lifted
        self._lifted = None
        if partly:
            self._timeline.restore(held.jobid)
        else:
            self._book(held.jobid, held.selection, held.start, held.end, held.reserved)

    # Allocations

    def free_until(self, found: Allocation) -> int:
        """The time until which a matched selection stays free: the start of the next reservation on it.

        `found` has not been entered.
        """
        for end in sorted({job.start for job in self.jobs.values() if job.start >= found.end}):
            try:
                self._usage.check(found.selection, found.start, end + 1)
            except SpanConflictError:
                return end
        return self.graph.end

    def add(self, jobid: int, selection: Selection, start: int, end: int, reserved: bool) -> Allocation:
        """Allocate a selection to a job during [start, end).

        Raises SpanConflictError if the selection is not free, and ValueError if the job already holds resources or the
        end is not after the start. If it raises, nothing is changed.
        """
        if jobid not in self.jobs and end > start:
            self._usage.check(selection, start, end)
        return self.enter(jobid, selection, start, end, reserved)

    def enter(self, jobid: int, selection: Selection, start: int, end: int, reserved: bool) -> Allocation:
        """As `add`, for a selection that a match has just found free. It is not checked again."""
        allocation = self._book(jobid, selection, start, end, reserved)
        if selection.graph is self.graph:
            self._order.used(self._usage, selection, start)
        return allocation

    def _book(self, jobid: int, selection: Selection, start: int, end: int, reserved: bool) -> Allocation:
        """As `enter`, but without updating the order among children."""
        allocation = self._usage.add(jobid, selection, start, end, reserved)
        self._timeline.add(jobid, start, end, selection)
        return allocation

    def cancel(self, jobid: int) -> None:
        """Release all resources of a job. Raises KeyError for an unknown job."""
        self._usage.cancel(jobid)
        self._timeline.remove(jobid)

    def hand_over(self, jobid: int, successor: int) -> Allocation:
        """Transfer the resources of a job to another job, for the same time. Raises KeyError."""
        allocation = self._usage.hand_over(jobid, successor)
        self._timeline.hand_over(jobid, successor)
        return allocation

    def release(self, jobid: int, part: Selection) -> None:
        """Release part of a job's resources. A job left without exclusive resources is removed.

        A vertex that was allocated whole is released whole if `part` names nothing inside it. Raises KeyError.
        """
        allocation = self.jobs[jobid]
        selection = allocation.selection
        tree = selection.graph
        freed = {item.vertex for item in part.items if item.exclusive}
        kept: list[Pick] = []
        for pick in _picks(selection):
            inside = tree.preorder(pick.vertex)[1:] if pick.whole else []
            named = not freed.isdisjoint(inside)
            if pick.vertex not in freed:
                kept.append(pick._replace(whole=pick.whole and not named))
            if named:
                kept += [Pick(v, tree.size[v], True, False, ()) for v in inside if v not in freed]
        self.cancel(jobid)
        if any(pick.exclusive for pick in kept):
            self.add(jobid, _remaining(selection, kept), allocation.start, allocation.end, allocation.reserved)

    def set_property(self, v: int, key: str, value: str) -> None:
        """Set one property of a vertex."""
        self.set_properties(v, {**self.graph.properties.get(v, {}), key: value})

    def set_properties(self, v: int, properties: Mapping[str, str]) -> None:
        """Set all properties of a vertex. Existing ones that are not in `properties` are removed."""
        before = self.graph.properties.pop(v, {})
        if properties:
            self.graph.properties[v] = dict(properties)
        self.generation += 1
        self._constraints.forget()
        name = self.policy.node_property
        if name and before.get(name) != properties.get(name):
            # The order among nodes may have changed.
            self._timeline.forget()

    def set_size(self, v: int, size: int) -> list[int]:
        """Change the size (units) of a vertex without contents, such as a pool.

        Jobs keep their units. If they hold more than the new size, nothing of the pool is allocated until they hold
        less. Returns the jobs whose reservations cannot be kept: the caller cancels them. Raises GraphError, and then
        changes nothing.
        """
        graph, old = self.graph, self.graph.size[v]
        above = list(graph.ancestors(v))
        # A job that holds a whole vertex is counted with all contents of the vertex, there and above. These counts
        # depend on the size, so such jobs are removed and entered again.
        held = self._exclusive_users(above) if any(u in self.plans for u in above) else []
        for job in held:
            self.cancel(job.jobid)
        try:
            graph.set_size(v, size)
        finally:
            for job in held:
                self._book(job.jobid, job.selection, job.start, job.end, job.reserved)
        self.generation += 1
        self._timeline.resize(v, old, size)
        self._usage.settle((v,))
        return self._broken((v,))

    def hold(self, jobid: int, selection: Selection, start: int, end: int) -> list[int]:
        """Enter the resources that a job actually holds during [start, end), even if they are not free.

        The job may have been started by another scheduler. Returns the jobs whose reservations cannot be kept: the
        caller cancels them. Raises ValueError for a job that already holds resources, or an end that is not after the
        start.
        """
        self.enter(jobid, selection, start, end, False)
        held = [mark.vertex for mark in selection.order() if not mark.path]
        self._usage.settle([v for v in held if not self.graph.children[v]])
        return self._broken(held)

    def _broken(self, changed: Iterable[int]) -> list[int]:
        """The jobs whose reservations are broken: a changed vertex, or one above it, is no longer free."""
        size, view = self.graph.size, self._usage.view
        changed = tuple(changed)
        above = {u for v in changed for u in self.graph.ancestors(v)}
        broken = []
        for jobid in self._timeline.promised():
            _, start, end, _, selection = self.jobs[jobid]
            inner = selection.inner
            if any([v in inner and view.in_use(v, start, end) > size[v] for v in changed]) or any(
                [u in inner and inner[u].exclusive and view.shares(u, start, end) for u in above]
            ):
                broken.append(jobid)
        return broken

    def set_status(self, v: int, up: bool) -> None:
        """Mark a vertex up or down.

        Nothing below a vertex that is down is matched; running jobs keep their resources.
        """
        if bool(self.graph.up[v]) != up:
            self.graph.up[v] = 1 if up else 0
            self.generation += 1
            self._timeline.switch(v, up)

    # Growing and shrinking

    def grow(self, part: Graph) -> list[int]:
        """Add the vertices that only another graph has (`resize.grow`); returns the new vertices.

        Existing vertices keep their numbers. A job that holds a vertex exclusively also holds the new vertices in it.
        Raises GraphError, and then changes nothing.
        """
        graph = self.graph
        difference = resize.compare(graph, part)
        above = {u for v in difference.above(part) for u in (v, *graph.ancestors(v))}
        held = self._exclusive_users(above)
        for job in held:
            self.cancel(job.jobid)
        added = resize.insert(graph, part, difference)
        self._after_resize()
        for job in held:
            self.enter(job.jobid, _remaining(job.selection, _picks(job.selection)), job.start, job.end, job.reserved)
        return added

    def _exclusive_users(self, vertices: Iterable[int]) -> list[Allocation]:
        """The allocations and reservations that hold some of these vertices exclusively."""
        vertices = list(vertices)
        return [
            job
            for job in self.jobs.values()
            if any(mark.exclusive for v in vertices if (mark := job.selection.inner.get(v)) is not None)
        ]

    def users(self, ranks: int) -> list[int]:
        """The jobs that hold or have reserved resources on nodes of some ranks (a bit set)."""
        return self._usage.holders(self._nodes_of(ranks))

    def shrink(self, ranks: int, take: bool = False) -> Loss:
        """Remove the nodes of some ranks (a bit set).

        If jobs use them, InUseError lists the jobs and nothing is changed; with `take`, the jobs lose the nodes
        instead. Other vertices keep their numbers. Vertices that are added later may get the numbers of removed
        ones.
        """
        return self.prune(self._nodes_of(ranks), take)

    def prune(self, roots: list[int], take: bool = False) -> Loss:
        """As `shrink`, for subtrees. Raises GraphError, and changes nothing, for the graph's root."""
        jobs = self._usage.holders(roots)
        if jobs and not take:
            raise InUseError(jobs)
        resize.check(self.graph, roots)
        held = [self.jobs[jobid] for jobid in jobs]
        for jobid in jobs:
            self.cancel(jobid)
        gone = resize.remove(self.graph, roots)
        self._after_resize()
        loss = Loss([], [])
        for jobid, start, end, reserved, selection in held:
            kept = [pick for pick in _picks(selection) if pick.vertex not in gone]
            if (reserved and start > self._timeline.now) or not any(pick.exclusive for pick in kept):
                loss.ended.append(jobid)
            else:
                self.enter(jobid, _remaining(selection, kept), start, end, reserved)
                loss.reduced.append(jobid)
        return loss

    def _nodes_of(self, ranks: int) -> list[int]:
        rank = self.graph.rank
        return [v for v in self.graph.nodes() if rank[v] >= 0 and ranks >> rank[v] & 1]

    def _after_resize(self) -> None:
        self.generation += 1
        self._constraints.forget()
        for order in self._orders.values():
            order.after_resize()
        self._timeline.forget()

    def free(self, v: int, type: str, at: int) -> int:
        """The amount of a type that is free at a moment in the subtree of `v`."""
        return self._usage.free(v, type, at)


def _remaining(selection: Selection, picks: list[Pick]) -> Selection:
    """The selection of the remaining picks, in the same hierarchy."""
    return select(selection.graph, picks, reached_from=selection.reached_from)


def _picks(selection: Selection) -> list[Pick]:
    """The picks of a selection."""
    return [
        Pick(v, needs, exclusive, whole, ())
        for v, needs, exclusive, path, whole in selection.marks.values()
        if whole or not path
    ]
