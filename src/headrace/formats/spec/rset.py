"""Resource sets (R version 1, RFC 20) as values.

All rooms that allocate or release resources exchange R: resource, sched, exec, the shell, the graph, the command line.
A set is stored like R_lite, with one group for each distinct set of children, and every id set is an int used as a bit
set. So a system of 16,384 equal nodes is one group, and set operations cost a few integer operations rather than a loop
over nodes.

A ResourceSet is immutable; every operation returns a new one. Sets share the tables of host names and properties with
the sets they were derived from.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from headrace.formats.spec import constraint as constraint_
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.plain_json import kind_of
from headrace.formats.spec.rset_config import read_config
from headrace.formats.spec.rset_fields import (
    RsetError,
    check_property,
    read_groups,
    read_nodelist,
    read_nslots,
    read_properties,
    read_time,
)
from headrace.formats.spec.rset_groups import (
    Groups,
    any_of,
    bits_of,
    bracketed,
    by_first_rank,
    children_of,
    cores_from_0,
    difference,
    encode_ids,
    intersection,
    popcount,
    united,
)
from headrace.formats.spec.rset_hosts import NO_HOSTS, HostTable, encode_hosts, joined, order_of, places_of, table_of

__all__ = ["Node", "ResourceSet", "RsetError"]


class Node(NamedTuple):
    """One rank of a resource set."""

    rank: int
    host: str
    cores: Idset
    gpus: Idset


class ResourceSet:
    """An R version 1 object: ranks with their cores, gpus and hosts, and the time of their allocation.

    ``starttime`` and ``expiration`` are seconds since the epoch (0: unset). ``scheduling`` and ``attributes`` are
    opaque and kept unchanged. ``nslots`` is the number of task slots if R has it (RFC 20), otherwise None.
    """

    __slots__ = (
        "_groups",
        "_hosts",
        "_properties",
        "_rank_bits",
        "attributes",
        "expiration",
        "nslots",
        "scheduling",
        "starttime",
    )

    def __init__(
        self,
        groups: Optional[Groups] = None,
        hosts: Optional[HostTable] = None,
        properties: Optional[Mapping[str, int]] = None,
        starttime: float = 0.0,
        expiration: float = 0.0,
        nslots: Optional[int] = None,
        scheduling: Any = None,
        attributes: Any = None,
    ) -> None:
        """Make a set from its internal parts. Outside this room, use from_obj, parse, build and from_config."""
        self._groups: Groups = {} if groups is None else groups
        self._hosts = NO_HOSTS if hosts is None else hosts
        self._properties: Mapping[str, int] = {} if properties is None else properties
        self.starttime = starttime
        self.expiration = expiration
        self.nslots = nslots
        self.scheduling = scheduling
        self.attributes = attributes
        self._rank_bits = any_of(self._groups)

    # -- reading -----------------------------------------------------------------------------------

    @classmethod
    def parse(cls, text: Union[str, bytes]) -> ResourceSet:
        """Read R from JSON text; raises RsetError."""
        try:
            obj = json.loads(text)
        except (ValueError, RecursionError) as exc:
            raise RsetError(f"R is not JSON: {exc}") from None
        return cls.from_obj(obj)

    @classmethod
    def from_obj(cls, obj: Any) -> ResourceSet:
        """Read a decoded R object (RFC 20); raises RsetError with the path of the wrong field."""
        if not isinstance(obj, dict):
            raise RsetError(f"R: must be an object, not {kind_of(obj)}")
        if obj.get("version") != 1 or isinstance(obj["version"], bool):
            raise RsetError(f"version: must be 1, not {obj.get('version')!r}")
        execution = obj.get("execution")
        if not isinstance(execution, dict):
            raise RsetError(f"execution: must be an object with R_lite, not {kind_of(execution)}")
        groups = read_groups(execution.get("R_lite"))
        rset = cls(
            groups,
            None,
            None,
            read_time(execution, "starttime"),
            read_time(execution, "expiration"),
            read_nslots(execution),
            obj.get("scheduling"),
            obj.get("attributes"),
        )
        if rset.expiration and rset.starttime and rset.expiration <= rset.starttime:
            raise RsetError(f"execution.expiration: {rset.expiration} must be after starttime {rset.starttime}")
        if execution.get("nodelist") is not None:
            hosts = read_nodelist(execution["nodelist"])
            rset._hosts = table_of(rset.ranks, hosts, "execution.nodelist")
        if execution.get("properties") is not None:
            rset._properties = read_properties(execution["properties"])
        return rset

    @classmethod
    def build(
        cls,
        ranks: Idset,
        cores: Idset,
        gpus: Optional[Idset] = None,
        hosts: Optional[Sequence[str]] = None,
        properties: Optional[Mapping[str, Idset]] = None,
    ) -> ResourceSet:
        """Make a set of equal ranks.

        ``hosts`` are assigned to the ranks in ascending order. Raises RsetError if there are more or fewer hosts.
        """
        children = children_of({"core": cores.bits, "gpu": gpus.bits if gpus is not None else 0})
        rset = cls({children: ranks.bits} if ranks.bits else {})
        if hosts is not None:
            rset._hosts = table_of(ranks, hosts, "hosts")
        for name in properties or {}:
            check_property(name, "properties")
        rset._properties = {name: members.bits for name, members in (properties or {}).items()}
        return rset

    @classmethod
    def from_config(cls, config: Any) -> ResourceSet:
        """Make a set from ``[[resource.config]]`` tables: a list of {hosts, cores?, gpus?, properties?}.

        Raises RsetError.
        """
        return cls(*read_config(config))

    # -- writing -----------------------------------------------------------------------------------

    def to_obj(self) -> Dict[str, Any]:
        """Return R as a JSON object, keys in the order real Flux writes them, R_lite by first rank."""
        execution: Dict[str, Any] = {
            "R_lite": [
                # Flux writes gpus before cores.
                {"rank": encode_ids(ranks), "children": {kind: encode_ids(ids) for kind, ids in reversed(children)}}
                for children, ranks in by_first_rank(self._groups)
            ],
            "starttime": self.starttime,
            "expiration": self.expiration,
        }
        if not self._rank_bits:
            execution["nodelist"] = [""]
        elif self._hosts.names:
            execution["nodelist"] = [encode_hosts(self.hosts)]
        if self.nslots is not None:
            execution["nslots"] = self.nslots
        properties = {name: encode_ids(ids) for name, ids in self._own_properties().items()}
        if properties:
            execution["properties"] = properties
        obj: Dict[str, Any] = {"version": 1, "execution": execution}
        if self.scheduling is not None:
            obj["scheduling"] = self.scheduling
        if self.attributes is not None:
            obj["attributes"] = self.attributes
        return obj

    def encode(self) -> str:
        """Return R as JSON text on one line."""
        return json.dumps(self.to_obj(), ensure_ascii=False)

    def short_form(self) -> str:
        """Return the summary that Flux calls resource_summary: ``rank[0-3]/core[0-1] rank4/core0,gpu0``.

        It is ``""`` for an empty set.
        """
        return " ".join(
            f"rank{bracketed(ranks)}/" + ",".join(kind + bracketed(ids) for kind, ids in children)
            for children, ranks in by_first_rank(self._groups)
        )

    # -- contents ----------------------------------------------------------------------------------

    @property
    def ranks(self) -> Idset:
        """All ranks."""
        return Idset.from_bits(self._rank_bits)

    @property
    def nnodes(self) -> int:
        """Number of ranks."""
        return popcount(self._rank_bits)

    @property
    def ncores(self) -> int:
        """Number of cores over all ranks."""
        return self.count("core")

    @property
    def ngpus(self) -> int:
        """Number of gpus over all ranks."""
        return self.count("gpu")

    def count(self, kind: str) -> int:
        """Return the number of children of a type over all ranks; ``node`` counts ranks."""
        if kind == "node":
            return self.nnodes
        return sum(
            popcount(ids) * popcount(ranks)
            for children, ranks in self._groups.items()
            for k, ids in children
            if k == kind
        )

    @property
    def hosts(self) -> List[str]:
        """Host names in ascending order of rank; empty if R has no node list."""
        names = self._hosts.names
        if not names:
            return []
        return [names[rank] for rank in Idset.from_bits(self._rank_bits)]

    @property
    def nodelist(self) -> str:
        """Host names in ascending order of rank, as a host list."""
        return encode_hosts(self.hosts)

    @property
    def properties(self) -> Dict[str, Idset]:
        """Ranks by property."""
        return {name: Idset.from_bits(ids) for name, ids in self._own_properties().items()}

    def host(self, rank: int) -> str:
        """Return the host name of a rank, ``""`` where it is unknown."""
        return self._hosts.names.get(rank, "")

    def host_ranks(self, host: str) -> Idset:
        """Return the ranks on a host; empty if there are none."""
        return Idset.from_bits(self._hosts.bits(host) & self._rank_bits)

    def ids(self, rank: int, kind: str) -> Idset:
        """Return the ids of one child type (``core``, ``gpu``) of one rank."""
        mask = 1 << rank
        for children, ranks in self._groups.items():
            if ranks & mask:
                return Idset.from_bits(dict(children).get(kind, 0))
        return Idset.from_bits(0)

    def cores(self, rank: int) -> Idset:
        """Return the core ids of one rank; empty if the rank is not in the set."""
        return self.ids(rank, "core")

    def gpus(self, rank: int) -> Idset:
        """Return the gpu ids of one rank; empty if the rank is not in the set."""
        return self.ids(rank, "gpu")

    def groups(self) -> Iterator[Tuple[Idset, Idset, Idset]]:
        """Yield (ranks, cores, gpus) for each distinct set of children, by first rank."""
        for children, ranks in by_first_rank(self._groups):
            ids = dict(children)
            yield Idset.from_bits(ranks), Idset.from_bits(ids.get("core", 0)), Idset.from_bits(ids.get("gpu", 0))

    def nodes(self) -> Iterator[Node]:
        """Yield every rank with its host and ids, ascending."""
        found: List[Node] = []
        for ranks, cores, gpus in self.groups():
            found.extend(Node(rank, self.host(rank), cores, gpus) for rank in ranks)
        found.sort(key=lambda node: node.rank)
        return iter(found)

    def __bool__(self) -> bool:
        return self._rank_bits != 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResourceSet):
            return NotImplemented
        return self.to_obj() == other.to_obj()

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.short_form()

    def __repr__(self) -> str:
        return f"ResourceSet({self.short_form()!r})"

    # -- deriving ----------------------------------------------------------------------------------

    def replace(self, **changes: Any) -> ResourceSet:
        """Return a copy with a new ``starttime``, ``expiration``, ``nslots``, ``scheduling``, ``attributes``."""
        copy = self._derive(self._groups)
        for name, value in changes.items():
            if name not in {"starttime", "expiration", "nslots", "scheduling", "attributes"}:
                raise TypeError(f"replace() has no field {name!r}")
            setattr(copy, name, value)
        return copy

    def union(self, other: ResourceSet) -> ResourceSet:
        """Return the union of two sets; raises RsetError where one rank has two host names."""
        result = self._derive(united(self._groups, other._groups))
        result._hosts = joined(self._hosts, self.ranks, other._hosts, other.ranks)
        if other._properties is not self._properties:
            # A property table may contain ranks that are no longer in its own set but are in the other set.
            properties = self._own_properties()
            for name, bits in other._own_properties().items():
                properties[name] = properties.get(name, 0) | bits
            result._properties = properties
        return result

    def diff(self, other: ResourceSet) -> ResourceSet:
        """Return the resources of this set that are not in the other; a rank without resources is removed."""
        return self._derive(difference(self._groups, other._groups))

    def intersect(self, other: ResourceSet) -> ResourceSet:
        """Return the resources in both sets."""
        return self._derive(intersection(self._groups, other._groups))

    def append(self, other: ResourceSet) -> ResourceSet:
        """Return the union of two disjoint sets; raises RsetError naming the resources in both."""
        shared = self.intersect(other)
        if shared:
            raise RsetError(f"cannot append: both sets have {shared.short_form()}")
        return self.union(other)

    def select_ranks(self, ranks: Idset) -> ResourceSet:
        """Return the given ranks only."""
        return self._masked(ranks.bits)

    def exclude_ranks(self, ranks: Idset) -> ResourceSet:
        """Return all but the given ranks."""
        return self._masked(self._rank_bits & ~ranks.bits)

    def select_hosts(self, hosts: Iterable[str]) -> ResourceSet:
        """Return the ranks on the given hosts; hosts that are not in the set are ignored."""
        bits = 0
        for host in hosts:
            bits |= self._hosts.bits(host)
        return self._masked(bits)

    def matching_ranks(self, constraint: Any) -> Idset:
        """Return the ranks that satisfy an RFC 31 constraint; raises ConstraintError."""
        matcher = constraint_.compile(constraint)
        bits = matcher(self._rank_bits, self._hosts.bits, self._properties)
        return Idset.from_bits(bits)

    def select_constraint(self, constraint: Any) -> ResourceSet:
        """Return the set with only the ranks that satisfy an RFC 31 constraint; raises ConstraintError."""
        return self.select_ranks(self.matching_ranks(constraint))

    def with_property(self, name: str, ranks: Idset) -> ResourceSet:
        """Return the set with a property added to ranks.

        Raises RsetError for an unknown rank, or a name that RFC 20 forbids.
        """
        check_property(name, "properties")
        unknown = ranks.bits & ~self._rank_bits
        if unknown:
            raise RsetError(f"ranks {encode_ids(unknown)} not found in target resource set")
        copy = self._derive(self._groups)
        properties = self._own_properties()
        properties[name] = properties.get(name, 0) | ranks.bits
        copy._properties = properties
        return copy

    def without_properties(self, keep: Callable[[str], bool]) -> ResourceSet:
        """Return the set with only the properties for whose names ``keep`` returns true."""
        copy = self._derive(self._groups)
        copy._properties = {name: bits for name, bits in self._properties.items() if keep(name)}
        return copy

    def rerank(self, hosts: Optional[Sequence[str]] = None) -> ResourceSet:
        """Return the set with ranks 0..N-1, in their order, or in the order of ``hosts``.

        ``hosts`` must name every node once. A sub-instance adopts the R of its job this way, with its own host list as
        ``hosts``. Ranks of one host keep their order. Core and gpu ids do not change. Raises RsetError if the hosts are
        not exactly those of the set.
        """
        if hosts is None:
            return self._renumbered({rank: new for new, rank in enumerate(self.ranks)})
        return self._renumbered(order_of(hosts, self._hosts, self.ranks))

    def ranked_by(self, hosts: Sequence[str]) -> ResourceSet:
        """Return the set with the index of its host in ``hosts`` as the rank of each node.

        ``hosts`` may name further hosts. An instance adopts its configured R this way; ``hosts`` are its brokers' hosts
        in rank order. Raises RsetError with the hosts that are not in the list, or less often than in the set. Without
        a node list, ranks do not change.
        """
        if not self._hosts.names:
            return self
        return self._renumbered(places_of(hosts, self._hosts, self.ranks))

    def remap(self) -> ResourceSet:
        """Return the set with ranks 0..N-1 and the cores of every rank renumbered from 0 (``flux R remap``).

        Gpu ids do not change.
        """
        ranked = self.rerank()
        return ranked._derive(cores_from_0(ranked._groups))

    # -- internal ----------------------------------------------------------------------------------

    def _derive(self, groups: Groups) -> ResourceSet:
        return ResourceSet(
            groups,
            self._hosts,
            self._properties,
            self.starttime,
            self.expiration,
            self.nslots,
            self.scheduling,
            self.attributes,
        )

    def _masked(self, bits: int) -> ResourceSet:
        return self._derive({children: ranks & bits for children, ranks in self._groups.items() if ranks & bits})

    def _own_properties(self) -> Dict[str, int]:
        mask = self._rank_bits
        return {name: bits & mask for name, bits in self._properties.items() if bits & mask}

    def _renumbered(self, order: Mapping[int, int]) -> ResourceSet:
        def moved(bits: int) -> int:
            return bits_of(order[rank] for rank in Idset.from_bits(bits))

        names = self._hosts.names
        return ResourceSet(
            {children: moved(ranks) for children, ranks in self._groups.items()},
            HostTable({new: names[old] for old, new in order.items()}) if names else None,
            {name: moved(bits) for name, bits in self._own_properties().items()},
            self.starttime,
            self.expiration,
            self.nslots,
            self.scheduling,
            self.attributes,
        )
