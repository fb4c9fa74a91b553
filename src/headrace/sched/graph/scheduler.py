"""The scheduler of a graph: the resources that a request gets now, or when it can get them.

Requests go to the index of free resources, and to a search of the graph where the index returns None. Results are
entered into the use of the graph, which both read. Times are whole seconds and always arguments.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from headrace.sched.graph.candidates import ChildOrder
from headrace.sched.graph.holdings import Holdings
from headrace.sched.graph.index import NOTHING
from headrace.sched.graph.matcher import Failure, Matcher, View
from headrace.sched.graph.model import Graph, GraphError
from headrace.sched.graph.policies import Policy
from headrace.sched.graph.request import JobRequest, Request, has_units
from headrace.sched.graph.selection import Match, Selection, select
from headrace.sched.graph.sets import match_sets
from headrace.sched.graph.usage import Allocation, Usage

# While sets of a request are matched, earlier sets are held under ids from this one down.
_TRIAL = -(2**62)


class Outcome(NamedTuple):
    """The answer to a request: an allocation, or None and the reason.

    `unsatisfiable`: even an idle graph could not satisfy it.
    """

    allocation: Allocation | None
    failure: Failure | None = None
    unsatisfiable: bool = False


class Starts(NamedTuple):
    """A range of start times, [begin, end).

    If `may` is given, nodes (vertices) for which it returns false are left out.
    """

    begin: int
    end: int
    may: Callable[[int], object] | None = None


class Found(NamedTuple):
    """The result of a search over start times: a selection for [start, end), or None.

    `tried` is the number of matches made. `exhausted`: the search ended because its budget was used up; every start
    before `start` is ruled out.
    """

    selection: Selection | None
    start: int
    end: int
    tried: int
    exhausted: bool = False


class Scheduler(Holdings):
    """A graph in use that answers requests.

    Free amounts of `filters` decide which start times are matched. Requests are matched in the hierarchy of `graph`,
    unless a call names another subsystem.
    """

    def matcher(
        self,
        request: JobRequest,
        at: int,
        idle: bool = False,
        policy: Policy | None = None,
        subsystem: str | None = None,
    ) -> Matcher:
        """A matcher for a start time, on the graph as it is used or (`idle`) without jobs."""
        tree = self.graph if subsystem is None else self._tree(subsystem)
        view = View(tree, {}, {}, {}) if idle else self._usage.view_of(tree)
        allowed = self._constraints.allowed(request.constraint)
        return self._matcher(view, policy or self.policy, at, self._end(request, at), allowed)

    def _matcher(self, view: View, policy: Policy, at: int, end: int, allowed: frozenset[int] | None) -> Matcher:
        order = self._order if view.graph is self.graph else self._order_of(view.graph)
        return Matcher(view, policy, at, end, order, allowed)

    def _tree(self, subsystem: str) -> Graph:
        """The hierarchy of a subsystem. Raises GraphError for an unknown subsystem."""
        if subsystem == self.graph.subsystem:
            return self.graph
        found = self.graph.hierarchies.get(subsystem)
        if found is None:
            raise GraphError(f"the graph has no subsystem {subsystem}")
        return found

    def _order_of(self, tree: Graph) -> ChildOrder:
        found = self._orders.get(tree.subsystem)
        if found is None:
            found = self._orders[tree.subsystem] = ChildOrder(tree, self.filters, self.policy.stops)
        return found

    def _end(self, request: JobRequest, at: int) -> int:
        return min(at + request.duration, self.graph.end) if request.duration else self.graph.end

    def allowed(self, constraint: Any) -> frozenset[int] | None:
        """The nodes that satisfy a constraint (RFC 31); None for all nodes. Raises constraint.ConstraintError."""
        return self._constraints.allowed(constraint)

    def _in_time(self, request: JobRequest, at: int) -> bool:
        return self.graph.start <= at < self.graph.end and at + request.duration <= self.graph.end

    def match_at(
        self,
        request: JobRequest,
        at: int,
        may: Callable[[int], object] | None = None,
        subsystem: str | None = None,
    ) -> Match:
        """The selection for a job that starts `at` a moment. `may`: see `Starts`."""
        end = self._end(request, at)
        if not self._in_time(request, at):
            return Match(None, end)
        if request.sets:
            return self._match_sets(request, at, end)
        if self._lifted is not None and (self.policy.by_use or has_units(request.resources)):
            # The index reads the planners of pools.
            self._lift_fully()
        return self._match(request, self._constraints.allowed(request.constraint), at, end, may, subsystem)

    def _match(
        self,
        request: JobRequest,
        allowed: frozenset[int] | None,
        at: int,
        end: int,
        may: Callable[[int], object] | None = None,
        subsystem: str | None = None,
    ) -> Match:
        """As `match_at`, for a job that ends in time, on the nodes `allowed` (None: all)."""
        quick = self._timeline.match(request.resources, allowed, at, end, may) if subsystem is None else None
        if quick is NOTHING:
            return Match(None, end)
        if quick is not None:
            return Match(select(self.graph, quick.picks, self.policy.whole, quick.runs), end)
        self._lift_fully()
        tree = self.graph if subsystem is None else self._tree(subsystem)
        return self._searched(request, self._matcher(self._usage.view_of(tree), self.policy, at, end, allowed))

    def _searched(self, request: JobRequest, matcher: Matcher) -> Match:
        picks = matcher.match(request.resources)
        if picks is None:
            return Match(None, matcher.end, matcher.failure)
        selection = select(matcher.graph, picks, matcher.policy.whole, reached_from=matcher.reached_from)
        return Match(selection, matcher.end)

    def _match_sets(self, request: JobRequest, at: int, end: int) -> Match:
        """As `match_at`, for several sets: the result of each set is held while the others are matched."""
        self._lift_fully()
        return match_sets(
            self.graph,
            request,
            end,
            lambda one: self._constraints.allowed(one.constraint),
            lambda one, allowed: self._match(one, allowed, at, end),
            lambda place, found: self._book(_TRIAL - place, found, at, end, at > self._timeline.now),
            lambda place: self.cancel(_TRIAL - place),
        )

    def _shortage(self, request: JobRequest, at: int, end: int) -> Failure:
        """The type that is short in the whole graph; the first requested type if none is."""
        root = self.graph.root
        totals, busy = self.graph.totals[root], self.busy.get(root, {})
        needs = request.needs
        free = {n: totals.get(n, 0) - (busy[n].peak(at, end) if n in busy else 0) for n in needs}
        short = next((n for n, amount in needs.items() if free[n] < amount), next(iter(needs)))
        return Failure(short, needs[short], free[short], root, totals.get(short, 0) < needs[short])

    def satisfiable(self, request: JobRequest) -> Outcome:
        """Whether the graph without jobs, in its present status, could run the job."""
        return self._satisfiable_in(request, None)

    def _satisfiable_in(self, request: JobRequest, subsystem: str | None) -> Outcome:
        # Preference does not affect whether there is a match, so the first match is enough.
        policy = self.policy._replace(order=0, stops=True, close=False)
        if request.sets:
            return self._sets_satisfiable(request, policy)
        matcher = self.matcher(request, self.graph.start, idle=True, policy=policy, subsystem=subsystem)
        if request.duration > self.graph.end - self.graph.start or matcher.match(request.resources) is None:
            return Outcome(None, matcher.failure, True)
        return Outcome(None)

    def _sets_satisfiable(self, request: JobRequest, policy: Policy) -> Outcome:
        start, idle = self.graph.start, Usage(self.graph)
        end = self._end(request, start)
        found = match_sets(
            self.graph,
            request,
            end,
            lambda one: self._constraints.allowed(one.constraint),
            lambda one, allowed: self._searched(one, self._matcher(idle.view, policy, start, end, allowed)),
            lambda place, found: idle.add(place, found, start, end, False),
            idle.cancel,
        )
        if found.selection is None or request.duration > self.graph.end - start:
            return Outcome(None, found.failure, True)
        return Outcome(None)

    def allocate(
        self,
        jobid: int,
        request: JobRequest,
        now: int,
        check_satisfiable: bool = False,
        explain: bool = True,
        subsystem: str | None = None,
    ) -> Outcome:
        """Allocate resources from `now`, or return the reason; without `explain`, no reason is searched for.

        `subsystem` is that of the hierarchy to match in, if not the graph's own. Raises GraphError for an unknown
        subsystem.
        """
        self._timeline.settle(now)
        selection, end, failure = self.match_at(request, now, subsystem=subsystem)
        if selection is None:
            lasting = (
                check_satisfiable
                and (
                    self.satisfiable(request) if subsystem is None else self._satisfiable_in(request, subsystem)
                ).unsatisfiable
            )
            return Outcome(None, (failure or self._shortage(request, now, end)) if explain else None, lasting)
        return Outcome(self.enter(jobid, selection, now, end, False))

    def reserve(self, jobid: int, request: JobRequest, now: int) -> Outcome:
        """Allocate resources from `now`, or reserve them from the earliest later time at which the job fits."""
        found = self.search(request, now, [Starts(now, self.graph.end)])
        if found.selection is not None:
            return Outcome(self.enter(jobid, found.selection, found.start, found.end, found.start > now))
        # The reason comes from a search at the last start, since the index has none.
        at = max((t for t in self._timeline.ends if t > now and self._in_time(request, t)), default=now)
        if request.sets:
            failure = self.match_at(request, at).failure
        else:
            matcher = self.matcher(request, at)
            if self._in_time(request, at):
                matcher.match(request.resources)
            failure = matcher.failure
        return Outcome(None, failure, failure is None or failure.structural)

    def search(
        self,
        request: JobRequest,
        now: int,
        ranges: Iterable[Starts],
        budget: int | None = None,
        counts: bool = True,
    ) -> Found:
        """The earliest start at which the request fits: `now`, or the end of a job, in some ranges.

        Ranges are in order and do not overlap. At most `budget` starts are matched. Without `counts`, starts are not
        ruled out by the amounts that are free, as these amounts include a lifted reservation.
        """
        self._timeline.settle(now)
        tried = 0
        for at, may in self._moments(request, now, ranges, counts):
            if tried == budget:
                return Found(None, at, 0, tried, True)
            tried += 1
            selection, end, _ = self.match_at(request, at, may)
            if selection is not None:
                return Found(selection, at, end, tried)
        return Found(None, self.graph.end, 0, tried)

    def _moments(
        self, request: JobRequest, now: int, ranges: Iterable[Starts], counts: bool
    ) -> Iterator[tuple[int, Callable[[int], object] | None]]:
        """The starts in `ranges` at which enough of the filtered types is free, earliest first.

        The free amounts are those of the whole graph. `now` is always a start, if it is in the ranges.
        """
        root = self.graph.root
        busy = self.busy.get(root, {})
        totals = self.graph.totals[root]
        needs = request.needs
        for name, amount in self._inside_whole(request.resources).items():
            needs[name] = max(needs.get(name, 0), amount)
        length = request.duration or 1
        last = self.graph.end - length
        wanted = [(totals.get(n, 0) - needs.get(n, 0), busy[n]) for n in self.filters if n in busy] if counts else []
        least = min([room for room, _ in wanted], default=0)
        times = self._timeline.ends
        for begin, end, may in ranges:
            if begin <= now < end:
                yield now, may
            at = max(begin, now + 1)
            # Between two results, the caller may change the list.
            while (i := bisect_left(times, at)) < len(times) and times[i] < end:
                at = times[i]
                if at > last or least < 0:
                    break
                later = None
                for room, planner in wanted:
                    later = planner.over(room, at, at + length)
                    if later is not None:
                        break
                if later is None:
                    yield at, may
                    at += 1
                else:
                    at = max(later, at + 1)

    def _inside_whole(self, requests: list[Request]) -> dict[str, int]:
        """The minimum amounts in vertices requested whole, all of which become unavailable to other jobs."""
        found: dict[str, int] = {}
        for request in requests:
            whole = request.with_ if request.is_slot and not request.is_xor else [request] if request.exclusive else []
            times = request.count.low if request.is_slot else 1
            for item in whole:
                if item.with_ and not item.exclusive:
                    continue
                for name, amount in self.graph.least(item.type).items():
                    found[name] = found.get(name, 0) + amount * item.count.low * times
        return found if len(requests) == 1 else {}
