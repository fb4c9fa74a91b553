"""R (RFC 20) for a scheduler's allocations: the cores and GPUs of each rank.

Most jobs have a few cores of one node, so there is a fast path for that case, and the text of repeated idsets is
cached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.rset import ResourceSet
from headrace.formats.spec.rset_groups import children_of


class Share(NamedTuple):
    """The resources of a job on one rank: core and GPU ids as bit sets."""

    rank: int
    cores: int
    gpus: int


Shares = tuple[Share, ...]


def each(bits: int) -> Iterator[int]:
    """The numbers of the set bits, lowest first."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


@lru_cache(maxsize=8192)
def ids(bits: int) -> str:
    """A bit set as an idset (RFC 22)."""
    if bits and not bits & (bits - 1):
        return str(bits.bit_length() - 1)
    return Idset.from_bits(bits).encode()


def shares_of_r(r: Mapping[str, Any]) -> Shares:
    """The resources in an R object (RFC 20), rank by rank. Raises RsetError."""
    return tuple(Share(node.rank, node.cores.bits, node.gpus.bits) for node in ResourceSet.from_obj(r).nodes())


def job_r(
    shares: Sequence[Share],
    host: Callable[[int], str],
    properties: Mapping[str, int],
    starttime: float,
    expiration: float,
) -> dict[str, Any]:
    """R (RFC 20) of shares in rank order, with keys in flux-core's order.

    `host` returns the host name of a rank. `properties` maps each property to all its ranks in the instance, as bit
    sets.
    """
    if len(shares) == 1:
        rank, cores, gpus = shares[0]
        ranks = 1 << rank
        r_lite = [{"rank": str(rank), "children": _children(cores, gpus)}]
        nodelist = host(rank)
    else:
        groups: dict[tuple[int, int], int] = {}
        ranks = 0
        for rank, cores, gpus in shares:
            groups[cores, gpus] = groups.get((cores, gpus), 0) | 1 << rank
            ranks |= 1 << rank
        r_lite = [
            {"rank": ids(members), "children": _children(*children)}
            for children, members in sorted(groups.items(), key=lambda item: item[1] & -item[1])
        ]
        nodelist = Hostlist([host(share.rank) for share in shares]).encode()
    execution: dict[str, Any] = {
        "R_lite": r_lite,
        "nodelist": [nodelist],
        "starttime": starttime,
        "expiration": expiration,
    }
    if properties:
        own = {name: members & ranks for name, members in properties.items() if members & ranks}
        if own:
            execution["properties"] = {name: ids(members) for name, members in own.items()}
    return {"version": 1, "execution": execution}


def _children(cores: int, gpus: int) -> dict[str, str]:
    if gpus:
        return {"core": ids(cores), "gpu": ids(gpus)} if cores else {"gpu": ids(gpus)}
    return {"core": ids(cores)}


def in_use(rset: ResourceSet, used: Mapping[int, tuple[int, int]]) -> ResourceSet:
    """The allocated part of `rset`. `used` maps ranks to core and GPU ids, as bit sets."""
    groups: dict[tuple[int, int], int] = {}
    for rank, held in used.items():
        groups[held] = groups.get(held, 0) | 1 << rank
    if not groups:
        return ResourceSet()
    parts = {children_of({"core": cores, "gpu": gpus}): ranks for (cores, gpus), ranks in groups.items()}
    # The intersection takes hosts and properties from `rset`.
    return rset.intersect(ResourceSet(parts))


def summary(r: Mapping[str, Any]) -> str:
    """The `resource_summary` annotation of an R: `rank[0-3]/core[0-1]`."""
    return " ".join(
        f"rank{_brackets(group['rank'])}/"
        + ",".join(kind + _brackets(numbers) for kind, numbers in sorted(group["children"].items()))
        for group in r["execution"]["R_lite"]
    )


def _brackets(numbers: str) -> str:
    return f"[{numbers}]" if "-" in numbers or "," in numbers else numbers
