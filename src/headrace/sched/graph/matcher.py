"""One match: the vertices that satisfy a request during [at, end), and the policy's choice among them.

The search walks a hierarchy from the root. A vertex of a requested type becomes a candidate once every request below it
is satisfied; a vertex of another type passes its children's candidates up, so that a request may skip levels of the
graph. Below a requested type, no level is skipped at a vertex with children of the next requested type, as in Fluxion.

A slot is assembled at the vertex that directly contains all its resources. If no vertex below contains them all, the
slot is assembled at a vertex that directly contains some of them. At every vertex that carries a request, and at the
root, the policy sorts the candidates and takes as many as the count allows (RFC 14).

A vertex with several parents is a candidate below only one of them in a match, so that nothing is counted twice: below
the first parent that the search reaches, unless the match below that parent fails.

Matching changes nothing: the result is a tree of picks, which the scheduler turns into spans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.sched.graph.constraints import HOSTS
from headrace.sched.graph.model import MAX_SIZE, Graph
from headrace.sched.graph.planner import Planner
from headrace.sched.graph.policies import Policy
from headrace.sched.graph.request import Request

# How many distributions of shared resources among kinds of slots are compared. The best of them is taken.
_MOST_TRIES = 2000
_LAST_CLASS = 9999


class Pick(NamedTuple):
    """A vertex taken: `needs` units of it, `whole` with everything below it, or with the picks in `below`.

    From a vertex without contents that is taken exclusively, only these units are taken: the rest of a pool stays free.
    """

    vertex: int
    needs: int
    exclusive: bool
    whole: bool
    below: Sequence[Pick]


class Candidate(NamedTuple):
    """Resources that satisfy `units` units of a request.

    They are one vertex, or the picks of one slot of which `units` fit into the same pools.
    """

    score: int
    units: int
    picks: Sequence[Pick]


Found = dict[str, list[Candidate]]


class View(NamedTuple):
    """The input of a match: the graph, and its use over time as planners.

    `plans` and `shared` are by vertex. `busy` has, by vertex and type, the use below the vertex (see `Usage`).
    """

    graph: Graph
    plans: Mapping[int, Planner]
    shared: Mapping[int, Planner]
    busy: Mapping[int, Mapping[str, Planner]]

    def in_use(self, v: int, start: int, end: int) -> int:
        """The maximum number of units of a pool in use at any moment of [start, end)."""
        plan, users = self.plans.get(v), self.shared.get(v)
        return (plan.peak(start, end) if plan is not None else 0) + (users.peak(start, end) if users is not None else 0)

    def shares(self, v: int, start: int, end: int) -> bool:
        """Whether any job uses a vertex, or anything below it, in [start, end) without holding it whole."""
        users = self.shared.get(v)
        if users is not None and users.peak(start, end):
            return True
        counts = self.busy.get(v)
        return counts is not None and any([planner.peak(start, end) for planner in counts.values()])

    def in_use_below(self, node: int, kind: str, at: int) -> int:
        """The units of a type in a node that jobs use at a moment, without vertices that are down."""
        if not self.shares(node, at, at + 1):
            return 0
        graph, plans = self.graph, self.plans
        held, down = set[int](), set[int]()
        count = 0
        for v in graph.preorder(node):
            above = graph.parent[v]
            if above in down or not graph.up[v]:
                down.add(v)
                continue
            if above in held or (graph.children[v] and v in plans and plans[v].at(at)):
                held.add(v)
            if graph.type[v] == kind:
                count += graph.size[v] if v in held else min(self.in_use(v, at, at + 1), graph.size[v])
        return count


class Failure(NamedTuple):
    """Why a match failed.

    `structural`: the graph is too small, so that no release or repair of resources could help.
    """

    type: str
    wanted: int
    available: int
    where: int
    structural: bool


def explain(graph: Graph, failure: Failure) -> str:
    """The failure as a sentence: the type that is short, by how much, and where."""
    where = "the whole graph" if failure.where == graph.root else graph.path(failure.where)
    lasting = "; no release of resources can help" if failure.structural else ""
    return f"{failure.wanted} {failure.type} wanted, {failure.available} can be had in {where}{lasting}"


class Matcher:
    """A search at one point in time.

    `allowed` are the node vertices that satisfy the constraint; None for all.
    """

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
        # Used only in graphs where vertices have several parents. `_seen`: vertices that were matched or rejected;
        # `_trail`: the matched ones in order; `reached_from`: the parent of each vertex that was not reached through
        # its first parent.
        self._seen: set[int] | None = set() if self.graph.more_parents else None
        self._trail: list[int] = []
        self.reached_from: dict[int, int] = {}

    def match(self, requests: Sequence[Request]) -> list[Pick] | None:
        """The picks that satisfy all of `requests`, or None with `failure` set."""
        root = self.graph.root
        found: Found = {}
        if not self._visit(root, requests, False, found, 0):
            self._note(requests[0].type, requests[0].count.low, 0, root, not self.blocked)
            return None
        picks = self._choose(root, requests, found)
        if picks is None and self.failure is not None:
            # Candidates may be short because they are in use. Only a request for several roots can never be met by a
            # release.
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

    # The matcher's innermost function, called for each vertex: a further function call would slow down every match.
    def _visit(  # noqa: C901, PLR0911, PLR0912
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
        """Collect the candidates that `v` has for the requests; True if there are any.

        `narrow`: only if `v` is of a requested type. `inside`: `v` lies below a vertex of a requested type.
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
        elif matched is not None and matched.takes_units:
            exclusive = False
        available = graph.size[v]
        plan = self.view.plans.get(v)
        if plan is not None:
            used = plan.peak(self.at, self.end)
            if used and (exclusive or used >= available):
                self.blocked = True
                return False
            available -= used
        takes_units = matched is not None and matched.takes_units
        if (exclusive or takes_units) and self.view.shares(v, self.at, self.end):
            self.blocked = True
            return False
        if self.allowed is not None and kind in HOSTS and v not in self.allowed:
            return False
        if self._seen is not None:
            if v in self._seen:
                return False
            self._seen.add(v)
        trail = len(self._trail)
        # A node's id adds to the scores of the vertices in it; its class and its use add to its own, too.
        score = base + graph.id[v] + 1 if policy.order else 0
        if kind == "node" and policy.order:
            weight = policy.node_weight * self._rating(v)
            base += weight
            score += weight if policy.node_property or policy.by_use else 0
        if matched is None:
            if not self._explore(v, requests, exclusive, found, base, times, inside):
                return self._forget_since(trail)
            if self._seen is not None:
                self._trail.append(v)
            return True
        if matched.with_:
            below = self._below(v, matched.with_, exclusive, base)
            if below is None:
                return self._forget_since(trail)
            pick = Pick(v, available, exclusive, is_whole or bool(matched.exclusive), below)
        else:
            pick = Pick(v, available, exclusive or takes_units, exclusive, ())
        found.setdefault(kind, []).append(Candidate(score, available, (pick,)))
        if self._seen is not None:
            self._trail.append(v)
        return True

    def _rating(self, v: int) -> int:
        """The number by which the policy compares a node with others, before its `node_weight`."""
        policy, graph = self.policy, self.graph
        if policy.by_use:
            kind = measured_by(graph)
            used = self.view.in_use_below(v, kind, self.at)
            # Ids are below 2^63, so an id decides only among nodes of the same class.
            return (policy.use_class(used, graph.totals[v].get(kind, 0)) << 63) + graph.id[v]
        return class_of(graph, v, policy.node_property) if policy.node_property else graph.id[v]

    def _forget_since(self, trail: int) -> bool:
        """The vertices matched since `trail` are not used here; let the search match them below other parents."""
        if self._seen is not None:
            self._seen.difference_update(self._trail[trail:])
            del self._trail[trail:]
        return False

    def _note_parent(self, child: int, v: int) -> None:
        if self.graph.parent[child] != v:
            self.reached_from[child] = v
        else:
            self.reached_from.pop(child, None)

    def _below(self, v: int, requests: Sequence[Request], exclusive: bool, base: int) -> list[Pick] | None:
        """Picks below `v` for one unit of the vertex or slot that contains `requests`."""
        found: Found = {}
        if not self._explore(v, requests, exclusive, found, base, 1, True):
            self._note(requests[0].type, requests[0].count.low, 0, v, True)
            return None
        return self._choose(v, requests, found)

    def _choose(self, v: int, requests: Sequence[Request], found: Found) -> list[Pick] | None:
        """The policy's picks from the candidates found below `v`; None with `failure` set.

        Sibling slots are alternatives; only one of them is served.
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
                    self._note_parent(child, v)
                if stops and self._enough(rest, found, times, counted):
                    break
        return any_found

    def _comes_next(self, v: int, requests: Sequence[Request]) -> bool:
        """Whether `v` has children of the types of `requests`, and none of the requests is a slot."""
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
        """As `_explore`, with the children of a requested type in order of preference.

        So the search can stop once it has enough of them. Siblings of one type differ in score by their ids alone, and
        at most as many of them as the count are taken.
        """
        any_found = False
        ends = not (self.policy.close or self.policy.node_property or self.policy.by_use)
        wanted = {r.type: r for r in requests if not r.is_slot}
        for kind, children in self.graph.kinds(v).items():
            request = wanted.get(kind)
            if request is None:
                for child in () if narrow else children:
                    if self._visit(child, requests, exclusive, found, base, times, False, inside):
                        any_found = True
                        if self._seen is not None:
                            self._note_parent(child, v)
                continue
            shares = units = 0
            limit = request.count.high
            for child in self.graph.ranked(v, kind, self.policy.order > 0):
                if self._visit(child, requests, exclusive, found, base, times):
                    any_found = True
                    if self._seen is not None:
                        self._note_parent(child, v)
                    units += found[kind][-1].units
                    if units >= limit:
                        shares, units = (
                            (shares + units // limit, units % limit) if request.takes_units else (shares + 1, 0)
                        )
                        if shares >= times and ends:
                            break
        return any_found

    def _holds(self, v: int, slot: Request) -> bool:
        """Whether slots of this kind are assembled at `v`."""
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
        """Whether there are enough candidates of each request for `times` slots.

        Slots share only pools of which they take units. `counted` has, by key, the number of candidates already
        counted, the slots they are enough for, and the units left over. Candidates are only ever appended.
        """
        for request in requests:
            key, wanted = request.key, request.count.top
            candidates = found.get(key, [])
            seen, shares, units = counted.get(key, (0, 0, 0))
            if seen < len(candidates):
                for candidate in candidates[seen:]:
                    units += candidate.units
                    if units >= wanted:
                        shares, units = (
                            (shares + units // wanted, units % wanted) if request.takes_units else (shares + 1, 0)
                        )
                counted[key] = (len(candidates), shares, units)
            if shares < times:
                return False
        return True

    def _slots(self, v: int, slots: list[Request], found: Found, base: int) -> bool:
        """Assemble as many slots as the resources below `v` allow; several kinds share the resources."""
        shape = slots[0].with_ if len(slots) == 1 else _union(slots)
        inside: Found = {}
        times = max(slot.count.high for slot in slots)
        if len(slots) > 1 and self.policy.order and not self.policy.stops:
            # The resources that each kind takes depend on all candidates.
            times = MAX_SIZE
        if not self._explore(v, shape, not all(r.takes_units for r in shape), inside, base, times, True):
            return False
        order = self.policy.order
        divided = {r.key for r in shape if r.takes_units}
        supply: dict[str, tuple[int, int]] = {}
        for key, candidates in inside.items():
            if order:
                candidates.sort(key=_by_score, reverse=order > 0)
            units = sum(c.units for c in candidates)
            supply[key] = (units, units if key in divided else len(candidates))
        kinds = [(slot, _shape_counts(slot, supply)) for slot in slots]
        numbers = _most_slots([counts for _, counts in kinds], supply)
        made = found.setdefault(slots[0].key, [])
        before = len(made)
        cursors = dict.fromkeys(inside, (0, 0))
        for (_, counts), number in zip(kinds, numbers, strict=True):
            left = number
            while left:
                candidate = _assemble(counts, inside, cursors, divided, left)
                if candidate is None:
                    break
                made.append(candidate)
                left -= candidate.units
        return len(made) > before

    def _take(self, request: Request, candidates: list[Candidate], count: int) -> list[Pick]:
        """The picks of the best `count` units; candidates of equal score keep the order of discovery.

        Alternative slots keep it too where the search stops at the first match, as recorded runs of Fluxion show.
        """
        order = self.policy.order
        if order and not (self.policy.stops and request.is_xor):
            candidates = sorted(candidates, key=_by_score, reverse=order > 0)
        if self.policy.close:
            candidates = self._closest(candidates, count)
        picks: list[Pick] = []
        for candidate in candidates:
            pick = candidate.picks[0]
            if request.is_slot and candidate.units > 1:
                slots = min(candidate.units, count)
                picks.extend([pick._replace(needs=pick.needs * slots) for pick in candidate.picks])
            elif candidate.units <= count or pick.exclusive:
                picks.extend(candidate.picks)
            else:
                picks.append(pick._replace(needs=count))
            count -= candidate.units
            if count <= 0:
                break
        return _joined(picks) if request.is_slot and any(part.takes_units for part in request.with_) else picks

    def _closest(self, candidates: list[Candidate], count: int) -> list[Candidate]:
        """The run of candidates with `count` units that has the smallest difference in score."""
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


def measured_by(graph: Graph) -> str:
    """The type whose use policies compare: cores, or the cpu of Kubernetes pods."""
    return "core" if graph.totals[graph.root].get("core") else "cpu"


def class_of(graph: Graph, v: int, name: str) -> int:
    """The number in a property of a vertex; without a valid number the last class."""
    try:
        found = int(graph.properties.get(v, {}).get(name, ""))
    except ValueError:
        return _LAST_CLASS
    return found if 0 <= found <= _LAST_CLASS else _LAST_CLASS


def _by_score(candidate: Candidate) -> int:
    return candidate.score


def _groups(slots: Sequence[Request]) -> list[list[Request]]:
    """Group slots: kinds that share resources form one group, each exclusive alternative its own group.

    Of kinds that request the same type with different contents only the first is used, as they cannot share candidates.
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
    """One request for each type in several kinds of slots: the first request of that type."""
    found: dict[str, Request] = {}
    for slot in slots:
        for request in slot.with_:
            found.setdefault(request.key, request)
    return list(found.values())


def _shape_counts(slot: Request, supply: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """The units of each type that a slot of this kind takes; 0 for a type with too little supply."""
    return {r.key: r.count.best(supply.get(r.key, (0, 0))[0]) for r in slot.with_}


def _most_slots(kinds: Sequence[Mapping[str, int]], supply: Mapping[str, tuple[int, int]]) -> list[int]:
    """The number of slots to make of each kind so that their sum is greatest; earlier kinds are preferred.

    Slots share only pools that they take units of, so there are at most as many slots as other vertices of each type.
    `supply` has the units of each type, and the number of slots that its vertices allow at most.
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


def _joined(picks: Iterable[Pick]) -> list[Pick]:
    """The picks of several slots, with one pick for each pool that they take units of."""
    joined: dict[int, Pick] = {}
    for pick in picks:
        before = joined.get(pick.vertex)
        joined[pick.vertex] = pick if before is None else pick._replace(needs=before.needs + pick.needs)
    return list(joined.values())


def _assemble(
    counts: Mapping[str, int],
    inside: Found,
    cursors: dict[str, tuple[int, int]],
    divided: set[str],
    most: int,
) -> Candidate | None:
    """The next slot, or up to `most` equal slots that take units of the same pools; None for none.

    `cursors` counts the candidates of each type that are used up, and the units taken of the next one. Types in
    `divided` are taken in units; candidates of other types are taken as a whole.
    """
    score = 0
    picks: list[Pick] = []
    equal = _equal_slots(counts, inside, cursors, divided, most)
    for key, count in counts.items():
        candidates = inside[key]
        have = 0
        while have < count:
            i, gone = cursors[key]
            if i >= len(candidates):
                return None
            candidate = candidates[i]
            score += candidate.score
            left = candidate.units - gone
            if key not in divided:
                have += left
                picks.extend(candidate.picks)
                cursors[key] = i + 1, 0
                continue
            units = min(left, count - have)
            have += units
            picks.append(candidate.picks[0]._replace(needs=units))
            gone += units * equal
            cursors[key] = (i, gone) if gone < candidate.units else (i + 1, 0)
    return Candidate(score, equal, picks)


def _equal_slots(
    counts: Mapping[str, int], inside: Found, cursors: Mapping[str, tuple[int, int]], divided: set[str], most: int
) -> int:
    """How many slots, at most `most`, take the same pools as the next slot.

    The result is 1 unless a slot takes only units of single pools.
    """
    if not counts.keys() <= divided:
        return 1
    for key, count in counts.items():
        i, gone = cursors[key]
        units = inside[key][i].units - gone if i < len(inside[key]) else 0
        most = min(most, units // count)
    return max(most, 1)
