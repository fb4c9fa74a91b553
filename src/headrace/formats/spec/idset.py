"""Sets of small non-negative integers and their text form `0-3,7` (RFC 22).

Idsets name ranks, cores and tasks everywhere, so operations must be fast. A set is one Python integer used as a bit
set: union, difference and comparison of a hundred thousand ranks are single operations in C, and encoding is a search
for runs in `bin()`. An `Idset` is immutable, so it can be shared, hashed and used as a key.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Iterator, List, Tuple

# A bit set is as long as its largest id. Without a limit, the untrusted text `0-99999999999` would take 12 GB.
MAX_ID = (1 << 24) - 1

_PART = re.compile(r"(0|[1-9][0-9]*)(?:-(0|[1-9][0-9]*))?", re.ASCII)
_RUN = re.compile("1+")
# A set of more ranges is built in one pass over a string of binary digits, a smaller one by shifts.
_MANY = 64


class IdsetError(ValueError):
    """Text that is not an idset (RFC 22), or an id out of range; the message names the position or the id."""


class Idset:
    """An immutable set of ids from 0 to `MAX_ID`.

    ``Idset(iterable)`` takes ints in any order, repeated or not, and raises IdsetError for a negative or too large one.
    """

    __slots__ = ("bits",)

    bits: int
    """Bit i is set if i is a member."""

    def __init__(self, ids: Iterable[int] = ()) -> None:
        if isinstance(ids, Idset):
            self.bits = ids.bits
        elif isinstance(ids, range) and ids.step == 1:
            self.bits = _range_bits([(ids.start, ids.stop - 1)] if ids else [])
        else:
            self.bits = _range_bits([(id_, id_) for id_ in ids])

    @classmethod
    def from_bits(cls, bits: int) -> Idset:
        """Return the set whose members are the positions of the one bits of `bits` (not negative)."""
        self = cls.__new__(cls)
        self.bits = bits
        return self

    @classmethod
    def from_ranges(cls, ranges: Iterable[Tuple[int, int]]) -> Idset:
        """Return the set of all ids in (first, last) pairs, in any order.

        Raises IdsetError for ids out of range.
        """
        return cls.from_bits(_range_bits(list(ranges)))

    @classmethod
    def parse(cls, text: str, largest: int = MAX_ID) -> Idset:
        """Return the set of a text: ids and ranges in ascending order, optionally in `[]`; `""` is empty.

        Raises IdsetError naming the position (from 0) where the text breaks RFC 22 or an id is beyond `largest`. The
        ids are checked before any memory is allocated for the bits.
        """
        return cls.from_bits(_range_bits(parse_ranges(text, largest)))

    def encode(self, brackets: bool = False) -> str:
        """Return the RFC 22 text, runs as `lo-hi`; with `brackets`, a set of several ids is put in `[]`."""
        if not self.bits:
            return ""
        text = ",".join(str(lo) if lo == hi else f"{lo}-{hi}" for lo, hi in self.ranges())
        return f"[{text}]" if brackets and self.bits & (self.bits - 1) else text

    def ranges(self) -> Iterator[Tuple[int, int]]:
        """Yield the runs of consecutive ids as (first, last), ascending."""
        for run in _RUN.finditer(bin(self.bits)[:1:-1]):
            yield run.start(), run.end() - 1

    @property
    def first(self) -> int:
        """The smallest id. Raises IdsetError if the set is empty."""
        self._need_members()
        return (self.bits & -self.bits).bit_length() - 1

    @property
    def last(self) -> int:
        """The largest id. Raises IdsetError if the set is empty."""
        self._need_members()
        return self.bits.bit_length() - 1

    def _need_members(self) -> None:
        if not self.bits:
            raise IdsetError("the empty idset has no first and no last id")

    def isdisjoint(self, other: Idset) -> bool:
        """Return whether the sets have no id in common."""
        return not self.bits & other.bits

    def __contains__(self, id_: object) -> bool:
        return isinstance(id_, int) and id_ >= 0 and self.bits >> id_ & 1 == 1

    def __iter__(self) -> Iterator[int]:
        for lo, hi in self.ranges():
            yield from range(lo, hi + 1)

    def __len__(self) -> int:
        return bin(self.bits).count("1")

    def __bool__(self) -> bool:
        return self.bits != 0

    def __or__(self, other: Idset) -> Idset:
        return Idset.from_bits(self.bits | other.bits)

    def __and__(self, other: Idset) -> Idset:
        return Idset.from_bits(self.bits & other.bits)

    def __sub__(self, other: Idset) -> Idset:
        return Idset.from_bits(self.bits & ~other.bits)

    def __xor__(self, other: Idset) -> Idset:
        return Idset.from_bits(self.bits ^ other.bits)

    def __le__(self, other: Idset) -> bool:
        return not self.bits & ~other.bits

    def __ge__(self, other: Idset) -> bool:
        return other <= self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Idset) and self.bits == other.bits

    def __hash__(self) -> int:
        return hash(self.bits)

    def __str__(self) -> str:
        return self.encode()

    def __repr__(self) -> str:
        return f"Idset.parse({self.encode()!r})"

    def __reduce__(self) -> Tuple[Any, Tuple[int]]:
        return Idset.from_bits, (self.bits,)


def parse_ranges(text: str, largest: int = MAX_ID) -> List[Tuple[int, int]]:
    """Return the (first, last) pairs of an idset's text in ascending order.

    The cost depends only on the length of the text. The pairs tell a caller the number of ids and the largest id before
    it makes the set with `Idset.from_ranges`. Raises IdsetError like `Idset.parse`.
    """
    start, end = 0, len(text)
    if text[:1] == "[":
        if text[-1:] != "]" or end < 2:
            raise IdsetError(f"idset '{text}': '[' at 0 is not closed by ']' at the end")
        start, end = 1, end - 1
    ranges: List[Tuple[int, int]] = []
    last = -1
    while start < end:
        match = _PART.match(text, start, end)
        if match is None:
            raise IdsetError(f"idset '{text}': expected an id or a range such as 0-3 at {start}")
        after = match.end()
        if after < end and (text[after] != "," or after + 1 == end):
            raise IdsetError(f"idset '{text}': expected ',' and an id or the end at {after}")
        low, high = match.group(1, 2)
        # Numbers are cut to twenty digits, which are always out of range: int() rejects thousands of digits.
        lo, hi = (int(digits[:20]) for digits in (low, low if high is None else high))
        if lo <= last or hi < lo:
            raise IdsetError(f"idset '{text}': ids must ascend without repeating, not so at {start}")
        if hi > largest:
            raise IdsetError(f"idset '{text}': id at {start} is beyond {largest}")
        ranges.append((lo, hi))
        last = hi
        start = after + 1
    return ranges


def _range_bits(ranges: List[Tuple[int, int]]) -> int:
    """The bit set of (first, last) pairs in any order. Raises IdsetError for ids out of range."""
    if not ranges:
        return 0
    smallest, largest = min(lo for lo, _ in ranges), max(hi for _, hi in ranges)
    if smallest < 0 or largest > MAX_ID:
        raise IdsetError(f"id {smallest if smallest < 0 else largest} is not in the range 0 to {MAX_ID}")
    if len(ranges) <= _MANY:
        bits = 0
        for lo, hi in ranges:
            bits |= ((1 << (hi - lo + 1)) - 1) << lo
        return bits
    digits = bytearray(b"0") * (largest + 1)
    for lo, hi in ranges:
        digits[lo : hi + 1] = b"1" * (hi - lo + 1)
    digits.reverse()
    return int(digits, 2)
