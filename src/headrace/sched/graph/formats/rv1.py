"""Graphs from a resource set, R version 1 (RFC 20): nodes that directly contain cores and GPUs.

R may carry a graph in its scheduling key, which has more detail; `read` uses it only if asked to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.sched.graph.formats import jgf
from headrace.sched.graph.model import MAX_VERTICES, Graph, GraphError

_DIGITS = re.compile(r"(\d+)$")
_MAX_IDS = 1 << 24


class HostError(GraphError):
    """A host name with a number that does not fit into 63 bits; `host` is the name."""

    def __init__(self, host: str) -> None:
        super().__init__(f"R: host {host!r}: its number does not fit 63 bits")
        self.host = host


class Entry(msgspec.Struct):
    """An execution target of R: its rank, host, and the ids of its resources by type, in R's order."""

    rank: int
    host: str
    children: dict[str, list[int]]
    properties: dict[str, str]


class ExecutionSet(msgspec.Struct):
    """R's execution key: its targets in order of appearance, its start and its expiration (0: no end)."""

    entries: list[Entry]
    start: int
    expiration: int


def _ids(value: Any, where: str) -> list[int]:
    if not isinstance(value, str):
        raise GraphError(f'{where}: must be an idset string such as "0-3", not {value!r}')
    try:
        found = Idset.parse(value)
    except ValueError as exc:
        raise GraphError(f"{where}: {exc}") from None
    if len(found) > _MAX_IDS:
        raise GraphError(f"{where}: more than {_MAX_IDS} ids")
    return list(found)


def parse(obj: Any) -> ExecutionSet:
    """The targets of an R object. Raises GraphError naming the wrong field."""
    if not isinstance(obj, Mapping) or obj.get("version") != 1:
        raise GraphError("R: must be an object of version 1")
    execution = obj.get("execution")
    if not isinstance(execution, Mapping):
        raise GraphError("R: execution: must be an object")
    lite = execution.get("R_lite")
    if not isinstance(lite, list):
        raise GraphError("R: execution.R_lite: must be a list")
    entries: list[Entry] = []
    for i, item in enumerate(lite):
        where = f"R: execution.R_lite[{i}]"
        if not isinstance(item, Mapping) or not isinstance(item.get("children"), Mapping):
            raise GraphError(f"{where}: must be an object with rank and children")
        children = {str(k): _ids(v, f"{where}.children.{k}") for k, v in item["children"].items()}
        entries.extend(Entry(rank, "", children, {}) for rank in _ids(item.get("rank"), f"{where}.rank"))
    hosts: list[str] = []
    nodelist = execution.get("nodelist") or []
    if not isinstance(nodelist, list):
        raise GraphError(f"R: execution.nodelist: must be a list of host lists, not {nodelist!r}")
    for text in nodelist:
        try:
            hosts.extend(Hostlist.parse(text))
        except (ValueError, TypeError) as exc:
            raise GraphError(f"R: execution.nodelist: {exc}") from None
    # Hosts are listed in rank order; a rank that appears in several entries has one host.
    ranks = sorted({entry.rank for entry in entries})
    if len(ranks) != len(hosts):
        raise GraphError(f"R: execution: {len(hosts)} hosts in nodelist but {len(ranks)} ranks in R_lite")
    host_of = dict(zip(ranks, hosts, strict=True))
    properties: dict[int, dict[str, str]] = {}
    given = execution.get("properties") or {}
    if not isinstance(given, Mapping):
        raise GraphError("R: execution.properties: must be an object of idsets by property")
    for name, where_ in given.items():
        for rank in _ids(where_, f"R: execution.properties.{name}"):
            properties.setdefault(rank, {})[name] = ""
    for entry in entries:
        entry.host = host_of[entry.rank]
        entry.properties = properties.get(entry.rank, {})
    return ExecutionSet(entries, _seconds(execution, "starttime"), _seconds(execution, "expiration"))


def _seconds(execution: Mapping[str, Any], key: str) -> int:
    value = execution.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise GraphError(f"R: execution.{key}: must be a time in seconds, not {value!r}")
    return int(value)


def read(text: str | bytes, scheduling: bool = False) -> Graph:
    """The graph of an R document; with `scheduling` that of its scheduling key, if it has one.

    Raises GraphError.
    """
    try:
        obj = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise GraphError(f"R: {exc}") from None
    return from_object(obj, scheduling)


def from_object(obj: Any, scheduling: bool = False) -> Graph:
    """As `read`, from decoded R."""
    if scheduling and isinstance(obj, Mapping) and isinstance(obj.get("scheduling"), Mapping):
        return jgf.from_object(obj["scheduling"])
    return _build(parse(obj))


def _build(found: ExecutionSet) -> Graph:
    graph = Graph()
    root = graph.add("cluster", id=0)
    by_rank: dict[int, int] = {}
    total = sum(len(ids) for entry in found.entries for ids in entry.children.values())
    if total > MAX_VERTICES:
        raise GraphError(f"R: execution.R_lite: {total} resources are more than {MAX_VERTICES}")
    for entry in found.entries:
        node = by_rank.get(entry.rank)
        if node is None:
            host = entry.host
            digits = _DIGITS.search(host)
            number = int(digits.group(1)) if digits else -1
            if number >= 2**63:
                raise HostError(host)
            basename = host[: -len(digits.group(1))] if digits else host
            node = by_rank[entry.rank] = graph.add(
                "node", root, basename=basename, id=number, rank=entry.rank, name=host, properties=entry.properties
            )
        # An idset has each id once, but R may list a rank several times.
        seen = {(graph.type[c], graph.id[c]) for c in graph.children[node]}
        for kind, ids in entry.children.items():
            for i in ids:
                if seen and (kind, i) in seen:
                    raise GraphError(f"R: execution.R_lite: rank {entry.rank}: {kind}{i} appears twice")
                graph.add(kind, node, id=i, rank=entry.rank)
    graph.start = found.start
    if found.expiration:
        if found.expiration < found.start:
            raise GraphError("R: execution.expiration: lies before starttime")
        graph.end = found.expiration
    return graph.finish()
