"""The number of vertices that Fluxion's traverser would visit for a request, which `resource-query -e` shows.

Headrace's own search has an index and visits fewer. So the request is searched for a second time here, without the
index: all children are visited, unless the policy stops at the first match. A subtree is skipped only where too little
is free of a type that is counted for subtrees (the pruning filter, `-p`), so the numbers show how well these types are
chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.sched.graph.matcher import Found, Matcher
from headrace.sched.graph.request import JobRequest, Request
from headrace.sched.graph.scheduler import Scheduler, Starts

_LATER = frozenset({"allocate_orelse_reserve", "without_allocating_future", "without_allocating_extend"})


class Visits(NamedTuple):
    """`before` counts every vertex that is reached, `after` those that serve, once the vertices below them are
    known.
    """

    before: int
    after: int


class _Counter(Matcher):
    before = 0
    after = 0
    counted: frozenset[str] = frozenset()

    def _fits(self, v: int, needs: Mapping[str, int]) -> bool:
        return super()._fits(v, {name: amount for name, amount in needs.items() if name in self.counted})

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
        self.before += 1
        serves = super()._visit(v, requests, exclusive, found, base, times, narrow, inside)
        self.after += serves
        return serves

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
        children = self.graph.children[v]
        # A list: any() over a generator would stop at the first child that serves.
        return any([self._visit(child, requests, exclusive, found, base, times, narrow, inside) for child in children])


def report(scheduler: Scheduler, operation: str, request: JobRequest, now: int) -> str:
    """The lines that report the visits of a match. `operation` is one of the match operations of resource-query."""
    idle = operation == "satisfiability"
    before, after = count(scheduler, request, now, operation in _LATER, idle)
    return f"INFO: PREORDER VISIT COUNT={before}\nINFO: POSTORDER VISIT COUNT={after}\n"


def count(scheduler: Scheduler, request: JobRequest, now: int, later: bool, idle: bool) -> Visits:
    """The visits of a search at `now` and, if the request does not fit then but `later`, of one at its start.

    `later`: whether the request may start after `now`. `idle`: count for the graph without jobs.
    """
    moments = [scheduler.graph.start if idle else now]
    if later:
        found = scheduler.search(request, now, [Starts(now, scheduler.graph.end)])
        if found.selection is not None and found.start > now:
            moments.append(found.start)
    before = after = 0
    for at in moments:
        made = scheduler.matcher(request, at, idle)
        counter = _Counter(made.view, made.policy, made.at, made.end, made.order, made.allowed)
        counter.counted = frozenset(scheduler.filters)
        counter.match(request.resources)
        before, after = before + counter.before, after + counter.after
    return Visits(before, after)
