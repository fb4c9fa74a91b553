"""One match: which vertices satisfy a request during [at, end), and which of those the policy takes.

The search walks a hierarchy from the root. A vertex of a requested type becomes a candidate once everything requested
below it is satisfied; a vertex of another type passes its children's candidates up, so a request may skip levels of
the graph. But below what was asked for, it skips none where children are of a type that comes next: in Fluxion it
never does there. A slot is put together at the vertex that directly contains all its resources; where there is none
below a vertex that directly contains some of them, at that one. At every vertex that carries a request, and at the
root, the policy sorts the candidates and takes as many as the count allows (RFC 14).

A vertex with several parents is part of what is found below one of them: below the first that is come to, unless what
was found there does not serve. So nothing is counted twice in one match.

Nothing changes while matching: the result is a tree of picks, which the scheduler turns into spans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.graph.constraints import HOSTS
from headrace.graph.introsort import introsorted
from headrace.graph.model import MAX_SIZE, Graph
from headrace.graph.planner import Planner
from headrace.graph.policies.policy import Policy
from headrace.graph.request import Request

# How many ways to share resources among kinds of slots are weighed before the best so far is taken.
_MOST_TRIES = 2000
_LAST_CLASS = 9999


class Pick(NamedTuple):
    """A vertex taken: `needs` units of it, exclusively or not, `whole` with everything below it, else with `below`."""

    vertex: int
    needs: int
    exclusive: bool
    whole: bool
    below: Sequence[Pick]


class Candidate(NamedTuple):
    """Something that would satisfy `units` units of a request: one vertex, or the picks of one slot."""

    score: int
    units: int
    picks: Sequence[Pick]


Found = dict[str, list[Candidate]]


class View(NamedTuple):
    """What a match reads: the graph, and its use over time (by vertex; `busy` by vertex and type for whole
    subtrees; see `Usage`).
    """

    graph: Graph
    plans: Mapping[int, Planner]
    shared: Mapping[int, Planner]
    busy: Mapping[int, Mapping[str, Planner]]

    def shares(self, v: int, start: int, end: int) -> bool:
        """Whether somebody uses a vertex, or anything below it, in [start, end) without having the vertex whole."""
        users = self.shared.get(v)
        if users is not None and users.peak(start, end):
            return True
        counts = self.busy.get(v)
        return counts is not None and any([planner.peak(start, end) for planner in counts.values()])


class Failure(NamedTuple):
    """Why nothing was found. `structural`: no release or repair of resources could help."""

    type: str
    wanted: int
    available: int
    where: int
    structural: bool


def explain(graph: Graph, failure: Failure) -> str:
    """A refusal in words: what is short, by how much, and where."""
    where = "the whole graph" if failure.where == graph.root else graph.path(failure.where)
    lasting = "; no release of resources can help" if failure.structural else ""
    return f"{failure.wanted} {failure.type} wanted, {failure.available} can be had in {where}{lasting}"


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
        # Only where vertices may have several parents. `_seen`: vertices already matched or found useless; `_trail`:
        # the matched ones in order; `came`: the parent of a vertex that was reached through another than its first.
        self._seen: set[int] | None = set() if self.graph.more_parents else None
        self._trail: list[int] = []
        self.came: dict[int, int] = {}

    def match(self, requests: Sequence[Request]) -> list[Pick] | None:
        """The picks that satisfy all of `requests`, or None with `failure` set."""
        root = self.graph.root
        found: Found = {}
        if not self._visit(root, requests, False, found, 0):
            self._note(requests[0].type, requests[0].count.low, 0, root, not self.blocked)
            return None
        picks = self._choose(root, requests, found)
        if picks is None and self.failure is not None:
            # Too few of the top level lies in the graph's size, unless the root itself was asked for several times.
            structural = self.failure.type == self.graph.type[root] and not self.blocked
            self.failure = self.failure._replace(structural=structural)
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

    def _visit(
        self,
        v: int,
        requests: Sequence[Request],
        exclusive: bool,
        found: Found,
        base: int,
        times: int = 1,
        narrow: bool = False,
        inside: bool = False,
    ) -> bool:
        """Collect what `v` has for the requests. `narrow`: only if it is of their types; `inside` of what was asked
        for by type.
        """
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
        if matched is None and narrow:
            return False
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
        if exclusive and self.view.shares(v, self.at, self.end):
            self.blocked = True
            return False
        if self.allowed is not None and kind in HOSTS and v not in self.allowed:
            return False
        if self._seen is not None:
            if v in self._seen:
                return False
            self._seen.add(v)
        trail = len(self._trail)
        # A node's number weighs in the scores of its contents; its class also in the node's own score.
        score = base + graph.id[v] + 1 if policy.order else 0
        if kind == "node":
            weight = policy.node_weight * (class_of(graph, v, policy.by) if policy.by else graph.id[v])
            base += weight
            score += weight if policy.by else 0
        if matched is None:
            if not self._explore(v, requests, exclusive, found, base, times, inside):
                return self._lost(trail)
            if self._seen is not None:
                self._trail.append(v)
            return True
        if matched.with_:
            below = self._below(v, matched.with_, exclusive, base)
            if below is None:
                return self._lost(trail)
            pick = Pick(v, available, exclusive, is_whole or bool(matched.exclusive), below)
        else:
            pick = Pick(v, available, exclusive, exclusive, ())
        found.setdefault(kind, []).append(Candidate(score, available, (pick,)))
        if self._seen is not None:
            self._trail.append(v)
        return True

    def _lost(self, trail: int) -> bool:
        """What was found since is of no use here; other parents may come to it."""
        if self._seen is not None:
            self._seen.difference_update(self._trail[trail:])
            del self._trail[trail:]
        return False

    def _came(self, child: int, v: int) -> None:
        if self.graph.parent[child] != v:
            self.came[child] = v
        else:
            self.came.pop(child, None)

    def _below(self, v: int, requests: Sequence[Request], exclusive: bool, base: int) -> list[Pick] | None:
        """Picks below `v` for one unit of what carries `requests`."""
        found: Found = {}
        if not self._explore(v, requests, exclusive, found, base, 1, True):
            self._note(requests[0].type, requests[0].count.low, 0, v, True)
            return None
        return self._choose(v, requests, found)

    def _choose(self, v: int, requests: Sequence[Request], found: Found) -> list[Pick] | None:
        """The policy's picks from what was found below `v`.

        Of sibling slots, which are alternatives, one count is served.
        """
        picks: list[Pick] = []
        served = False
        missing: Request | None = None
        available = 0
        for request in requests:
            if request.is_slot and served:
                continue
            candidates = found.get(request.key, [])
            qualified = sum(c.units for c in candidates)
            count = request.count.best(qualified)
            if count:
                served = served or request.is_slot
                picks.extend(self._take(request, candidates, count))
            elif missing is None:
                missing, available = request, qualified
            if not count and not request.is_slot:
                break
        if missing is None or (missing.is_slot and served):
            return picks
        self.failure = None
        self._note(missing.type, missing.count.low, available, v, True)
        return None

    def _explore(
        self,
        v: int,
        requests: Sequence[Request],
        exclusive: bool,
        found: Found,
        base: int,
        times: int,
        inside: bool = False,
    ) -> bool:
        """Collect candidates for `requests` below `v`, enough for `times` slots; True if there are any."""
        any_found = False
        rest = requests
        here = [r for r in requests if r.is_slot and self._holds(v, r)]
        if here:
            for slots in _groups(here):
                if self._slots(v, slots, found, base):
                    any_found = True
            rest = [r for r in requests if r not in here]
        if not rest:
            return any_found
        narrow = inside and self._comes_next(v, rest)
        if self.policy.order and not self.policy.stops:
            return self._explore_best(v, rest, exclusive, found, base, times, narrow, inside) or any_found
        stops = self.policy.stops
        counted: dict[str, tuple[int, int, int]] = {}
        for child in self.order(v):
            if self._visit(child, rest, exclusive, found, base, times, narrow, inside):
                any_found = True
                if self._seen is not None:
                    self._came(child, v)
                if stops and self._enough(rest, found, times, counted):
                    break
        return any_found

    def _comes_next(self, v: int, requests: Sequence[Request]) -> bool:
        """Whether children of a vertex are of the types of requests, none of which is a slot."""
        types = self.graph.kinds(v)
        return any([r.type in types for r in requests]) and not any([r.is_slot for r in requests])

    def _explore_best(
        self,
        v: int,
        requests: Sequence[Request],
        exclusive: bool,
        found: Found,
        base: int,
        times: int,
        narrow: bool,
        inside: bool,
    ) -> bool:
        """Children of a type that is asked for come best first, so the search among them ends when there are enough.

        Siblings of one type differ in score by their ids alone, and no more of them than the count can be taken.
        """
        any_found = False
        ends = not self.policy.close and not self.policy.by
        wanted = {r.type: r.count.high for r in requests if not r.is_slot}
        for kind, children in self.graph.kinds(v).items():
            limit = wanted.get(kind)
            if limit is None:
                for child in () if narrow else children:
                    if self._visit(child, requests, exclusive, found, base, times, False, inside):
                        any_found = True
                        if self._seen is not None:
                            self._came(child, v)
                continue
            shares = units = 0
            for child in self.graph.ranked(v, kind, self.policy.order > 0):
                if self._visit(child, requests, exclusive, found, base, times):
                    any_found = True
                    if self._seen is not None:
                        self._came(child, v)
                    units += found[kind][-1].units
                    if units >= limit:
                        shares, units = shares + 1, 0
                        if shares >= times and ends:
                            break
        return any_found

    def _holds(self, v: int, slot: Request) -> bool:
        """Whether slots of a kind are put together at `v`."""
        types = self._child_types.get(v)
        if types is None:
            types = self._child_types[v] = frozenset(self.graph.kinds(v))
        wanted = {r.type for r in slot.with_}
        if wanted <= types:
            return True
        return not wanted.isdisjoint(types) and v not in self.graph.above(frozenset(wanted))

    @staticmethod
    def _enough(
        requests: Sequence[Request], found: Found, times: int, counted: dict[str, tuple[int, int, int]]
    ) -> bool:
        """Whether there is enough of each request for `times` slots, between which no vertex is divided.

        `counted` has, by key, how many candidates were looked at before, for how many slots they do, and the units
        left over: more only ever come.
        """
        for request in requests:
            key, wanted = request.key, request.count.top
            candidates = found.get(key, [])
            seen, shares, units = counted.get(key, (0, 0, 0))
            if seen < len(candidates):
                for candidate in candidates[seen:]:
                    units += candidate.units
                    if units >= wanted:
                        shares, units = shares + 1, 0
                counted[key] = (len(candidates), shares, units)
            if shares < times:
                return False
        return True

    def _slots(self, v: int, slots: list[Request], found: Found, base: int) -> bool:
        """Put together as many slots as the resources below `v` allow; several kinds share what there is."""
        shape = slots[0].with_ if len(slots) == 1 else _union(slots)
        inside: Found = {}
        times = max(slot.count.high for slot in slots)
        if len(slots) > 1 and self.policy.order and not self.policy.stops:
            # How much each kind takes is settled only once everything is known.
            times = MAX_SIZE
        if not self._explore(v, shape, True, inside, base, times, True):
            return False
        order = self.policy.order
        supply: dict[str, tuple[int, int]] = {}
        for key, candidates in inside.items():
            if order:
                candidates.sort(key=_by_score, reverse=order > 0)
            supply[key] = (sum(c.units for c in candidates), len(candidates))
        kinds = [(slot, _shape_counts(slot, supply)) for slot in slots]
        numbers = _most_slots([counts for _, counts in kinds], supply)
        made = found.setdefault(slots[0].key, [])
        before = len(made)
        cursors = dict.fromkeys(inside, 0)
        for (_, counts), number in zip(kinds, numbers, strict=True):
            for _ in range(number):
                candidate = _assemble(counts, inside, cursors)
                if candidate is None:
                    break
                made.append(candidate)
        return len(made) > before

    def _take(self, request: Request, candidates: list[Candidate], count: int) -> list[Pick]:
        """The picks of the best `count` units; candidates of equal score keep the order of discovery.

        So do alternative slots where the search stops early, as recorded runs show. In graphs that are not one tree,
        for which there is no index that would have to choose the same, equals are in the order of Fluxion's sort.
        """
        order = self.policy.order
        if order and not (self.policy.stops and request.is_xor):
            if self.graph.plain:
                candidates = sorted(candidates, key=_by_score, reverse=order > 0)
            else:
                candidates = introsorted(candidates, _by_score, order > 0)
        if self.policy.close:
            candidates = self._closest(candidates, count)
        picks: list[Pick] = []
        for candidate in candidates:
            pick = candidate.picks[0]
            if candidate.units <= count or pick.exclusive:
                picks.extend(candidate.picks)
            else:
                picks.append(pick._replace(needs=count))
            count -= candidate.units
            if count <= 0:
                break
        return picks

    def _closest(self, candidates: list[Candidate], count: int) -> list[Candidate]:
        """The run of candidates with `count` units whose scores spread least."""
        best: tuple[int, int, int] | None = None
        end = units = 0
        for start, candidate in enumerate(candidates):
            while end < len(candidates) and units < count:
                units += candidates[end].units
                end += 1
            if units < count:
                break
            spread = candidates[end - 1].score - candidate.score
            if best is None or spread < best[0]:
                best = (spread, start, end)
            units -= candidate.units
        return candidates[best[1] : best[2]] if best else candidates


def class_of(graph: Graph, v: int, name: str) -> int:
    """The number in a property of a vertex; none, or one that cannot be, is the last."""
    try:
        found = int(graph.properties.get(v, {}).get(name, ""))
    except ValueError:
        return _LAST_CLASS
    return found if 0 <= found <= _LAST_CLASS else _LAST_CLASS


def _by_score(candidate: Candidate) -> int:
    return candidate.score


def _groups(slots: Sequence[Request]) -> list[list[Request]]:
    """Kinds of slots that share resources are made together; alternatives that exclude each other one by one.

    Kinds that want the same type with different things inside cannot share candidates: only the first of those is made.
    """
    together: list[Request] = []
    inner: dict[str, Request] = {}
    groups = []
    for slot in slots:
        if slot.is_xor:
            groups.append([slot])
            continue
        if any((r.with_ or inner[r.key].with_) and not _alike(r, inner[r.key]) for r in slot.with_ if r.key in inner):
            continue
        together.append(slot)
        for request in slot.with_:
            inner.setdefault(request.key, request)
    return ([together] if together else []) + groups


def _alike(a: Request, b: Request) -> bool:
    if (a.type, a.count, a.exclusive) != (b.type, b.count, b.exclusive):
        return False
    return len(a.with_) == len(b.with_) and all(map(_alike, a.with_, b.with_))


def _union(slots: Sequence[Request]) -> list[Request]:
    """One request a type out of several kinds of slots; the first of a type stands for it."""
    found: dict[str, Request] = {}
    for slot in slots:
        for request in slot.with_:
            found.setdefault(request.key, request)
    return list(found.values())


def _shape_counts(slot: Request, supply: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """How many units of each type a slot of this kind takes; 0 for a type of which there is too little."""
    return {r.key: r.count.best(supply.get(r.key, (0, 0))[0]) for r in slot.with_}


def _most_slots(kinds: Sequence[Mapping[str, int]], supply: Mapping[str, tuple[int, int]]) -> list[int]:
    """How many slots of each kind to make so that there are most in all; earlier kinds are preferred.

    A vertex is never divided between slots, so there are at most as many slots as vertices of each type.
    """

    def fit(counts: Mapping[str, int], units: Mapping[str, int], vertices: Mapping[str, int]) -> int:
        if not all(counts.values()):
            return 0
        return min(min(units.get(k, 0) // n, vertices.get(k, 0)) for k, n in counts.items())

    units = {k: s[0] for k, s in supply.items()}
    vertices = {k: s[1] for k, s in supply.items()}
    if len(kinds) == 1:
        return [fit(kinds[0], units, vertices)]

    tries = 0

    def best(i: int, units: dict[str, int], vertices: dict[str, int]) -> list[int]:
        nonlocal tries
        tries += 1
        most = fit(kinds[i], units, vertices)
        if i == len(kinds) - 1:
            return [most]
        chosen: list[int] = []
        for number in range(most, -1, -1):
            left = {k: n - number * kinds[i].get(k, 0) for k, n in units.items()}
            over = {k: n - number * (k in kinds[i]) for k, n in vertices.items()}
            numbers = [number, *best(i + 1, left, over)]
            if not chosen or sum(numbers) > sum(chosen):
                chosen = numbers
            if number < most - 64 or tries > _MOST_TRIES:
                break
        return chosen

    return best(0, units, vertices)


def _assemble(counts: Mapping[str, int], inside: Found, cursors: dict[str, int]) -> Candidate | None:
    """One slot from the next candidates of each type, which `cursors` count."""
    score = 0
    picks: list[Pick] = []
    for key, count in counts.items():
        candidates = inside[key]
        have = 0
        while have < count:
            i = cursors[key]
            if i >= len(candidates):
                return None
            cursors[key] = i + 1
            candidate = candidates[i]
            have += candidate.units
            score += candidate.score
            picks.extend(candidate.picks)
    return Candidate(score, 1, picks)
