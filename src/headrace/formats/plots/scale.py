"""The tick marks of an axis: round numbers at equal distances, or round clock times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
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


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers that cover `low` to `high` (both above 0) on a logarithmic axis: 1, 2 and 5 times powers of ten.

    Over more than four decades, they are powers of ten, and not each of them. Within a factor of three, they are those
    of `ticks`, if none is 0.
    """
    if high <= 3 * low:
        near = ticks(low, max(high, 1.01 * low))
        if near[0] > 0:
            return near
    first, last = floor(log10(low) + 1e-9), ceil(log10(high) - 1e-9)
    if last - first > 4:
        step = ceil((last - first) / 6)
        return [10.0**power for power in range(first, last + step, step)]
    found = [factor * 10.0**power for power in range(first, last + 1) for factor in (1.0, 2.0, 5.0)]
    before = max((mark for mark in found if mark <= low * (1 + 1e-9)), default=found[0])
    after = min((mark for mark in found if mark >= high * (1 - 1e-9)), default=found[-1])
    return [mark for mark in found if before <= mark <= after]


def part(value: float, low: float, high: float) -> float:
    """Where a value lies between `low` (0) and `high` (1)."""
    return (value - low) / (high - low)


def log_part(value: float, low: float, high: float) -> float:
    """Where a value lies between `low` (0) and `high` (1) on a logarithmic axis."""
    return log10(value / low) / log10(high / low)


def span(values: Iterable[float]) -> tuple[float, float]:
    """The least and the greatest of some values, apart even if all are equal. (0, 1) without values."""
    given = list(values)
    low, high = min(given, default=0.0), max(given, default=1.0)
    gap = 1e-9 * max(abs(low), abs(high))
    if high - low > gap:
        return low, high
    wide = 0.05 * max(abs(low), abs(high)) or 1.0
    return low - wide, high + wide


def digits(low: float, high: float) -> int:
    """Significant digits for numbers from `low` to `high`: four, or more if different numbers would look equal."""
    most, gap = max(abs(low), abs(high)), high - low
    return 4 if not most or not gap else min(15, max(4, 2 + ceil(log10(most / gap) + 1e-9)))


def figures(low: float, high: float) -> Callable[[float], str]:
    """A format for numbers from `low` to `high`."""
    count = digits(low, high)
    return lambda value: figure(value, count)


def figure(value: float, digits: int = 4) -> str:
    """A number with some significant digits, without zeros at its end: `0.2513`, `12`, `1234567`, `1.5e+12`."""
    if not value:
        return "0"
    number, e, power = measured(value, digits).partition("e")
    return (number.rstrip("0").rstrip(".") if "." in number else number) + e + power


def measured(value: float, digits: int = 4) -> str:
    """A measured number with some significant digits: `0.2513`, `12.00`, `1234567`, `1.500e+12`."""
    text = f"{value:.{digits - 1}e}"
    # Read from the text, where 0.09999 is rounded to 0.1 already.
    power = int(text.partition("e")[2])
    return f"{value:.{max(0, digits - 1 - power)}f}" if not value or -4 <= power < 9 else text


def number(value: float) -> str:
    """A number as an axis shows it: `1200`, `0.25`."""
    return f"{value:.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"


def length(seconds: float) -> str:
    """A length of time as an axis shows it: `30 s`, `5 min`, `2.5 h`, `3 d`."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def length_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round lengths of time from `low` to `high` (seconds)."""
    if high - low < 60:
        return ticks(low, high, most)
    step = next((step for step in _STEPS if (high - low) / step <= most), (high - low) / most)
    return [number * step for number in range(ceil(low / step), floor(high / step) + 1)]


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
