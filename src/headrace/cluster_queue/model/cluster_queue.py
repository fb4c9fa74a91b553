"""A FluxQueue at work: its nodes as a graph, the pending jobs, and the holds on each node.

Each pod has a hold of its own for what it requests of its node, and so has each slot without a pod yet. So a pod that
ends releases only its own part. All pods of others on a node share one hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import Any, NamedTuple

from headrace.formats.spec.constraint import terms
from headrace.sched.graph import Graph
from headrace.sched.graph.request import JobRequest, parse_jobspec
from headrace.sched.graph.scheduler import Found, Scheduler, Starts
from headrace.sched.graph.selection import from_vertices
from headrace.sched.queueing.pending import UNLIMITED
from headrace.sched.queueing.queue import Decision, Queue, Started
from headrace.sched.queueing.reasons import FAR, places
from headrace.sched.queueing.why import amount_of

from ..crd import Settings
from . import constraints, nodes, resources
from .entry import LATENCY
from .quota import Account

Object = dict[str, Any]

# How often one step may call the queue again for work that a call has left unfinished.
_CALLS = 8
# The number of tests that are kept at least, whether a waiting job uses them or not.
_MOST_TESTS = 100


class Hold(NamedTuple):
    """Amounts reserved on a node from `start` to `end` (seconds since the epoch; an `end` of 0: no end)."""

    node: str
    amounts: resources.Amounts
    end: float
    start: float


class ClusterQueue:
    """The graph, queue and holds of a FluxQueue. Times are seconds since the epoch."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.scheduler = Scheduler(nodes.empty(), settings.match_policy, nodes.FILTERS)
        depth = {} if settings.queue_depth is None else {"depth": settings.queue_depth}
        self.queue = Queue(self.scheduler, settings.policy, reservations=settings.reservation_depth, **depth)
        self.nodes: dict[str, Object] = {}
        self.holds: dict[int, Hold] = {}
        self._vertex: dict[str, int] = {}
        self._holds_on: dict[str, dict[int, None]] = {}
        # Ids of holds are negative, ids of jobs positive.
        self._last_hold = 0
        # Whether there has been a node with a taint; and the tests that nodes have as properties.
        self.has_taints = False
        self._tests: dict[str, None] = {}
        # By node, the use by pods that run until someone deletes them.
        self._lasting: dict[str, resources.Amounts] = {}
        # By node, the amounts in use by pods outside the queue, those of `_lasting` included; and their sum.
        self._outside: dict[str, resources.Amounts] = {}
        self._taken: dict[str, int] = {}
        self._most_tests = _MOST_TESTS
        self._ranks = 0
        self.accounts = _accounts(settings)

    def set_settings(self, settings: Settings) -> None:
        """Use new settings with the same `Settings.of_graph`. All jobs must then be accounted again."""
        self.settings, self.accounts = settings, _accounts(settings)

    # --- nodes

    def put_node(self, node: Object, now: int) -> bool:
        """Add or update a node; returns whether anything has changed for jobs."""
        name, topology = node["metadata"]["name"], self.settings.topology
        before = self.nodes.get(name)
        self.has_taints = self.has_taints or bool(constraints.taints_of(node))
        if before is not None and nodes.levels_of(before, topology) != nodes.levels_of(node, topology):
            self.drop_node(name)
            before = None
        if before is None:
            self._ranks += 1
            self._add(name, nodes.part_of(node, self._ranks, self._tests, topology), now)
            self.nodes[name] = node
            self._resize(name, node, now)
        else:
            generation, self.nodes[name] = self.scheduler.generation, node
            self._resize(name, node, now)
            self._relabel(name)
            is_same = _state_of(before) == _state_of(node)
            if generation == self.scheduler.generation and is_same:
                return False
        self.scheduler.set_status(self._vertex[name], nodes.is_usable(node))
        self.queue.touch()
        return True

    def drop_node(self, name: str) -> None:
        """Remove a node. Its holds stay, and are entered again if the node comes back."""
        self.set_outside(name, {})
        if self.nodes.pop(name, None) is not None:
            self._remove(name)
            self.queue.touch()

    def _remove(self, name: str) -> None:
        for hold in self._holds_on.get(name, ()):
            self._leave(hold)
        graph, vertex = self.scheduler.graph, self._vertex.pop(name)
        self.queue.drop_plans_of(self.scheduler.users(1 << graph.rank[vertex]))
        # A topology level is removed with its last node.
        while graph.parent[vertex] != graph.root and len(graph.children[graph.parent[vertex]]) == 1:
            vertex = graph.parent[vertex]
        self.scheduler.prune([vertex], take=True)

    def is_usable(self, name: str, constraint: Any) -> bool:
        """Whether a pod with a constraint may start on a node."""
        if name not in self.nodes or not nodes.is_usable(self.nodes[name]):
            return False
        allowed = self._allowed(constraint)
        return allowed is None or self._vertex[name] in allowed

    def _allowed(self, constraint: Any) -> frozenset[int] | None:
        """The vertices of the nodes that satisfy a constraint; None for all nodes."""
        self._try([constraint])
        return self.scheduler.allowed(constraint)

    def _try(self, wanted: Iterable[Any]) -> None:
        """Give nodes the properties for all tests in some constraints."""
        tests = dict.fromkeys(test for one in wanted for test in _tests_in(one))
        if tests.keys() <= self._tests.keys():
            return
        self._tests.update(tests)
        if len(self._tests) > self._most_tests:
            # Users may write any number of tests. Those of waiting jobs are kept; others are evaluated again on demand.
            waiting = [one.constraint for job in self.queue.pending.values() for one in _sets_of(job.request)]
            self._tests = {**dict.fromkeys(test for one in waiting for test in _tests_in(one)), **tests}
            self._most_tests = max(2 * len(self._tests), _MOST_TESTS)
        for name in self.nodes:
            self._relabel(name)

    def _relabel(self, name: str) -> None:
        vertex, properties = self._vertex[name], nodes.properties_of(self.nodes[name], self._tests)
        if properties != self.scheduler.graph.properties.get(vertex, {}):
            self.scheduler.set_properties(vertex, properties)

    def _add(self, name: str, part: Graph, now: int) -> None:
        """Add the new parts of a node: the whole node, or pools."""
        for hold in self._holds_on.get(name, ()):
            self._leave(hold)
        for v in self.scheduler.grow(part):
            if self.scheduler.graph.type[v] == "node":
                self._vertex[name] = v
        for hold in self._holds_on.get(name, ()):
            self._enter(hold, now)

    def _resize(self, name: str, node: Object, now: int) -> None:
        """Set a node's pools to their current sizes. A pool whose resource the node no longer has is empty."""
        vertex, has, graph = self._vertex[name], self._has(node), self.scheduler.graph
        pools = self._pools(name)
        for kind, v in pools.items():
            if graph.size[v] != has.get(kind, 0):
                self.queue.drop_plans_of(self.scheduler.set_size(v, has.get(kind, 0)))
        if not has.keys() <= pools.keys():
            self._add(name, nodes.part_of(node, graph.rank[vertex], (), self.settings.topology), now)

    def _has(self, node: Object) -> dict[str, int]:
        """The amounts of a node for pods that end by themselves."""
        lasting = self._lasting.get(node["metadata"]["name"], {})
        return {kind: max(amount - lasting.get(kind, 0), 0) for kind, amount in nodes.amounts_of(node).items()}

    def set_lasting(self, name: str, amounts: resources.Amounts, now: int) -> bool:
        """Subtract the use of pods that never end by themselves from a node's size.

        Returns whether any amount became free. If a job waited for such pods, it would keep all other jobs waiting.
        """
        before = self._lasting.pop(name, {})
        if amounts:
            self._lasting[name] = amounts
        if before == amounts or name not in self.nodes:
            return False
        self._resize(name, self.nodes[name], now)
        self.queue.touch()
        return bool(resources.beyond(before, amounts))

    def set_outside(self, name: str, amounts: resources.Amounts) -> bool:
        """Set the amounts of a node that pods outside the queue use; returns whether they have changed."""
        before = self._outside.pop(name, {})
        for kind, amount in before.items():
            self._taken[kind] -= amount
        if amounts:
            self._outside[name] = amounts
            self._taken = resources.total((self._taken, amounts))
        return before != amounts

    def taken_by_others(self) -> str:
        """The end of a reason: the cpu, memory and GPUs that pods outside the queue use; "" if they use none."""
        graph, taken = self.scheduler.graph, self._taken
        used = [
            f"{kind} {amount_of(graph, kind, taken[kind])}" for kind in (*nodes.FILTERS[:2], "gpu") if taken.get(kind)
        ]
        return f"; pods outside the queue have {', '.join(used)} of its nodes" if used else ""

    def _pools(self, name: str) -> dict[str, int]:
        """The pools of a node by type."""
        graph = self.scheduler.graph
        return {graph.type[v]: v for v in graph.children[self._vertex[name]]}

    # --- holds

    def hold(self, node: str, amounts: resources.Amounts, now: int, end: float = 0, start: float = 0) -> int:
        """Hold amounts of a node, even if they are not free; returns the id of the hold."""
        self._last_hold -= 1
        self.holds[self._last_hold] = Hold(node, amounts, end, start)
        self._holds_on.setdefault(node, {})[self._last_hold] = None
        self._enter(self._last_hold, now)
        return self._last_hold

    def release(self, hold: int) -> None:
        """Release a hold. Raises KeyError."""
        self._leave(hold)
        del self._holds_on[self.holds[hold].node][hold]
        del self.holds[hold]

    def has_room(self, node: str, more: resources.Amounts) -> bool:
        """Whether a node has room for these amounts beside its current holds.

        Pods of others may have taken the room of a slot.
        """
        holds = [self.holds[hold] for hold in self._holds_on.get(node, ())]
        held = resources.total([more, *(hold.amounts for hold in holds if hold.start <= self.queue.now)])
        has = self._has(self.nodes[node])
        return all(held.get(kind, 0) <= amount for kind, amount in has.items())

    def node_with_room(self, amounts: resources.Amounts, constraint: Any) -> str:
        """A node where a pod fits beside the current holds, whatever is planned there; "" for none."""
        has_all = (name for name, one in self.nodes.items() if amounts.keys() <= self._has(one).keys())
        return next((one for one in has_all if self.is_usable(one, constraint) and self.has_room(one, amounts)), "")

    def _leave(self, hold: int) -> None:
        if hold in self.queue.running:
            self.queue.finish(hold)

    def _enter(self, hold: int, now: int) -> None:
        node, amounts, end, start = self.holds[hold]
        if node not in self._vertex:
            return
        pools = self._pools(node)
        taken = [(pools[kind], amount, True) for kind, amount in amounts.items() if kind in pools]
        if taken:
            # A hold without an end ends before a job without a duration that would start now. So a hold that is entered
            # again, as after a restart, lets no such job go ahead of a reservation.
            begin = max(ceil(start), now)
            until = max(ceil(end) if end else now + UNLIMITED - 1, begin + 1)
            self.queue.enter(hold, from_vertices(self.scheduler.graph, taken), begin, until)

    # --- jobs

    def another_node(self, amounts: resources.Amounts, constraint: Any, now: int, end: float) -> str:
        """A node where a pod can start now and run until `end` (0: no end); "" for none.

        Plans that begin after an unknown end do not count: they are not reservations, and are planned again.
        """
        self._allowed(constraint)
        seconds = max(ceil(end) - now, 1) if end else FAR
        request = parse_jobspec(resources.jobspec("pod", "", 1, amounts, seconds, constraint))
        found = self.scheduler.search(request, now, [Starts(now, now + 1)])
        return nodes.names_in(found.selection)[0] if found.selection else ""

    def earliest(self, request: JobRequest, now: int, is_later: bool) -> Found:
        """The resources for a request beside the current plans, if it starts now.

        With `is_later`, it starts at the earliest time at which it fits and which does not depend on an unknown end.
        """
        self.queue.advance(now)
        self._allowed(request.constraint)
        full = request if request.duration else request.lasting(UNLIMITED)
        return self.scheduler.search(full, now, [Starts(now, now + (FAR if is_later else 1))])

    def beside(self, others: Iterable[str], label: str) -> Any:
        """The constraint on nodes with the same value of a label as `others`; None if none of these exists."""
        found = [self.nodes[name]["metadata"].get("labels") or {} for name in others if name in self.nodes]
        return {"properties": [f"{label}={found[0].get(label, '')}"]} if found else None

    def submit(self, jobid: int, request: JobRequest, priority: int, arrival: float) -> None:
        self._try(one.constraint for one in _sets_of(request))
        # A job without a duration is planned with an end that is far off.
        full = request.lasting(request.duration + LATENCY if request.duration else UNLIMITED)
        self.queue.submit(jobid, full, priority, arrival)

    def reserved_start(self, jobid: int, now: float) -> float:
        """The start of a waiting job with a reservation that does not depend on an unknown end; else 0."""
        plan = self.queue.planned.get(jobid)
        return float(plan.start) if plan and now < plan.start < now + FAR else 0

    def expected_starts(self, now: int) -> Iterator[tuple[int, float]]:
        """The waiting jobs in order, each with the start expected by sums of resources; 0 if unknown.

        See `queueing.forecast`. Jobs may be added and removed during the iteration.
        """
        for step in places(self.scheduler, [self.queue], now, nodes.SUMMED):
            if step is not None:
                jobid, place = step
                yield jobid, place.start if now < place.start < now + FAR else 0

    def withdraw(self, jobid: int) -> None:
        """Withdraw a pending job. Unknown jobs are ignored."""
        if jobid in self.queue.pending:
            self.queue.cancel(jobid)

    def schedule(self, now: int) -> Iterable[tuple[Decision, list[list[str]]]]:
        """The current decisions of the queue. For a started job with the nodes: one for each pod of each set.

        The started job holds nothing yet: the caller must hold its slots at once.
        """
        for _ in range(_CALLS):
            for decision in self.queue.schedule(now):
                given: list[list[str]] = []
                if isinstance(decision, Started):
                    selection = decision.allocation.selection
                    given = [nodes.names_in(one) for one in selection.sets or (selection,)]
                    self.queue.finish(decision.jobid)
                yield decision, given
            if not self.queue.unfinished:
                break


def _state_of(node: Object) -> tuple[bool, bool]:
    """Whether a node accepts pods, and whether it ends the pods that it has."""
    return nodes.is_usable(node), nodes.is_ready(node)


def _sets_of(request: JobRequest) -> Sequence[JobRequest]:
    return request.sets or (request,)


def _tests_in(constraint: Any) -> Iterator[str]:
    """The properties in a constraint that are tests."""
    for kind, value in terms(constraint or {}):
        if kind == "properties" and constraints.is_test(value.lstrip("^")):
            yield value.lstrip("^")


def _accounts(settings: Settings) -> dict[str, Account]:
    """The accounts of the namespaces with a quota."""
    return {namespace: Account(namespace, quota) for namespace, quota in settings.quotas.items()}
