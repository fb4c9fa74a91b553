"""Speed-up and parallel efficiency against the smallest size. Pure Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Scaling(NamedTuple):
    """A size, how many times as fast it is as the smallest, and that number by the ratio of the sizes (1: ideal)."""

    size: int
    speedup: float
    efficiency: float


def scaling(medians: Mapping[int, float], *, higher_is_better: bool = False) -> list[Scaling]:
    """Speed-up and efficiency of each size, smallest first, from the median of a time (or of a rate) at each size.

    The problem is taken to be the same at all sizes. Sizes below 1 and medians that are not positive are left out.
    """
    usable = sorted((size, middle) for size, middle in medians.items() if size > 0 and middle > 0)
    found = []
    for size, middle in usable:
        least, first = usable[0]
        speedup = middle / first if higher_is_better else first / middle
        found.append(Scaling(size, speedup, speedup * least / size))
    return found
