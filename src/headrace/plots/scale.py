"""The marks of an axis: round numbers at even distances."""

from __future__ import annotations

from math import ceil, floor, log10


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from `low` or below to `high` or above, at most `most` and two: multiples of 1, 2 or 5 times a
    power of ten.
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
