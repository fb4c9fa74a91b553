"""Checks that users' values can be written to the journal and read back by any reader. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

# Encoders and decoders of nested values recurse, and fail near Python's recursion limit (1000 frames). They fail at
# different depths, so a value that was encoded may be too deep to be decoded. The resources of a valid jobspec have up
# to 130 levels.
MOST_LEVELS = 150
TOO_DEEP = f"is nested deeper than {MOST_LEVELS} levels"
_TOO_LARGE = "has a whole number of more than 64 bits"

_CONTAINERS = frozenset((dict, list, tuple))
_pack = msgspec.msgpack.Encoder().encode


def is_deep(value: Any, most: int = MOST_LEVELS) -> bool:
    """True if objects and arrays in `value` are nested deeper than `most` levels."""
    layer = [value] if type(value) in _CONTAINERS else []
    for _ in range(most):
        if not layer:
            return False
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in _CONTAINERS
        ]
    return bool(layer)


def unstorable(value: Any) -> str:
    """The reason why a value cannot be stored, as the end of a sentence; "" if it can."""
    if is_deep(value):
        return TOO_DEEP
    try:
        _pack(value)
    except OverflowError:
        return _TOO_LARGE
    except UnicodeEncodeError:
        return "has text that is not Unicode"
    return ""
