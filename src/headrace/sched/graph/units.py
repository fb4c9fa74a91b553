"""Units of counts: a jobspec may ask for memory in MB (RFC 14, unit) where the graph counts it in GiB.

A unit is a prefix, decimal or binary (Ki, Mi, ...), and a quantity: bytes, bits, watts, hertz, possibly per second.
"""

from __future__ import annotations

import re

_UNIT = re.compile(r"(|[kKMGTPE]i?)(B|b|W|Hz)(/s)?\Z")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def ratio(unit: str, into: str) -> tuple[int, int] | None:
    """The size of one `unit` in `into`, as numerator and denominator; None if they measure different quantities."""
    if unit == into:
        return 1, 1
    given, wanted = _UNIT.match(unit), _UNIT.match(into)
    if given is None or wanted is None or given.group(2, 3) != wanted.group(2, 3):
        return None
    return _multiple(given[1]), _multiple(wanted[1])


def _multiple(prefix: str) -> int:
    return int((1024 if prefix[1:] else 1000) ** _POWERS[prefix[:1]])
