"""Which cores and GPUs lie below a vertex, as bits by id: what R lists of a node that is given whole.

The graph keeps the answers, since whole nodes are given again and again, and equal ones are one object.
"""

from __future__ import annotations

from headrace.graph.model import Graph

# Resources that run on a node and that R_lite (RFC 20) lists.
EXECUTION_TYPES = frozenset({"core", "gpu"})


def execution_ids(graph: Graph, v: int) -> dict[str, int]:
    """The ids, as bits, of the cores and GPUs below a vertex. The graph keeps them, as whole nodes are given again."""
    found = graph.inside.get(v)
    if found is None:
        found = {}
        types, ids, children = graph.type, graph.id, graph.children
        stack = [v]
        while stack:
            u = stack.pop()
            kids = children[u]
            kind = types[u]
            if kind in EXECUTION_TYPES:
                found[kind] = found.get(kind, 0) | 1 << ids[u]
            for kind in EXECUTION_TYPES:
                numbers = [ids[kid] for kid in kids if types[kid] == kind]
                if numbers:
                    found[kind] = found.get(kind, 0) | _bits(numbers)
            stack.extend([kid for kid in kids if children[kid]])
        found = graph.inside[v] = graph.shapes.setdefault(tuple(found.items()), found)
    return found


def _bits(numbers: list[int]) -> int:
    first, count = numbers[0], len(numbers)
    # Nearly always a run.
    if numbers[-1] == first + count - 1 and numbers == list(range(first, first + count)):
        return ((1 << count) - 1) << first
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits
