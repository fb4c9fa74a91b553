"""The fields of R version 1 (RFC 20): reading each with a clear error, and the bit sets they become.

Kept apart from the ResourceSet value so that what can be wrong with an R is in one place. The inner form is a dict
from a group's children to its ranks, both as bit sets.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from headrace.spec.hostlist import Hostlist
from headrace.spec.idset import Idset

# The ids of each child type as a bit set, sorted by type, empty types left out: one group's key.
Children = Tuple[Tuple[str, int], ...]
Groups = Mapping[Children, int]

# RFC 20, properties.
_PROPERTY_FORBIDDEN = frozenset("!&'\"^`|()")

# A rank or core beyond this is a mistake or an attack: one bit set would take 512 kB and more.
_MAX_ID = 1 << 22


class RsetError(ValueError):
    """A resource set, or the configuration of one, is not well formed; the message names the field."""


# -- id sets as bits ------------------------------------------------------------------------------


def bits_of(ids: Iterable[int]) -> int:
    """Return ids as a bit set."""
    return Idset(ids).bits


def popcount(bits: int) -> int:
    """Return how many ids a bit set has."""
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


def encode_hosts(hosts: Sequence[str]) -> str:
    """Return host names as a host list (RFC 29)."""
    return Hostlist(hosts).encode()


@lru_cache(maxsize=4096)
def decode_ids(text: str) -> int:
    """Read an idset string; raises ValueError."""
    ids = Idset.parse(text)
    if ids and ids.last > _MAX_ID:
        raise ValueError(f"id {ids.last} is beyond {_MAX_ID}")
    return ids.bits


# -- groups --------------------------------------------------------------------------------------


def children_of(ids: Mapping[str, int]) -> Children:
    """Make a group's key of the ids of each type."""
    return tuple(sorted((kind, bits) for kind, bits in ids.items() if bits))


def add_group(groups: Dict[Children, int], children: Children, ranks: int) -> None:
    """Add ranks to a group; none adds nothing."""
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
    """Return what is in either; the ranks of a dict's groups do not overlap."""
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


# -- reading fields ------------------------------------------------------------------------------


def kind_of(value: Any) -> str:
    """Say what a JSON value is, for messages."""
    if value is None:
        return "missing or null"
    names = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), type(value).__name__)


def _read_ids(value: Any, where: str) -> int:
    if not isinstance(value, str):
        raise RsetError(f"{where}: must be an idset string such as '0-3', not {kind_of(value)}")
    try:
        return decode_ids(value)
    except ValueError as exc:
        raise RsetError(f"{where}: {exc}") from None


def read_groups(r_lite: Any) -> Dict[Children, int]:
    """Read R_lite; raises RsetError."""
    if not isinstance(r_lite, list):
        raise RsetError(f"execution.R_lite: must be an array, not {kind_of(r_lite)}")
    groups: Dict[Children, int] = {}
    seen = 0
    for index, entry in enumerate(r_lite):
        where = f"execution.R_lite[{index}]"
        if not isinstance(entry, dict):
            raise RsetError(f"{where}: must be an object with rank and children, not {kind_of(entry)}")
        ranks = _read_ids(entry.get("rank"), f"{where}.rank")
        children = entry.get("children")
        if not isinstance(children, dict):
            raise RsetError(f"{where}.children: must be an object such as {{'core': '0-3'}}, not {kind_of(children)}")
        key = children_of({kind: _read_ids(ids, f"{where}.children.{kind}") for kind, ids in children.items()})
        if ranks & seen:
            groups = united(groups, {key: ranks})
        else:
            add_group(groups, key, ranks)
        seen |= ranks
    return groups


def read_time(execution: Dict[str, Any], key: str) -> float:
    """Read starttime or expiration, 0.0 if absent; raises RsetError."""
    value = execution.get(key)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise RsetError(f"execution.{key}: must be seconds since the epoch, 0 or more, not {value!r}")
    return value


def read_nslots(execution: Dict[str, Any]) -> Optional[int]:
    """Read nslots, None if absent; raises RsetError."""
    value = execution.get("nslots")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise RsetError(f"execution.nslots: must be an integer, 0 or more, not {value!r}")
    return value


def read_nodelist(value: Any) -> List[str]:
    """Read nodelist into host names; raises RsetError."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise RsetError(f"execution.nodelist: must be an array of host list strings, not {value!r}")
    try:
        return [host for item in value if item for host in Hostlist.parse(item)]
    except ValueError as exc:
        raise RsetError(f"execution.nodelist: {exc}") from None


def read_properties(value: Any) -> Dict[str, int]:
    """Read properties into ranks by name; raises RsetError."""
    if not isinstance(value, dict):
        raise RsetError(f"execution.properties: must be an object of name: ranks, not {kind_of(value)}")
    properties: Dict[str, int] = {}
    for name, ids in value.items():
        check_property(name, "execution.properties")
        properties[name] = _read_ids(ids, f"execution.properties.{name}")
    return properties


def check_property(name: str, where: str) -> None:
    """Raise RsetError unless a property has a name RFC 20 allows."""
    if not name or not _PROPERTY_FORBIDDEN.isdisjoint(name):
        raise RsetError(f"{where}: invalid property {name!r}: a name is not empty and has none of ! & ' \" ^ ` | ( )")


def read_config_entry(entry: Any, where: str) -> Tuple[List[str], Dict[str, int], List[str]]:
    """Read one ``[[resource.config]]`` table into (hosts, ids by child type, properties); raises RsetError."""
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
        if not isinstance(name, str) or not name or not _PROPERTY_FORBIDDEN.isdisjoint(name):
            raise RsetError(f"{where}: invalid property {json.dumps(name)}")
    return hosts, children, properties
