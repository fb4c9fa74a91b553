"""The contents of a resource set: ranks grouped by their children, and set operations on the groups.

The key of a group is the ids of each child type; its value is the ranks that have exactly these children. Groups have
no rank in common. The functions are pure and know nothing of R, hosts or properties.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Tuple

from headrace.formats.spec.idset import Idset

# The key of a group: the ids of each child type as a bit set, sorted by type, without empty types.
Children = Tuple[Tuple[str, int], ...]
Groups = Mapping[Children, int]


# -- id sets as bits ------------------------------------------------------------------------------


def bits_of(ids: Iterable[int]) -> int:
    """Return ids as a bit set."""
    return Idset(ids).bits


def popcount(bits: int) -> int:
    """Return the number of ids in a bit set."""
    # int.bit_count came with Python 3.10; this room runs on 3.8.
    return bin(bits).count("1")


@lru_cache(maxsize=4096)
def encode_ids(bits: int) -> str:
    """Return a bit set as an idset string (RFC 22)."""
    return Idset.from_bits(bits).encode()


def bracketed(bits: int) -> str:
    """Return a bit set as ``3`` or ``[0-3]``, the way resource summaries show it."""
    text = encode_ids(bits)
    return f"[{text}]" if bits & (bits - 1) else text


# -- groups --------------------------------------------------------------------------------------


def children_of(ids: Mapping[str, int]) -> Children:
    """Return the key of a group for the ids of each type."""
    return tuple(sorted((kind, bits) for kind, bits in ids.items() if bits))


def add_group(groups: Dict[Children, int], children: Children, ranks: int) -> None:
    """Add ranks to a group; an empty set of ranks adds no group."""
    if ranks:
        groups[children] = groups.get(children, 0) | ranks


def overlaps(a: Mapping[Children, int], b: Mapping[Children, int]) -> Iterator[Tuple[Children, Children, int]]:
    """Yield (children in a, children in b, ranks) for all ranks in both."""
    for mine, my_ranks in a.items():
        for theirs, their_ranks in b.items():
            ranks = my_ranks & their_ranks
            if ranks:
                yield mine, theirs, ranks


def merged(mine: Children, theirs: Children, op: Callable[[int, int], int]) -> Children:
    """Combine the ids of two groups, type by type."""
    a, b = dict(mine), dict(theirs)
    return children_of({kind: op(a.get(kind, 0), b.get(kind, 0)) for kind in a.keys() | b.keys()})


def united(a: Groups, b: Groups) -> Dict[Children, int]:
    """Return the union of two sets of groups."""
    groups: Dict[Children, int] = {}
    for mine, theirs, ranks in overlaps(a, b):
        add_group(groups, merged(mine, theirs, lambda x, y: x | y), ranks)
    in_a = any_of(a)
    in_b = any_of(b)
    for children, ranks in a.items():
        add_group(groups, children, ranks & ~in_b)
    for children, ranks in b.items():
        add_group(groups, children, ranks & ~in_a)
    return groups


def any_of(groups: Groups) -> int:
    """Return the ranks of all groups."""
    bits = 0
    for ranks in groups.values():
        bits |= ranks
    return bits


def difference(a: Groups, b: Groups) -> Dict[Children, int]:
    """Return the resources in a that are not in b; a rank without resources is removed."""
    groups: Dict[Children, int] = {}
    for mine, theirs, ranks in overlaps(a, b):
        remaining = merged(mine, theirs, lambda x, y: x & ~y)
        if remaining:
            add_group(groups, remaining, ranks)
    in_b = any_of(b)
    for mine, ranks in a.items():
        add_group(groups, mine, ranks & ~in_b)
    return groups


def intersection(a: Groups, b: Groups) -> Dict[Children, int]:
    """Return the resources in both; a rank is kept without children only if it has none in either set."""
    groups: Dict[Children, int] = {}
    for mine, theirs, ranks in overlaps(a, b):
        both = merged(mine, theirs, lambda x, y: x & y)
        if both or not (mine or theirs):
            add_group(groups, both, ranks)
    return groups


def cores_from_0(groups: Groups) -> Dict[Children, int]:
    """Return the groups with the cores of every rank numbered from 0."""
    found: Dict[Children, int] = {}
    for children, ranks in groups.items():
        ids = dict(children)
        if "core" in ids:
            ids["core"] = (1 << popcount(ids["core"])) - 1
        add_group(found, children_of(ids), ranks)
    return found


def by_first_rank(groups: Groups) -> List[Tuple[Children, int]]:
    """Return (children, ranks) in the order of each group's first rank, as R_lite lists them."""
    ordered = list(groups.items())
    if len(ordered) > 1:
        ordered.sort(key=lambda group: group[1] & -group[1])
    return ordered
