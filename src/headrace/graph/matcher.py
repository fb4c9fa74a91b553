"""One match: which vertices satisfy a request during [at, end), and which of those the policy takes.

The search walks containment from the root. A vertex of a requested type becomes a candidate once everything requested below it
is satisfied; a vertex of another type passes its children's candidates up, so a request may skip levels of the graph. A slot
is put together at the lowest vertex that directly contains one of its resources. At every vertex that carries a request, and at the
root, the policy sorts the candidates and takes as many as the count allows (RFC 14).

Nothing changes while matching: the result is a tree of picks, which the scheduler turns into spans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.graph.model import Graph
from headrace.graph.planner import Planner
from headrace.graph.policies.policy import Policy
from headrace.graph.request import Request


class Pick(NamedTuple):
    """A vertex taken: `needs` units of it, exclusively or not, `whole` with everything below it, else with `below`."""

    vertex: int
    needs: int
    exclusive: bool
    whole: bool
    below: Sequence[Pick]


class Candidate(NamedTuple):
    """Something that would satisfy `count` units of a request: one vertex, or the picks of one slot."""

    score: int
    count: int
    picks: Sequence[Pick]


Found = dict[str, list[Candidate]]


class View(NamedTuple):
    """What a match reads: the graph, and its use over time (by vertex; `busy` by vertex and type for whole subtrees)."""

    graph: Graph
    plans: Mapping[int, Planner]
    shared: Mapping[int, Planner]
    busy: Mapping[int, Mapping[str, Planner]]


class Failure(NamedTuple):
    """Why nothing was found. `structural`: no release or repair of resources could help."""

    type: str
    wanted: int
    available: int
    where: int
    structural: bool


class Matcher:
    """A search at one point in time. `allowed` are the node vertices a constraint leaves, None for all."""

    def __init__(
        self,
        view: View,
        policy: Policy,
        at: int,
        end: int,
        order: Callable[[int], Iterable[int]],
        allowed: frozenset[int] | None = None,
    ) -> None:
        self.view = view
        self.graph = view.graph
        self.policy = policy
        self.at = at
        self.end = end
        self.order = order
        self.allowed = allowed
        self.blocked = False
        self.failure: Failure | None = None
        self._child_types: dict[int, frozenset[str]] = {}

    def match(self, requests: Sequence[Request]) -> list[Pick] | None:
        """The picks that satisfy all of `requests`, or None with `failure` set."""
        root = self.graph.root
        found: Found = {}
        if not self._visit(root, requests, False, found, 0):
            self._note(requests[0].type, requests[0].count.low, 0, root, not self.blocked)
            return None
        picks: list[Pick] = []
        for request in requests:
            candidates = found.get(request.type, [])
            qualified = sum(c.count for c in candidates)
            count = request.count.best(qualified)
            if not count:
                structural = request.type == self.graph.type[root] and not self.blocked
                self.failure = None
                self._note(request.type, request.count.low, qualified, root, structural)
                return None
            picks.extend(self._take(candidates, count))
        return picks

    def _note(self, type: str, wanted: int, available: int, where: int, structural: bool) -> None:
        if self.failure is None:
            self.failure = Failure(type, wanted, available, where, structural)
        elif self.failure.structural != structural:
            self.failure = self.failure._replace(structural=structural)

    def _fits(self, v: int, needs: Mapping[str, int]) -> bool:
        totals = self.graph.totals[v]
        busy = self.view.busy.get(v)
        for name, amount in needs.items():
            have = totals.get(name, 0)
            if have < amount:
                return False
            if busy is not None:
                planner = busy.get(name)
                if planner is not None and have - planner.peak(self.at, self.end) < amount:
                    self.blocked = True
                    return False
        return True

    def _visit(self, v: int, requests: Sequence[Request], exclusive: bool, found: Found, base: int) -> bool:
        graph, policy = self.graph, self.policy
        if not graph.up[v]:
            self.blocked = True
            return False
        kind = graph.type[v]
        matched = None
        for request in requests:
            if request.type == kind:
                matched = request
                break
        if matched is not None:
            if not self._fits(v, matched.needs):
                return False
        else:
            for request in requests:
                if self._fits(v, request.needs):
                    break
            else:
                return False
        is_whole = kind in policy.whole
        if is_whole or (matched is not None and matched.exclusive):
            exclusive = True
        available = graph.size[v]
        plan = self.view.plans.get(v)
        if plan is not None:
            used = plan.peak(self.at, self.end)
            if used and (exclusive or used >= available):
                self.blocked = True
                return False
            available -= used
        if exclusive:
            users = self.view.shared.get(v)
            if users is not None and users.peak(self.at, self.end):
                self.blocked = True
                return False
        if kind == "node":
            if self.allowed is not None and v not in self.allowed:
                return False
            base += policy.node_weight * graph.id[v]
        if matched is None:
            return self._explore(v, requests, exclusive, found, base, 1)
        score = base + graph.id[v] + 1 if policy.order else 0
        if matched.with_:
            below = self._below(v, matched.with_, exclusive, base)
            if below is None:
                return False
            pick = Pick(v, available, exclusive, is_whole or bool(matched.exclusive), below)
        else:
            pick = Pick(v, available, exclusive, exclusive, ())
        found.setdefault(kind, []).append(Candidate(score, available, (pick,)))
        return True

    def _below(self, v: int, requests: Sequence[Request], exclusive: bool, base: int) -> list[Pick] | None:
        """Picks below `v` for one unit of what carries `requests`."""
        found: Found = {}
        if not self._explore(v, requests, exclusive, found, base, 1):
            self._note(requests[0].type, requests[0].count.low, 0, v, True)
            return None
        picks: list[Pick] = []
        for request in requests:
            candidates = found.get(request.type, [])
            qualified = sum(c.count for c in candidates)
            count = request.count.best(qualified)
            if not count:
                self._note(request.type, request.count.low, qualified, v, True)
                return None
            picks.extend(self._take(candidates, count))
        return picks

    def _explore(
        self, v: int, requests: Sequence[Request], exclusive: bool, found: Found, base: int, times: int
    ) -> bool:
        """Collect candidates for `requests` below `v`; True if there are any."""
        any_found = False
        rest = requests
        for request in requests:
            if request.is_slot and self._holds(v, request.with_):
                if self._slot(v, request, found, base):
                    any_found = True
                rest = [r for r in rest if r is not request]
        if not rest:
            return any_found
        stops = self.policy.stops
        for child in self.order(v):
            if self._visit(child, rest, exclusive, found, base):
                any_found = True
                if stops and self._enough(rest, found, times):
                    break
        return any_found

    def _holds(self, v: int, requests: Sequence[Request]) -> bool:
        types = self._child_types.get(v)
        if types is None:
            graph = self.graph
            types = self._child_types[v] = frozenset(graph.type[c] for c in graph.children[v])
        return any(r.type in types for r in requests)

    @staticmethod
    def _enough(requests: Sequence[Request], found: Found, times: int) -> bool:
        for request in requests:
            wanted = request.count.high * times
            if sum(c.count for c in found.get(request.type, ())) < wanted:
                return False
        return True

    def _slot(self, v: int, slot: Request, found: Found, base: int) -> bool:
        """Put together as many slots as the resources directly and further below `v` allow."""
        inside: Found = {}
        if not self._explore(v, slot.with_, True, inside, base, slot.count.high):
            return False
        counts = []
        slots = None
        for request in slot.with_:
            candidates = inside.get(request.type, [])
            qualified = sum(c.count for c in candidates)
            count = request.count.best(qualified)
            if not count:
                return False
            counts.append(count)
            # A vertex is never divided between slots, so there are at most as many slots as vertices.
            fit = min(qualified // count, len(candidates))
            slots = fit if slots is None else min(slots, fit)
            if self.policy.order:
                candidates.sort(key=_by_score, reverse=self.policy.order > 0)
        made = found.setdefault(slot.type, [])
        cursors = [0] * len(counts)
        for _ in range(slots or 0):
            score = 0
            picks: list[Pick] = []
            for i, request in enumerate(slot.with_):
                candidates = inside[request.type]
                have = 0
                while have < counts[i]:
                    if cursors[i] >= len(candidates):
                        return bool(made)
                    candidate = candidates[cursors[i]]
                    cursors[i] += 1
                    have += candidate.count
                    score += candidate.score
                    picks.extend(candidate.picks)
            made.append(Candidate(score, 1, picks))
        return bool(made)

    def _take(self, candidates: list[Candidate], count: int) -> list[Pick]:
        """The picks of the best `count` units; candidates of equal score keep the order of discovery."""
        order = self.policy.order
        if order:
            candidates = sorted(candidates, key=_by_score, reverse=order > 0)
        picks: list[Pick] = []
        for candidate in candidates:
            if candidate.count <= count:
                picks.extend(candidate.picks)
            else:
                # Part of a pool: an exclusive vertex is taken whole all the same.
                pick = candidate.picks[0]
                picks.append(pick._replace(needs=count))
            count -= candidate.count
            if count <= 0:
                break
        return picks


def _by_score(candidate: Candidate) -> int:
    return candidate.score
