"""Resources of the configuration: ``[[resource.config]]`` tables as the parts of a resource set.

Unlike R (rset_fields), a table names hosts, not ranks, and several tables may name one host.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Tuple

from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.plain_json import kind_of
from headrace.formats.spec.rset_fields import RsetError, decode_ids, is_property_name
from headrace.formats.spec.rset_groups import Children, Groups, bits_of, children_of
from headrace.formats.spec.rset_hosts import HostTable, encode_hosts


def read_config(config: Any) -> Tuple[Groups, HostTable, Dict[str, int]]:
    """Read {hosts, cores?, gpus?, properties?} tables into (groups, hosts, bit sets of ranks by property).

    Hosts get ranks in the order of first appearance; a later table adds to a host's resources. Raises RsetError.
    """
    if not isinstance(config, list):
        raise RsetError("resource config must be an array")
    names: Dict[str, int] = {}
    per_rank: List[Dict[str, int]] = []
    properties: Dict[str, int] = {}
    for index, entry in enumerate(config):
        hosts, children, props = _read_entry(entry, f"config[{index}]")
        for host in hosts:
            rank = names.setdefault(host, len(names))
            if rank == len(per_rank):
                per_rank.append({})
            mine = per_rank[rank]
            for kind, bits in children.items():
                mine[kind] = mine.get(kind, 0) | bits
        members = bits_of(names[host] for host in hosts)
        for name in props:
            properties[name] = properties.get(name, 0) | members
    if not per_rank:
        raise RsetError("no hosts configured")
    empty = [host for host, rank in names.items() if not any(per_rank[rank].values())]
    if empty:
        raise RsetError(f"resource.config: {encode_hosts(empty)} assigned no resources")
    by_children: Dict[Children, List[int]] = {}
    for rank, mine in enumerate(per_rank):
        by_children.setdefault(children_of(mine), []).append(rank)
    groups = {children: bits_of(ranks) for children, ranks in by_children.items()}
    return groups, HostTable(dict(enumerate(names))), properties


def _read_entry(entry: Any, where: str) -> Tuple[List[str], Dict[str, int], List[str]]:
    """Read one table into (hosts, ids by child type, properties); raises RsetError."""
    if not isinstance(entry, dict):
        raise RsetError(f"{where}: must be a table with hosts and cores, not {kind_of(entry)}")
    for key, value in entry.items():
        if key not in {"hosts", "cores", "gpus", "properties"}:
            raise RsetError(f"{where}: unknown key {key!r}; known are hosts, cores, gpus, properties")
        if key != "properties" and not isinstance(value, str):
            raise RsetError(f"{where}: {key} must be a string, not {kind_of(value)}")
    if "hosts" not in entry:
        raise RsetError(f"{where}: missing key 'hosts'")
    try:
        hosts = list(Hostlist.parse(entry["hosts"]))
    except ValueError as exc:
        raise RsetError(f"{where}: invalid hostlist '{entry['hosts']}': {exc}") from None
    if not hosts:
        raise RsetError(f"{where}: empty hostlist specified")
    children: Dict[str, int] = {}
    for key, kind in (("cores", "core"), ("gpus", "gpu")):
        if key in entry:
            try:
                children[kind] = decode_ids(entry[key])
            except ValueError as exc:
                raise RsetError(f"{where}: invalid idset {key}='{entry[key]}': {exc}") from None
    properties = entry.get("properties", [])
    if not isinstance(properties, list):
        raise RsetError(f"{where}: properties must be an array")
    for name in properties:
        if not isinstance(name, str) or not is_property_name(name):
            raise RsetError(f"{where}: invalid property {json.dumps(name)}")
    return hosts, children, properties
