"""A match policy as data: an order among candidates, and the resource types that are always given whole."""

from __future__ import annotations

from typing import NamedTuple


class Policy(NamedTuple):
    """`order` is 1 for the highest score first, -1 for the lowest first, 0 for the order of discovery.

    The score of a vertex is its own id plus 1. Added to it is `node_weight` times the id of its node, so that
    candidates are compared by node first; with `by`, the number in that property of the node (0 to 9999, the last for a
    node without it) replaces the node's id. `stops` ends the search as soon as enough was found, in the order of
    `candidates`; scores then only decide among the candidates found. `whole` are resource types that are given
    exclusively and entirely where anything below them is taken. `close` takes the candidates whose scores are closest
    together.
    """

    name: str
    order: int
    stops: bool = False
    node_weight: int = 0
    whole: frozenset[str] = frozenset()
    close: bool = False
    by: str = ""
