"""What a match policy is: an order among candidates, and which resource types are always given whole."""

from __future__ import annotations

from typing import NamedTuple


class Policy(NamedTuple):
    """`order` is 1 for the highest score first, -1 for the lowest first, 0 for the order of discovery.

    A vertex scores its own id plus 1; `node_weight` times the id of the node it is in comes on top, so that candidates
    are compared by node first, or instead of the id the number in the node's property `by`, 0 to 9999 (also where it
    has none). `stops` ends the search as soon as enough was found, in an order of its own (`candidates`); scores then
    decide only among what was found beyond that. `whole` are resource types that are given exclusively and entirely
    wherever something below them is taken. `close` asks for the candidates that are closest together by score instead.
    """

    name: str
    order: int
    stops: bool = False
    node_weight: int = 0
    whole: frozenset[str] = frozenset()
    close: bool = False
    by: str = ""
