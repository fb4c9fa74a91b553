"""A set of resources (R version 1, RFC 20) with set operations."""

from __future__ import annotations

import errno
import json
from typing import Any, Dict, List, Union

from flux.hostlist import Hostlist
from flux.idset import IDset
from headrace.spec import rset


class ResourceSet:
    """Ranks with their cores and gpus, from R as an object or text; `None` is the empty set."""

    def __init__(self, arg: Union[str, Dict[str, Any], rset.ResourceSet, ResourceSet, None] = None) -> None:
        self.state: Any = None
        if isinstance(arg, ResourceSet):
            self.rset = arg.rset
        elif isinstance(arg, rset.ResourceSet):
            self.rset = arg
        elif arg is None:
            self.rset = rset.ResourceSet.from_obj({"version": 1, "execution": {"R_lite": [], "nodelist": []}})
        else:
            self.rset = rset.ResourceSet.parse(arg) if isinstance(arg, str) else rset.ResourceSet.from_obj(arg)

    @property
    def nnodes(self) -> int:
        return int(self.rset.nnodes)

    @property
    def ncores(self) -> int:
        return int(self.rset.ncores)

    @property
    def ngpus(self) -> int:
        return int(self.rset.ngpus)

    @property
    def nodelist(self) -> Hostlist:
        return Hostlist(list(self.rset.hosts))

    @property
    def ranks(self) -> IDset:
        return IDset(self.rset.ranks)

    @property
    def rlist(self) -> str:
        return str(self.rset.short_form())

    @property
    def properties(self) -> str:
        return json.dumps({name: str(ranks) for name, ranks in self.rset.properties.items()})

    def count(self, name: str) -> int:
        return int(self.rset.count(name))

    def to_dict(self) -> Dict[str, Any]:
        obj: Dict[str, Any] = self.rset.to_obj()
        return obj

    def encode(self) -> str:
        return str(self.rset.encode())

    def dumps(self) -> str:
        return self.rlist

    def __str__(self) -> str:
        return self.rlist

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResourceSet) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def union(self, *others: ResourceSet) -> ResourceSet:
        out = self.rset
        for other in others:
            out = out.union(ResourceSet(other).rset)
        return ResourceSet(out)

    def intersect(self, *others: ResourceSet) -> ResourceSet:
        out = self.rset
        for other in others:
            out = out.intersect(ResourceSet(other).rset)
        return ResourceSet(out)

    def diff(self, *others: ResourceSet) -> ResourceSet:
        out = self.rset
        for other in others:
            out = out.diff(ResourceSet(other).rset)
        return ResourceSet(out)

    def __or__(self, other: ResourceSet) -> ResourceSet:
        return self.union(other)

    def __and__(self, other: ResourceSet) -> ResourceSet:
        return self.intersect(other)

    def __sub__(self, other: ResourceSet) -> ResourceSet:
        return self.diff(other)

    __add__ = __or__

    def append(self, other: ResourceSet) -> ResourceSet:
        self.rset = self.rset.append(ResourceSet(other).rset)
        return self

    def copy_ranks(self, ranks: Any) -> ResourceSet:
        return ResourceSet(self.rset.select_ranks(IDset(ranks)._ids))

    def copy_constraint(self, constraint: Dict[str, Any]) -> ResourceSet:
        return ResourceSet(self.rset.select_constraint(constraint))

    def add(self, other: ResourceSet) -> ResourceSet:
        """Add what is not there yet."""
        self.rset = self.rset.union(ResourceSet(other).rset)
        return self

    def copy(self) -> ResourceSet:
        return ResourceSet(self)

    def remove_ranks(self, ranks: Any) -> ResourceSet:
        self.rset = self.rset.exclude_ranks(IDset(ranks)._ids)
        return self

    def host_ranks(self, hosts: Any, ignore_nomatch: bool = False) -> List[int]:
        """The first rank of each host. Raises FileNotFoundError for one that is not there."""
        out = []
        for host in Hostlist(hosts) if isinstance(hosts, str) else hosts:
            ranks = self.rset.host_ranks(host)
            if ranks:
                out.append(next(iter(ranks)))
            elif not ignore_nomatch:
                raise FileNotFoundError(errno.ENOENT, f"host {host} not found")
        return out

    def set_property(self, name: str, ranks: Any = None) -> ResourceSet:
        """Give a property to `ranks`, by default to all."""
        self.rset = self.rset.with_property(name, self.rset.ranks if ranks is None else IDset(ranks)._ids)
        return self

    def get_properties(self) -> str:
        """The properties as JSON text: ranks by name."""
        return self.properties

    @property
    def expiration(self) -> float:
        return float(self.to_dict()["execution"].get("expiration", 0.0))

    @expiration.setter
    def expiration(self, value: float) -> None:
        self.rset = self.rset.replace(expiration=float(value))

    @property
    def starttime(self) -> float:
        return float(self.to_dict()["execution"].get("starttime", 0.0))

    @starttime.setter
    def starttime(self, value: float) -> None:
        self.rset = self.rset.replace(starttime=float(value))
