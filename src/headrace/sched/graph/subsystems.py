"""The hierarchies of a resource graph, and Fluxion's names for sets of them (`resource-query -S`).

The same vertices may be in several hierarchies: a node is contained in a rack, fed by a power panel, and connected to a
switch. A match walks the first hierarchy of a set. In Fluxion, the others of a set do not affect what is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.sched.graph.model import DOMINANT, Graph

_IB, _BANDWIDTH, _FILES, _POWER, _VIRTUAL = "ibnet", "ibnetbw", "pfs1bw", "power", "virtual1"

SETS: dict[str, tuple[str, ...]] = {
    "CA": (DOMINANT,),
    "IBA": (_IB,),
    "IBBA": (_BANDWIDTH,),
    "PFS1BA": (_FILES,),
    "PA": (_POWER,),
    "C+IBA": (DOMINANT, _IB),
    "C+IBBA": (DOMINANT, _BANDWIDTH),
    "C+PFS1BA": (DOMINANT, _FILES),
    "C+PA": (DOMINANT, _POWER),
    "IB+IBBA": (_IB, _BANDWIDTH),
    "C+P+IBA": (DOMINANT, _POWER, _IB),
    "VA": (_VIRTUAL,),
    "V+PFS1BA": (_VIRTUAL, _FILES),
    "ALL": (DOMINANT, _IB, _BANDWIDTH, _FILES, _POWER),
}
# Relations that lead from a vertex down; in hierarchies that are not listed, every relation but "in" does.
_DOWN = {_IB: "connected_down", _POWER: "supplies_to"}


def walked(name: str) -> str:
    """The hierarchy that a match walks for a set, whose name may be in any case. Raises ValueError listing the sets."""
    found = SETS.get(name) or {known.lower(): of for known, of in SETS.items()}.get(name)
    if found is None:
        raise ValueError(f"subsystems {name!r}: must be one of {', '.join(SETS)}")
    return found[0]


def leads_down(subsystem: str, relation: str) -> bool:
    """Whether an edge of a hierarchy leads from a vertex down. An edge without a relation does; an edge that does not
    states a relation that another edge states from above.
    """
    return relation in ("", "contains", _DOWN[subsystem]) if subsystem in _DOWN else relation != "in"


def without(graph: Graph, outside: Iterable[int]) -> Graph:
    """A copy of an unfinished graph without the vertices `outside` its hierarchy."""
    gone = set(outside)
    kept = Graph()
    kept.subsystem = graph.subsystem
    place: dict[int, int] = {}
    for v in graph.vertices():
        if v in gone:
            continue
        place[v] = kept.add_copy(graph, v, graph.uniq[v])
    for v, at in place.items():
        for child in graph.children[v]:
            kept.place(place[child], at)
    kept.edges = [
        (subsystem, relation, place[source], place[target])
        for subsystem, relation, source, target in graph.edges
        if source in place and target in place
    ]
    return kept
