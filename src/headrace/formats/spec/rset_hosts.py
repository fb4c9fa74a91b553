"""Host names of a resource set's ranks: look-up by name, union of tables, order by a host list."""

from __future__ import annotations

from typing import AbstractSet, Dict, List, Optional, Sequence, Tuple

from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.rset_fields import RsetError
from headrace.formats.spec.rset_groups import bits_of


class HostTable:
    """Host names by rank, shared by a set and the sets derived from it; it may have more ranks than a set."""

    __slots__ = ("_index", "names")

    def __init__(self, names: Dict[int, str]) -> None:
        self.names = names
        self._index: Optional[Dict[str, int]] = None

    def bits(self, host: str) -> int:
        """Return the ranks of a host as a bit set, 0 if it is unknown."""
        index = self._index
        if index is None:
            ranks: Dict[str, List[int]] = {}
            for rank, name in self.names.items():
                ranks.setdefault(name, []).append(rank)
            index = self._index = {name: bits_of(members) for name, members in ranks.items()}
        return index.get(host, 0)


NO_HOSTS = HostTable({})


def encode_hosts(hosts: Sequence[str]) -> str:
    """Return host names as a host list (RFC 29)."""
    return Hostlist(hosts).encode()


def table_of(ranks: Idset, hosts: Sequence[str], where: str) -> HostTable:
    """Assign host names to ranks in ascending order.

    Raises RsetError, naming the field ``where``, for too few or too many names.
    """
    if len(hosts) != len(ranks):
        raise RsetError(f"{where}: names {len(hosts)} hosts, but the set has {len(ranks)} ranks")
    return HostTable(dict(zip(ranks, hosts)))


def joined(mine: HostTable, my_ranks: Idset, theirs: HostTable, their_ranks: Idset) -> HostTable:
    """Return a table with the ranks of two sets; one of the given tables if it has all of them.

    Raises RsetError for a rank with two names.
    """
    if mine is theirs or not theirs.names:
        return mine
    if not mine.names:
        return theirs
    for rank in my_ranks & their_ranks:
        if mine.names[rank] != theirs.names[rank]:
            raise RsetError(f"rank {rank} is {mine.names[rank]} in one set and {theirs.names[rank]} in the other")
    if len(my_ranks) < len(their_ranks):
        small, ranks, large = mine, my_ranks, theirs
    else:
        small, ranks, large = theirs, their_ranks, mine
    if all(large.names.get(rank) == small.names[rank] for rank in ranks):
        return large
    names = {rank: mine.names[rank] for rank in my_ranks}
    names.update((rank, theirs.names[rank]) for rank in their_ranks)
    return HostTable(names)


def order_of(hosts: Sequence[str], table: HostTable, ranks: Idset) -> Dict[int, int]:
    """Return the index of each rank's host in a list that must name the host of every rank once.

    Ranks of one host get its indices in order. Raises RsetError if the hosts are not exactly those of the ranks.
    """
    if len(hosts) != len(ranks):
        few = "few" if len(hosts) < len(ranks) else "many"
        raise RsetError(f"too {few} hosts to rerank: got {len(hosts)}, the resource set has {len(ranks)} nodes")
    places, _ = _places(hosts, table, ranks)
    if len(places) < len(ranks):
        taken, names = set(places.values()), table.names
        host = next(host for place, host in enumerate(hosts) if place not in taken)
        known = encode_hosts([names[rank] for rank in ranks] if names else [])
        raise RsetError(f"host {host} is not in the resource set ({known})")
    return places


def places_of(hosts: Sequence[str], table: HostTable, ranks: Idset) -> Dict[int, int]:
    """Return the index of each rank's host in a list that may name further hosts.

    A rank keeps its number if the list has its host at that index. The other ranks of a host get its free indices in
    order. Raises RsetError with the hosts that the list lacks, or has less often than there are ranks on them.
    """
    names = table.names
    kept = {rank for rank in ranks if rank < len(hosts) and hosts[rank] == names.get(rank)}
    places, missing = _places(hosts, table, ranks, kept)
    if missing:
        short = f"{encode_hosts(missing)} not found in {encode_hosts(hosts)}"
        raise RsetError(f"host{'s' if len(missing) > 1 else ''} {short}")
    return places


def _places(
    hosts: Sequence[str], table: HostTable, ranks: Idset, kept: AbstractSet[int] = frozenset()
) -> Tuple[Dict[int, int], List[str]]:
    """Return the indices of ranks in a host list, and the hosts of ranks without one.

    Ranks in `kept` do not change.
    """
    free: Dict[str, List[int]] = {}
    for place in range(len(hosts) - 1, -1, -1):
        if place not in kept:
            free.setdefault(hosts[place], []).append(place)
    places = {rank: rank for rank in kept}
    missing = []
    for rank in ranks:
        if rank in kept:
            continue
        host = table.names.get(rank, "")
        if free.get(host):
            places[rank] = free[host].pop()
        else:
            missing.append(host)
    return places, missing
