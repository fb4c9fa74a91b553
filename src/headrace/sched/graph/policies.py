"""Match policies: which of the resources that satisfy a request are taken.

`POLICIES` has one line for each policy. A policy is data: an order among candidates, and the resource types that are
always allocated whole.
"""

from __future__ import annotations

from typing import NamedTuple


class Policy(NamedTuple):
    """How the matcher scores candidates, which of them it takes, and which vertices it gives whole.

    `name` is Fluxion's name for the policy where it has one, `text` says in a line what is taken first. `order` says
    which candidates come first: 1 those with the highest score, -1 those with the lowest, 0 those that the search finds
    first.

    The score of a vertex is its id plus 1, plus `node_weight` times the id of the node that it is in. A large weight
    therefore compares candidates by their nodes first. Where `node_property` names a property, the number that the node
    has in that property is used instead of the node's id, and counts in the node's own score, too. The number is from 0
    to 9999; a node without such a number has 9999.

    `by_use` compares nodes by their use before all else: with 1 the node of which jobs use the largest share of cores
    (of `cpu`, in a graph of pods' resources) comes first, with -1 the node of which they use the smallest, when the job
    begins. Among nodes in the same class of use, ids decide.

    With `stops`, the search ends as soon as it has found enough candidates, and scores only decide among those. `whole`
    has the resource types whose vertices are given exclusively, with all that they contain, to a job that uses any part
    of them. With `close`, the candidates with the closest scores are taken.

    The search serves every policy. The index of free resources, which is faster, serves most of them: with `order` 0 or
    with other types than node in `whole` it serves none, with `node_property` only `order=-1`, with `by_use` only the
    lowest node ids after it, and few of those that combine `stops`, `whole` or `close` with another field (`_serves` in
    `layout.py` has the reasons).
    """

    name: str
    text: str
    order: int
    stops: bool = False
    node_weight: int = 0
    whole: frozenset[str] = frozenset()
    close: bool = False
    node_property: str = ""
    by_use: int = 0

    def use_class(self, used: int, cores: int) -> int:
        """The class of a node with `used` of its `cores` in use, from 0 (preferred) to 1000.

        A node that is not in use is in a class of its own.
        """
        share = -(-1000 * used // cores) if used else 0
        return 1000 - share if self.by_use > 0 else share


_NODE = frozenset({"node"})
# Larger than the ids of all resources in a node, so that the node decides first.
_BY_NODE = 10_000

_TABLE = (
    Policy("first", "the first match; the search stops as soon as it has found enough", order=1, stops=True),
    Policy("firstnodex", "as first, and nodes are given whole", order=1, stops=True, whole=_NODE),
    Policy("high", "highest ids; only ids of siblings are compared", order=1),
    Policy("low", "lowest ids; only ids of siblings are compared", order=-1),
    Policy("hinode", "highest node ids, then highest ids in a node", order=1, node_weight=_BY_NODE),
    Policy("hinodex", "as hinode, and nodes are given whole", order=1, node_weight=_BY_NODE, whole=_NODE),
    Policy("lonode", "lowest node ids, then lowest ids in a node", order=-1, node_weight=_BY_NODE),
    Policy("lonodex", "as lonode, and nodes are given whole", order=-1, node_weight=_BY_NODE, whole=_NODE),
    Policy("locality", "the ids that are closest together, so that a job shares hardware", order=-1, close=True),
    Policy(
        "variation",
        "lowest performance class (property perf_class of nodes), so that the nodes of a job differ little",
        order=-1,
        node_weight=1_000_000,
        node_property="perf_class",
    ),
    Policy(
        "packed", "nodes in use, the fullest first, so that free nodes stay whole", -1, node_weight=_BY_NODE, by_use=1
    ),
    Policy("spread", "the emptiest nodes, by the share of their cores in use", -1, node_weight=_BY_NODE, by_use=-1),
)
POLICIES = {policy.name: policy for policy in _TABLE}


# Attributes and their values as Fluxion's documentation and its command name them.
_ATTRIBUTES = {
    "policy": "policy",
    "high": "high",
    "low": "low",
    "node_centric": "node_centric",
    "node_exclusive": "node_exclusive",
    "stop_on_1_matches": "stops",
    "set_stop_on_1_matches": "stops",
}


def by_name(name: str) -> Policy:
    """The policy of a name, or of attributes such as `policy=high node_exclusive=true`.

    Raises ValueError listing the possible values.
    """
    if "=" in name:
        return _put_together(name)
    try:
        return POLICIES[name]
    except KeyError:
        raise ValueError(f"must be one of {', '.join(POLICIES)}, not {name!r}") from None


def _put_together(text: str) -> Policy:
    given: set[str] = set()
    for item in text.split():
        name, _, value = item.partition("=")
        attribute = _ATTRIBUTES.get(name)
        if attribute is None or value not in (("low", "high") if name == "policy" else ("true", "false")):
            raise ValueError(
                f"{item!r}: must be policy=low|high (or low=true, high=true), node_centric=true|false, "
                "node_exclusive=true|false or stop_on_1_matches=true|false"
            )
        if value != "false":
            given.add(value if attribute == "policy" else attribute)
    if {"low", "high"} <= given:
        raise ValueError(f"{text!r}: must be either low or high")
    high = "high" in given
    whole = "node_exclusive" in given
    if high and "stops" in given:
        # The search visits the highest numbers first, so the first match is the highest.
        return POLICIES["firstnodex" if whole else "first"]
    if whole:
        return POLICIES["hinodex" if high else "lonodex"]
    if given & {"node_centric", "stops"}:
        return POLICIES["hinode" if high else "lonode"]
    return POLICIES["high" if high else "low"]
