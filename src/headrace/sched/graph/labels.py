"""The labels that a request gives to resources other than slots, by the vertices that serve them.

JGF contains them, so that a job can find, for example, the storage that it requested under a name (Fluxion's key
`ephemeral`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.sched.graph.request import JobRequest, Request
from headrace.sched.graph.selection import Selection


def labels_of(selection: Selection, request: JobRequest) -> dict[int, str]:
    """The labels of the vertices of a selection.

    A vertex has the label of a requested resource if it is of that type, and below vertices of the types in which the
    resource is requested.
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
    """The resources of a level. A slot is not a level of the graph, so its contents are listed instead."""
    for part in parts:
        if part.is_slot:
            yield from _without_slots(part.with_)
        else:
            yield part
