"""A match of several requests at once, all of them or none, each with its own constraint.

The sets are matched one after the other, and what one gets is held while the others are matched. Which nodes a set gets
depends on the match policy alone, so a set may take what only another one could use: then that one is matched first. So
every order of two sets is tried. Of more sets there may be an order, and of two other nodes, that would do and are not
found: an exact answer is a packing problem. What is found is free for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.graph.constraints import HOSTS
from headrace.graph.matcher import Failure, Pick
from headrace.graph.model import Graph
from headrace.graph.request import JobRequest
from headrace.graph.selection import Match, Selection, select

Nodes = frozenset[int] | None
"""Node vertices; None for all."""


def match_sets(
    graph: Graph,
    request: JobRequest,
    end: int,
    allowed: Callable[[JobRequest], Nodes],
    match: Callable[[JobRequest, Nodes], Match],
    hold: Callable[[int, Selection], object],
    leave: Callable[[int], object],
) -> Match:
    """The match of all sets of a request until `end`, with the selection of each in `sets`.

    `allowed` returns the nodes that satisfy the constraint of a set, `match` what a set gets on some nodes. `hold` and
    `leave` take what a set gets and give it back; sets are named by their place in the request.
    """
    failure: Failure | None = None

    def first_without_room(order: list[int], among: Nodes, found: dict[int, Selection]) -> int:
        """Match the sets in an order, into `found`; the place of the first for which there is no room, -1 for none."""
        nonlocal failure
        found.clear()
        try:
            for place in order:
                one = request.sets[place]
                nodes = _both(allowed(one), among)
                if one.is_apart:
                    nodes = _without(graph, nodes, [of for other, of in found.items() if request.sets[other].is_apart])
                selection, _, failure = match(one, nodes)
                if selection is None:
                    return place
                hold(place, selection)
                found[place] = selection
        finally:
            for place in found:
                leave(place)
        return -1

    found: dict[int, Selection] = {}
    for among in _levels(graph, request.within):
        order = list(range(len(request.sets)))
        for _ in request.sets:
            place = first_without_room(order, among, found)
            if place < 0:
                return Match(_joined([found[place] for place in range(len(found))]), end)
            if place == order[0]:
                break
            order.remove(place)
            order.insert(0, place)
    return Match(None, end, failure)


def _levels(graph: Graph, kind: str) -> Iterator[Nodes]:
    """The nodes below each vertex of a type, in the graph's order; all nodes for no type."""
    if not kind:
        yield None
        return
    for v in graph.preorder(graph.root):
        if graph.type[v] == kind:
            yield frozenset(below for below in graph.preorder(v) if graph.type[below] in HOSTS)


def _both(some: Nodes, others: Nodes) -> Nodes:
    return others if some is None else some if others is None else some & others


def _without(graph: Graph, nodes: Nodes, taken: list[Selection]) -> Nodes:
    """Nodes without those of which something was selected."""
    gone = {v for one in taken for v in one.inner if graph.type[v] in HOSTS}
    return (frozenset(graph.nodes()) if nodes is None else nodes) - gone if gone else nodes


def _joined(sets: list[Selection]) -> Selection:
    """One selection of what several have, which may be units of the same pools."""
    picks: dict[int, Pick] = {}
    for one in sets:
        for v, mark in one.marks.items():
            if mark.path and not mark.whole:
                continue
            before = picks.get(v)
            needs = mark.needs + before.needs if before and mark.exclusive else mark.needs
            picks[v] = Pick(v, needs, mark.exclusive, mark.whole, ())
    selection = select(sets[0].graph, list(picks.values()), reached_from=sets[0].reached_from)
    selection.sets = tuple(sets)
    return selection
