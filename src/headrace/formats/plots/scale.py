"""The tick marks of an axis: round numbers at equal distances, or round clock times."""

from __future__ import annotations

import time
from math import ceil, floor, log10

_DAY = 86400
# Seconds between two tick marks of a time axis.
_STEPS = (
    *(60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, _DAY),
    *(2 * _DAY, 7 * _DAY, 14 * _DAY, 30 * _DAY),
)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most `most` + 2 round numbers that cover `low` to `high`.

    They are multiples of 1, 2 or 5 times a power of ten.
    """
    if not high > low:
        high = low + 1.0
    raw = (high - low) / most
    power = 10.0 ** floor(log10(raw))
    step = next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= raw * (1 - 1e-9))
    first = floor(low / step + 1e-9)
    last = ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def number(value: float) -> str:
    """A number as an axis shows it: `1200`, `0.25`."""
    return f"{value:.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"


def length(seconds: float) -> str:
    """A length of time as an axis shows it: `30 s`, `5 min`, `2.5 h`, `3 d`."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def clock_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round local times from `low` to `high` (seconds since the epoch), for up to half a year.

    There are at most `most` + 1.
    """
    step = next((step for step in _STEPS if (high - low) / step <= most), _STEPS[-1])
    begin = time.localtime(low)
    found = []
    for number in range(_DAY // min(step, _DAY) + most + 3):
        # mktime accounts for days that are an hour longer or shorter (daylight saving time).
        seconds, days = (number * step, 0) if step < _DAY else (0, number * step // _DAY)
        found.append(time.mktime((begin.tm_year, begin.tm_mon, begin.tm_mday + days, 0, 0, seconds, 0, 0, -1)))
    return [mark for mark in found if low <= mark <= high]


def clock(seconds: float) -> str:
    """The text of a tick mark of `clock_ticks`: the time of day, or the date at midnight."""
    local = time.localtime(seconds)
    return time.strftime("%H:%M" if local.tm_hour or local.tm_min else "%d %b", local)
