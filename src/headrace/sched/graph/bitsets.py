"""Sets as the bits of integers: the slots that fit into free resources, and the members of a set.

In a set of resources, bit i is the child at place i of the vertex that holds them; in a set of ids, bit i is id i.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

_WINDOW = (1 << 64) - 1


def fit(parts: tuple[tuple[str, int], ...], free: int, masks: Mapping[str, int]) -> int:
    """The number of slots that fit into the free resources.

    `parts` are the types and counts of one slot, `masks` the bits of the resources of each type.
    """
    most = -1
    for kind, count in parts:
        mask = masks.get(kind)
        if mask is None:
            return 0
        n = (free & mask).bit_count() // count
        if not n:
            return 0
        if most < 0 or n < most:
            most = n
    return most


def lowest(bits: int, count: int) -> int:
    """The `count` lowest members of a set, which has at least that many."""
    first = (bits & -bits).bit_length() - 1
    run = ((1 << count) - 1) << first
    if bits & run == run:
        return run
    rest = bits
    for _ in range(count):
        rest &= rest - 1
    return bits ^ rest


def highest(bits: int, count: int) -> int:
    """The `count` highest members of a set, which has at least that many."""
    i = bits.bit_length() - count
    if i >= 0 and bits >> i == (1 << count) - 1:
        return bits >> i << i
    rest = bits
    for _ in range(count):
        rest ^= 1 << (rest.bit_length() - 1)
    return bits ^ rest


def each(bits: int) -> list[int]:
    """The members of a set, each as a set with that single member."""
    found = []
    while bits:
        bit = bits & -bits
        found.append(bit)
        bits ^= bit
    return found


def numbers(bits: int) -> Iterator[int]:
    """The numbers of the bits of a set, lowest first; 64 at a time, as sets may be large."""
    base = 0
    while bits:
        skip = (bits & -bits).bit_length() - 1
        bits >>= skip
        base += skip
        window = bits & _WINDOW
        while window:
            bit = window & -window
            yield base + bit.bit_length() - 1
            window ^= bit
        bits >>= 64
        base += 64


def lowest_numbers(bits: int, count: int) -> list[int]:
    """The numbers of the `count` lowest bits of a set, or of all if there are fewer."""
    if count == 1:
        return [(bits & -bits).bit_length() - 1] if bits else []
    return list(islice(numbers(bits), count))
