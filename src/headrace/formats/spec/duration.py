"""Durations as people write them: `90`, `1.5h`, `100ms`, `infinity` (RFC 23, Flux Standard Duration)."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# Compiled on first use, since most commands get no duration.
_DURATION = r"""(?aix)\+?(?:
    (?P<infinite>inf(?:inity)?)
    | (?P<hex>0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?)
    | (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)
)(?P<unit>(?-i:ms|s|m|h|d)?)\Z"""


class DurationError(ValueError):
    """Invalid text for a duration (RFC 23), or an invalid number of seconds."""


def parse(text: str) -> float:
    """Return the seconds of a duration: a number as for C's strtod, and an optional unit (default: s).

    Infinity is allowed. Raises DurationError, also for a number that is negative or too large for a double.
    """
    import re

    match = re.match(_DURATION, text)
    if match is None:
        raise DurationError(f"invalid duration '{text}': expected a number and ms, s, m, h or d, such as 1.5h")
    if match.group("infinite"):
        return math.inf
    try:
        number = float.fromhex(match.group("hex")) if match.group("hex") else float(match.group("number"))
        seconds = number * _UNITS[match.group("unit")]
    except OverflowError:
        seconds = math.inf
    if seconds == math.inf:
        raise DurationError(f"invalid duration '{text}': too large, write infinity for no limit")
    return seconds


def encode(seconds: float, digits: Optional[int] = None) -> str:
    """Return a duration as text, in the largest unit that does not exceed it.

    Without `digits`, the format is that of listings: below ten seconds the precision is a millisecond (`0.056s`, and
    `0s` below one millisecond), otherwise four significant digits (`2m`, `1.5h`). With `digits`, the format is that of
    log lines and `flux overlay status`: this number of significant digits for any value (`8.79558s` with 6). Raises
    DurationError for a negative number or NaN.
    """
    if not seconds >= 0:
        raise DurationError(f"{seconds} is not a duration: must be zero or more seconds")
    if seconds == math.inf:
        return "infinity"
    if digits is None and seconds < 1e-3:
        return "0s"
    if digits is None and seconds < 10:
        return f"{seconds:.3f}s"
    for unit in ("d", "h", "m"):
        if seconds >= _UNITS[unit]:
            return f"{seconds / _UNITS[unit]:.{digits or 4}g}{unit}"
    return f"{seconds:.{digits or 4}g}s"
