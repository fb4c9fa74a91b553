"""The labels that a request gives to resources other than slots, by the vertices that serve them: JGF tells them to the
job, which finds by them, say, the storage that it asked for under a name (Fluxion's key `ephemeral`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.sched.graph.request import JobRequest, Request
from headrace.sched.graph.selection import Selection


def labels_of(selection: Selection, request: JobRequest) -> dict[int, str]:
    """The label of each vertex of a selection that has one: the vertex is of the type of a labelled resource, below
    vertices of the types that this resource is asked for in.
    """
    if not _has_labels(request.resources):
        return {}
    found: dict[int, str] = {}
    expected: dict[int, Sequence[Request]] = {-1: list(_without_slots(request.resources))}
    types = selection.graph.type
    # Parents come last among `items`.
    for item in reversed(selection.items):
        v = item.vertex
        here = expected.get(selection.parent(v), ())
        served = next((part for part in here if part.type == types[v]), None)
        if served is None:
            expected[v] = here
            continue
        expected[v] = list(_without_slots(served.with_))
        if served.label:
            found[v] = served.label
    return found


def _has_labels(parts: Sequence[Request]) -> bool:
    return any((part.label and not part.is_slot) or _has_labels(part.with_) for part in parts)


def _without_slots(parts: Sequence[Request]) -> Iterator[Request]:
    """The resources of a level; a slot is no level of the graph, so its contents stand for it."""
    for part in parts:
        if part.is_slot:
            yield from _without_slots(part.with_)
        else:
            yield part
