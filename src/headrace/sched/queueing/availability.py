"""The availability profile: counts of free holders over time, so that most starts need no search.

A job with a long queue before it could start at thousands of moments, and at nearly all of them too little is free for
its whole length. The profile shows that without a search of the graph. For each kind of slot it has, over time, the set
of holders that have such a slot free; the holders that are free from one moment to another are the intersection of the
sets in between.

The profile counts resources without knowing which cores are free, and does not know the jobs of other queues. So a
window of the profile may turn out not to fit, but every start that fits lies in a window. Pools count by their units.

A holder is a vertex that directly holds single resources (a socket, or a node without sockets), or a node without any.
Sets of holders are integers whose bits are holders, numbered in the order of the graph. Times are in seconds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from headrace.sched.graph.model import Graph
from headrace.sched.graph.planner import Planner
from headrace.sched.graph.request import Request
from headrace.sched.graph.scheduler import Starts
from headrace.sched.graph.usage import Allocation
from headrace.sched.queueing.failed_searches import ALL_HOLDERS

_BEGIN = -(2**62)
_END = 2**62
# `longest_window` reads at most this many steps.
_MAX_STEPS = 192
# The cost of a call that reads no step, in steps.
_PROBE = 32
# `fits` reads at most this many steps, so that an answer costs no more than one of the index.
_FIT_STEPS = 32
_SLOT_PROFILES_KEPT = 128

Parts = tuple[tuple[str, int], ...]


class _HolderSets:
    """A set of holders over time, a step function that begins full.

    It is `sets[i]` during [times[i], times[i + 1]).
    """

    __slots__ = ("_all", "_tidy", "sets", "times")

    def __init__(self, all_: int) -> None:
        self._all = all_
        self.times = [_BEGIN]
        self.sets = [all_]
        self._tidy = 64

    def _cut(self, t: int) -> int:
        i = bisect_left(self.times, t)
        if i == len(self.times) or self.times[i] != t:
            self.times.insert(i, t)
            self.sets.insert(i, self.sets[i - 1])
        return i

    def _join(self, i: int) -> None:
        if self.sets[i] == self.sets[i - 1]:
            del self.sets[i], self.times[i]

    def take(self, start: int, end: int, mask: int) -> None:
        """Remove the holders of `mask` from the set during [start, end)."""
        i, j = self._cut(start), self._cut(end)
        keep = ~mask
        self.sets[i:j] = [s & keep for s in self.sets[i:j]]
        self._join(j)
        self._join(i)

    def give(self, start: int, end: int, mask: int) -> None:
        """Add the holders of `mask` to the set during [start, end)."""
        i, j = self._cut(start), self._cut(end)
        self.sets[i:j] = [s | mask for s in self.sets[i:j]]
        self._join(j)
        self._join(i)

    def forget(self, before: int) -> None:
        """Discard the steps before a moment. Where there are many steps, join neighbours that are equal."""
        i = bisect_right(self.times, before) - 1
        if i > 0:
            del self.times[1 : i + 1], self.sets[:i]
        if len(self.times) > self._tidy:
            times, sets = self.times[:1], self.sets[:1]
            for t, s in zip(self.times, self.sets, strict=True):
                if s != sets[-1]:
                    times.append(t)
                    sets.append(s)
            self.times, self.sets = times, sets
            self._tidy = 64 + 2 * len(times)


class _SlotProfile:
    """The holders that have one slot of some parts free over time.

    Jobs that hold a holder exclusively are not counted here.
    """

    __slots__ = ("room", "steps")

    def __init__(self, room: dict[str, list[int]], able: int) -> None:
        # By type and holder, how much may be used while one slot stays free; negative where a slot never fits.
        self.room = room
        self.steps = _HolderSets(able)


class Need(NamedTuple):
    """The free holders that a request needs: at least `wanted` of those in `among`.

    They must have slots of `parts` free (None: the whole holder). At least one of the free holders must be in `of`. The
    holders `own` count as free from `since` on.
    """

    parts: Parts | None
    among: int
    wanted: int
    of: int = ALL_HOLDERS
    own: int = 0
    since: int = 0


class _Usage(NamedTuple):
    """The use of a job: the holders `whole`, the `nodes` that it shares, and `parts`, by holder and type.

    `holders` are all of these holders, and the first holder of each node.
    """

    allocation: Allocation
    holders: int
    whole: int
    nodes: list[int]
    parts: dict[tuple[int, str], int]


class AvailabilityProfile:
    """The holders of a graph that are free over time, given the jobs that were entered.

    `work` counts the steps that were read. `whole` are the types that the match policy gives as whole vertices only.
    """

    def __init__(self, graph: Graph, whole: frozenset[str]) -> None:
        self.graph = graph
        # The totals of the graph. A change of the graph replaces this object.
        self._totals = graph.totals[graph.root]
        self.work = 0
        self._usable = whole <= {"node"}
        self._whole_only = bool(whole)
        self._jobs: dict[int, _Usage] = {}
        self._number: dict[int, int] = {}
        # By holder, the number of its kind; by kind, the amounts of each type. Graphs have few kinds of holders.
        self._have: list[int] = []
        self._kinds: list[dict[str, int]] = []
        # By node: the set of its holders, and its first holder, which represents the node when nodes are counted.
        self._masks: dict[int, int] = {}
        self._first: dict[int, int] = {}
        # By type, the holders of its vertices. A type is listed only if all its vertices are in nodes, on one level of
        # each node, and each is a single resource or the only vertex of this type of its holder.
        self._held_by: dict[str, frozenset[int]] = {}
        self._find_holders()
        self._all = (1 << len(self._have)) - 1
        self._heads = sum(self._first.values())
        # Holders that no job holds exclusively, and the holders of nodes that no job shares.
        self._free = _HolderSets(self._all)
        self._untouched = _HolderSets(self._all)
        self._users: dict[int, Planner] = {}
        self._used: dict[tuple[int, str], Planner] = {}
        self._slot_profiles: dict[Parts, _SlotProfile] = {}

    def _find_holders(self) -> None:
        graph = self.graph
        types, children, size = graph.type, graph.children, graph.size
        seen: dict[str, int] = {}
        odd: set[str] = set()
        number: dict[tuple[tuple[str, int], ...], int] = {}

        def add(have: dict[str, int]) -> None:
            kind = number.setdefault(tuple(sorted(have.items())), len(self._kinds))
            if kind == len(self._kinds):
                self._kinds.append(have)
            self._have.append(kind)

        held_at: dict[str, set[int]] = {}
        for node in graph.preorder(graph.root):
            if types[node] != "node":
                continue
            first = len(self._have)
            for v in graph.preorder(node):
                have: dict[str, int] = {}
                pools: set[str] = set()
                for child in children[v]:
                    if not children[child]:
                        kind = types[child]
                        if kind in pools or (kind in have and size[child] != 1):
                            odd.add(kind)
                        if size[child] != 1:
                            pools.add(kind)
                        have[kind] = have.get(kind, 0) + size[child]
                if have:
                    above = [u for u in graph.ancestors(v) if u in self._number]
                    odd.update(
                        kind for u in above for kind in have.keys() & self._kinds[self._have[self._number[u]]].keys()
                    )
                    for kind, count in have.items():
                        seen[kind] = seen.get(kind, 0) + count
                        held_at.setdefault(kind, set()).add(len(self._have))
                    self._number[v] = len(self._have)
                    add(have)
            if len(self._have) == first:
                self._number[node] = first
                add({})
            self._first[node] = 1 << first
            self._masks[node] = (1 << len(self._have)) - (1 << first)
        totals = graph.totals[graph.root]
        for kind, holders in held_at.items():
            if kind not in odd and seen[kind] == totals.get(kind, 0):
                self._held_by[kind] = frozenset(holders)

    def _mask(self, v: int) -> int:
        """The holders in the subtree of a vertex."""
        found = self._masks.get(v)
        if found is None:
            found = 0
            for below in self.graph.preorder(v):
                holder = self._number.get(below)
                if holder is not None:
                    found |= 1 << holder
            self._masks[v] = found
        return found

    def outdated(self) -> bool:
        """Whether the graph has other vertices or sizes than the profile."""
        return self._totals is not self.graph.totals[self.graph.root]

    # Jobs

    def add(self, jobid: int, allocation: Allocation) -> None:
        """Enter the allocation or reservation of a job, replacing the previous one."""
        if jobid in self._jobs:
            self.remove(jobid)
        usage = self._jobs[jobid] = self._usage_of(allocation)
        start, end = allocation.start, allocation.end
        if usage.whole:
            self._free.take(start, end, usage.whole)
        for node in usage.nodes:
            planner = self._users.setdefault(node, Planner())
            planner.add(start, end, 1)
            for a, b in _overcommitted(planner, start, end, 0, 1):
                self._untouched.take(a, b, self._masks[node])
        for (holder, kind), amount in usage.parts.items():
            planner = self._used.setdefault((holder, kind), Planner())
            planner.add(start, end, amount)
            for slot_profile in self._slot_profiles.values():
                if kind in slot_profile.room:
                    for a, b in _overcommitted(planner, start, end, slot_profile.room[kind][holder], amount):
                        slot_profile.steps.take(a, b, 1 << holder)

    def remove(self, jobid: int) -> int:
        """Remove the allocation or reservation of a job. Returns its holders, all if it was not entered."""
        usage = self._jobs.pop(jobid, None)
        if usage is None:
            return ALL_HOLDERS
        start, end = usage.allocation.start, usage.allocation.end
        if usage.whole:
            self._free.give(start, end, usage.whole)
        for node in usage.nodes:
            planner = self._users[node]
            for a, b in _overcommitted(planner, start, end, 0, 1):
                self._untouched.give(a, b, self._masks[node])
            planner.add(start, end, -1)
        for (holder, kind), amount in usage.parts.items():
            planner = self._used[holder, kind]
            for slot_profile in self._slot_profiles.values():
                if kind in slot_profile.room:
                    for a, b in _overcommitted(planner, start, end, slot_profile.room[kind][holder], amount):
                        slot_profile.steps.give(a, b, 1 << holder)
                        for other, rooms in slot_profile.room.items():
                            # The holder is still short of another type during [a, b).
                            beside = self._used.get((holder, other)) if other != kind else None
                            if beside is not None:
                                for c, d in _overcommitted(beside, a, b, rooms[holder], None):
                                    slot_profile.steps.take(c, d, 1 << holder)
            planner.add(start, end, -amount)
        return usage.holders

    def holders_of(self, jobid: int) -> int:
        """The holders of a job, all if it was not entered."""
        return self._jobs[jobid].holders if jobid in self._jobs else ALL_HOLDERS

    def discard_before(self, now: int) -> None:
        """Discard the profile of the time before `now`."""
        for steps in (
            self._free,
            self._untouched,
            *(slot_profile.steps for slot_profile in self._slot_profiles.values()),
        ):
            steps.forget(now)

    def stale(self, jobs: dict[int, Allocation]) -> Iterator[int]:
        """The entered jobs whose allocation in `jobs` differs or is missing."""
        return (jobid for jobid, usage in list(self._jobs.items()) if jobs.get(jobid) is not usage.allocation)

    def _usage_of(self, allocation: Allocation) -> _Usage:
        graph, holder = self.graph, self._number
        types, parent, children, size = graph.type, graph.parent, graph.children, graph.size
        whole = 0
        nodes: list[int] = []
        parts: dict[tuple[int, str], int] = {}
        for h, run in allocation.selection.runs.items():
            at = holder.get(h)
            if at is not None:
                for kind, ids in run.ids.items():
                    parts[at, kind] = ids.bit_count()
        for v, needs, exclusive, _, _ in allocation.selection.inner_order():
            if exclusive and (children[v] or v in holder):
                whole |= self._mask(v)
            elif not children[v] and (exclusive or size[v] > 1):
                at = holder.get(parent[v])
                if at is not None:
                    key = (at, types[v])
                    parts[key] = parts.get(key, 0) + needs
            elif v in self._first:
                nodes.append(v)
        holders = whole
        for node in nodes:
            holders |= self._first[node]
        for at, _ in parts:
            holders |= 1 << at
        return _Usage(allocation, holders, whole, nodes, parts)

    # Questions

    def need(self, requests: list[Request], allowed: frozenset[int] | None) -> Need | None:
        """The minimum that a request needs on the nodes `allowed` (None: all); None if counts cannot tell."""
        if not self._usable or len(requests) != 1 or (allowed is not None and not allowed <= self._first.keys()):
            return None
        top = requests[0]
        among = self._all if allowed is None else sum(self._masks[node] for node in allowed)
        inner = top.with_
        if top.is_slot and len(inner) == 1 and inner[0].type == "node":
            return Need(None, among & self._heads, top.count.low * inner[0].count.low)
        if top.type == "node" and (top.exclusive or self._whole_only):
            return Need(None, among & self._heads, top.count.low)
        if top.type == "node" and len(inner) == 1:
            slot, nodes, slots = inner[0], top.count.low, 1
        else:
            slot, nodes, slots = top, 1, top.count.low
        parts = self._parts(slot)
        if parts is None:
            return None
        # The most slots that fit into one holder: the request needs at least slots / most holders.
        most = max((min(have.get(kind, 0) // n for kind, n in parts) for have in self._kinds), default=0)
        if not most:
            return None
        if self._whole_only:
            return Need(None, among & self._heads, nodes)
        return Need(parts, among, max(nodes, -(-slots // most)))

    def _parts(self, slot: Request) -> Parts | None:
        """The types and counts of a slot, if all of them must come from one holder."""
        if not slot.is_slot or slot.is_xor or not slot.with_:
            return None
        held_by = self._held_by.get(slot.with_[0].type)
        for part in slot.with_:
            if part.with_ or held_by is None or self._held_by.get(part.type) != held_by:
                return None
        parts = tuple((part.type, part.count.low) for part in slot.with_)
        return parts if len(dict(parts)) == len(parts) else None

    def _steps(self, parts: Parts | None) -> _HolderSets:
        if parts is None:
            return self._untouched
        slot_profile = self._slot_profiles.get(parts)
        if slot_profile is None:
            if len(self._slot_profiles) >= _SLOT_PROFILES_KEPT:
                del self._slot_profiles[next(iter(self._slot_profiles))]
            slot_profile = self._slot_profiles[parts] = self._make_slot_profile(parts)
        return slot_profile.steps

    def _make_slot_profile(self, parts: Parts) -> _SlotProfile:
        rooms = [{kind: have.get(kind, 0) - count for kind, count in parts} for have in self._kinds]
        room = {kind: list(map([of[kind] for of in rooms].__getitem__, self._have)) for kind, _ in parts}
        bits = bytearray(len(self._have) // 8 + 1)
        for holder, kind in enumerate(self._have):
            if min(rooms[kind].values()) >= 0:
                bits[holder >> 3] |= 1 << (holder & 7)
        able = int.from_bytes(bits, "little")
        slot_profile = _SlotProfile(room, able)
        for (holder, type), planner in self._used.items():
            if type in room and planner.times:
                for a, b in _overcommitted(planner, planner.times[0], planner.times[-1], room[type][holder], None):
                    slot_profile.steps.take(a, b, 1 << holder)
        return slot_profile

    def windows(self, need: Need, length: int, ranges: Iterable[tuple[int, int]], most: int) -> Iterator[Starts]:
        """The starts in `ranges`, in order, at which a job of `length` seconds may fit (backfill windows).

        Ends early once `work` has reached `most`, with an empty window at the start that was reached.
        """
        steps = self._steps(need.parts)
        for begin, end in ranges:
            t = begin
            while t < end:
                if self.work >= most:
                    yield Starts(t, t)
                    return
                later, free = self._next_fit(need, steps, t, t + length)
                if later > t:
                    t = later
                    continue
                stop = min(end, self._next_change(steps, t))
                # Starts later in this step meet the same sets, and perhaps smaller ones.
                yield Starts(t, stop, self._on(free))
                t = stop

    def longest_window(self, need: Need, now: int, begin: int, end: int) -> tuple[int, int]:
        """How long (seconds) and until when, at most, a holder stays free that is free in [begin, end).

        Only holders of `need.of` count, from `now` on. Both results are _END if the answer would take more than
        _MAX_STEPS steps.
        """
        times, sets = self._free.times, self._free.sets
        steps = self._steps(need.parts)
        others, those = steps.times, steps.sets
        among = need.among & need.of
        i, j = bisect_right(times, begin) - 1, bisect_right(others, begin) - 1
        longest = latest = looked_at = 0
        t = begin
        # Holders that are free at `begin` may have been free before. Each run has its beginning and its free holders.
        runs = [(self._free_since(among & sets[i] & those[j], i, j, steps, now), among & sets[i] & those[j])]
        while runs or t < end:
            front = min(times[i + 1] if i + 1 < len(times) else _END, others[j + 1] if j + 1 < len(others) else _END)
            if front == _END and not any([holders for _, holders in runs]):
                break
            if looked_at == _MAX_STEPS or front == _END:
                return _END, _END
            i += i + 1 < len(times) and times[i + 1] == front
            j += j + 1 < len(others) and others[j + 1] == front
            t = front
            looked_at += 1
            free, known = among & sets[i] & those[j], 0
            for n, (since, holders) in enumerate(runs):
                if holders and not holders & free:
                    longest, latest = max(longest, t - since), t
                runs[n] = since, holders & free
                known |= holders
            if t < end:
                runs.append((t, free & ~known))
            runs = [run for run in runs if run[1]]
        self.work += looked_at + _PROBE
        return longest, latest

    def _free_since(self, holders: int, i: int, j: int, steps: _HolderSets, now: int) -> int:
        """The earliest time, `now` or later, since which any of the `holders` free at a step has been free.

        `i` and `j` are the indexes of that step.
        """
        times, sets = self._free.times, self._free.sets
        others, those = steps.times, steps.sets
        since = max(times[i], others[j])
        for _ in range(_MAX_STEPS):
            if since <= now:
                return now
            i -= times[i] == since
            j -= others[j] == since
            holders &= sets[i] & those[j]
            if not holders:
                return since
            since = max(times[i], others[j])
        return now

    def _on(self, holders: int) -> Callable[[int], object]:
        masks = self._masks
        return lambda node: masks[node] & holders

    def fits(self, need: Need, start: int, end: int) -> bool:
        """Whether the profile has a window during [start, end)."""
        steps = self._steps(need.parts)
        times, sets = self._free.times, self._free.sets
        others, those = steps.times, steps.sets
        _, among, wanted, of, own, since = need
        i, j = bisect_right(times, start) - 1, bisect_right(others, start) - 1
        free = among
        for _ in range(_FIT_STEPS):
            free &= sets[i] | own if times[i] >= since else sets[i]
            free &= those[j] | own if others[j] >= since else those[j]
            if not free & of or free.bit_count() < wanted:
                return False
            a = times[i + 1] if i + 1 < len(times) else _END
            b = others[j + 1] if j + 1 < len(others) else _END
            if a >= end and b >= end:
                break
            i += a <= b
            j += b <= a
        return True

    def _next_change(self, steps: _HolderSets, t: int) -> int:
        found = 2**62
        for times in (self._free.times, steps.times):
            i = bisect_right(times, t)
            if i < len(times):
                found = min(found, times[i])
        return found

    def _next_fit(self, need: Need, steps: _HolderSets, start: int, end: int) -> tuple[int, int]:
        """`start` and the holders that are free during [start, end), if they are enough.

        Otherwise, the next moment at which they may be enough, and 0.
        """
        times, sets = self._free.times, self._free.sets
        others, those = steps.times, steps.sets
        _, among, wanted, of, own, since = need
        i, j = bisect_left(times, end) - 1, bisect_left(others, end) - 1
        known = i + j
        # Steps are read backwards from the end, so the first shortage found is the last one in time, and reading ends
        # there.
        free = among & (sets[i] | own if times[i] >= since else sets[i])
        free &= those[j] | own if others[j] >= since else those[j]
        front = min(times[i + 1] if i + 1 < len(times) else 2**62, others[j + 1] if j + 1 < len(others) else 2**62)
        while free & of and free.bit_count() >= wanted:
            a, b = times[i], others[j]
            if a <= start and b <= start:
                self.work += known - i - j + _PROBE
                return start, free
            if a >= b:
                i -= 1
                front = a
                free &= sets[i] | own if times[i] >= since else sets[i]
            if b >= a:
                j -= 1
                front = b
                free &= those[j] | own if others[j] >= since else those[j]
        self.work += known - i - j + _PROBE
        return front, 0


def _overcommitted(planner: Planner, start: int, end: int, room: int, amount: int | None) -> Iterator[tuple[int, int]]:
    """The parts of [start, end) that use more than `room`, and would not with `amount` less.

    Without an amount, all parts in which more than `room` is used.
    """
    times, used = planner.times, planner.used
    i = max(bisect_right(times, start) - 1, 0)
    begin: int | None = None
    while i < len(times) and times[i] < end:
        over = used[i] > room and (amount is None or used[i] - amount <= room)
        if over and begin is None:
            begin = max(times[i], start)
        elif not over and begin is not None:
            yield begin, times[i]
            begin = None
        i += 1
    if begin is not None:
        yield begin, end


__all__ = ["AvailabilityProfile", "Need"]
