"""A match policy as data: an order among candidates, and the resource types that are always given whole."""

from __future__ import annotations

from typing import NamedTuple


class Policy(NamedTuple):
    """How the matcher scores candidates, which of them it takes, and which vertices it gives whole.

    `name` is Fluxion's name for the policy where it has one. `order` says which candidates come first: 1 those with the
    highest score, -1 those with the lowest, 0 those that the search finds first.

    The score of a vertex is its id plus 1, plus `node_weight` times the id of the node that it is in. A large weight
    therefore compares candidates by their nodes first. Where `node_property` names a property, the number that the node
    has in that property is used instead of the node's id, and counts in the node's own score, too. The number is from 0
    to 9999; a node without such a number has 9999.

    With `stops`, the search ends as soon as it has found enough candidates, and scores only decide among those. `whole`
    has the resource types whose vertices are given exclusively, with all that they contain, to a job that uses any part
    of them. With `close`, the candidates with the closest scores are taken.

    The search serves every policy. The index of free resources, which is faster, serves most of them: with `order` 0 or
    with other types than node in `whole` it serves none, with `node_property` only `order=-1`, and few of those that
    combine `stops`, `whole` or `close` with another field (`_serves` in `layout.py` has the reasons).
    """

    name: str
    order: int
    stops: bool = False
    node_weight: int = 0
    whole: frozenset[str] = frozenset()
    close: bool = False
    node_property: str = ""
