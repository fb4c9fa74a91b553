"""A set of resources (R version 1, RFC 20) with set operations."""

from __future__ import annotations

import errno
import json
from typing import Any, Dict, List, Union

from flux.hostlist import Hostlist
from flux.idset import IDset
from flux.resource.Rlist import Rlist
from headrace.formats.spec import rset as spec_rset


class ResourceSet:
    """Ranks with their cores and gpus, from R as an object or text; `None` is the empty set.

    Raises TypeError for other types, ValueError for an invalid R of version 1, KeyError for an object without a
    version.
    """

    rset: spec_rset.ResourceSet

    def __init__(
        self, arg: Union[str, Dict[str, Any], spec_rset.ResourceSet, Rlist, ResourceSet, None] = None, version: int = 1
    ) -> None:
        self.state: Any = None
        if isinstance(arg, ResourceSet):
            self.rset = arg.rset
            self.state = arg.state
        elif isinstance(arg, spec_rset.ResourceSet):
            self.rset = arg
        elif arg is None:
            self.rset = spec_rset.ResourceSet.from_obj(
                {"version": version, "execution": {"R_lite": [], "nodelist": []}}
            )
        else:
            self.rset = self._read(arg)

    @staticmethod
    def _read(arg: Any) -> spec_rset.ResourceSet:
        if isinstance(arg, Rlist):
            arg = arg.to_dict()
        if isinstance(arg, str):
            if not arg:
                raise ValueError("R is empty")
            arg = json.loads(arg)
        elif not isinstance(arg, dict):
            raise TypeError(f"a resource set is R as an object or text, not {type(arg).__name__}")
        if isinstance(arg, dict) and "version" not in arg:
            raise KeyError("version")
        return spec_rset.ResourceSet.from_obj(arg)

    def _with(self, changed: spec_rset.ResourceSet) -> ResourceSet:
        out = ResourceSet(changed)
        out.state = self.state
        return out

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
        """The names of all properties, separated by commas."""
        return ",".join(self.rset.properties)

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

    def union(self, *args: ResourceSet) -> ResourceSet:
        out = self.rset
        for other in args:
            out = out.union(ResourceSet(other).rset)
        return ResourceSet(out)

    def intersect(self, *args: ResourceSet) -> ResourceSet:
        out = self.rset
        for other in args:
            out = out.intersect(ResourceSet(other).rset)
        return ResourceSet(out)

    def diff(self, *args: ResourceSet) -> ResourceSet:
        out = self.rset
        for other in args:
            out = out.diff(ResourceSet(other).rset)
        return ResourceSet(out)

    def __or__(self, other: ResourceSet) -> ResourceSet:
        return self.union(other)

    def __and__(self, other: ResourceSet) -> ResourceSet:
        return self.intersect(other)

    def __sub__(self, other: ResourceSet) -> ResourceSet:
        return self.diff(other)

    __add__ = __or__

    def append(self, *args: ResourceSet) -> ResourceSet:
        for other in args:
            self.rset = self.rset.append(ResourceSet(other).rset)
        return self

    def copy_ranks(self, ranks: Any) -> ResourceSet:
        return self._with(self.rset.select_ranks(IDset(ranks).ids))

    def copy_constraint(self, constraint: Dict[str, Any]) -> ResourceSet:
        return self._with(self.rset.select_constraint(constraint))

    def add(self, *args: ResourceSet) -> ResourceSet:
        """Add the resources that are missing."""
        for other in args:
            self.rset = self.rset.union(ResourceSet(other).rset)
        return self

    def copy(self) -> ResourceSet:
        return ResourceSet(self)

    def remove_ranks(self, ranks: Any) -> ResourceSet:
        self.rset = self.rset.exclude_ranks(IDset(ranks).ids)
        return self

    def host_ranks(self, hosts: Any, ignore_nomatch: bool = False) -> List[int]:
        """The first rank of each host. Raises FileNotFoundError for an unknown host."""
        out = []
        for host in Hostlist(hosts) if isinstance(hosts, str) else hosts:
            ranks = self.rset.host_ranks(host)
            if ranks:
                out.append(next(iter(ranks)))
            elif not ignore_nomatch:
                raise FileNotFoundError(errno.ENOENT, f"host {host} not found")
        return out

    def set_property(self, name: str, ranks: Any = None) -> ResourceSet:
        """Add a property to `ranks`, by default to all."""
        self.rset = self.rset.with_property(name, self.rset.ranks if ranks is None else IDset(ranks).ids)
        return self

    def get_properties(self) -> str:
        """The properties as JSON text: ranks by name."""
        return json.dumps({name: str(ranks) for name, ranks in self.rset.properties.items()})

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
