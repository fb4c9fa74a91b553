"""Readers of the fields of R version 1 (RFC 20), with errors that name the field.

They are separate from the ResourceSet value, so that all error messages about an R are in one file.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Dict, List, Optional

from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.plain_json import kind_of
from headrace.formats.spec.rset_groups import Children, add_group, children_of, united

# Characters that RFC 20 forbids in the name of a property.
_PROPERTY_FORBIDDEN = frozenset("!&'\"^`|()")

# A bit set with a larger id would take more than 512 kB. Real systems have smaller ids.
_MAX_ID = 1 << 22


class RsetError(ValueError):
    """An invalid resource set, or configuration of one; the message names the field."""


@lru_cache(maxsize=4096)
def decode_ids(text: str) -> int:
    """Return the bit set of an idset string (RFC 22): bit i is 1 if the set has id i. Raises ValueError."""
    ids = Idset.parse(text)
    if ids and ids.last > _MAX_ID:
        raise ValueError(f"id {ids.last} is beyond {_MAX_ID}")
    return ids.bits


def _read_ids(value: Any, where: str) -> int:
    """Return the bit set of an idset string in the field `where`. Raises RsetError."""
    if not isinstance(value, str):
        raise RsetError(f"{where}: must be an idset string such as '0-3', not {kind_of(value)}")
    try:
        return decode_ids(value)
    except ValueError as exc:
        raise RsetError(f"{where}: {exc}") from None


def read_groups(r_lite: Any) -> Dict[Children, int]:
    """Read R_lite: for each set of children, the bit set of the ranks that have it. Raises RsetError."""
    if r_lite == {}:
        # Flux writes null for a set without resources.
        return {}
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
    """Read properties: by name, the bit set of the ranks that have the property. Raises RsetError."""
    if not isinstance(value, dict):
        raise RsetError(f"execution.properties: must be an object of name: ranks, not {kind_of(value)}")
    properties: Dict[str, int] = {}
    for name, ids in value.items():
        check_property(name, "execution.properties")
        properties[name] = _read_ids(ids, f"execution.properties.{name}")
    return properties


def is_property_name(name: str) -> bool:
    """Return whether RFC 20 allows a property with this name."""
    return bool(name) and _PROPERTY_FORBIDDEN.isdisjoint(name)


def check_property(name: str, where: str) -> None:
    """Raise RsetError for a property name that RFC 20 forbids; `where` is the field."""
    if not is_property_name(name):
        raise RsetError(f"{where}: invalid property {name!r}: a name is not empty and has none of ! & ' \" ^ ` | ( )")
