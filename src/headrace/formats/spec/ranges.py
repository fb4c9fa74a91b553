"""Resource counts as text: `4`, `1-4`, `2+`, `1-16:2:*` (RFC 45), or a set of counts `1,3,5` (RFC 22).

A count may have no upper bound (`2+`), so callers pass a limit, the number of available resources, to get its values.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, NamedTuple, Optional

from headrace.formats.spec.idset import Idset, IdsetError

# The largest count in a set with gaps, which is stored as a bit set as long as its largest count.
_LARGEST = (1 << 18) - 1
_NUMBER = r"(0|[1-9][0-9]{0,17})"
_RANGE = re.compile(rf"{_NUMBER}(?:(\+)|-{_NUMBER})?(?::{_NUMBER}(?::([+*^]))?)?\Z", re.ASCII)


class RangeError(ValueError):
    """Text that is neither a range (RFC 45) nor an idset, or a range whose values do not ascend."""


class Range(NamedTuple):
    """The counts that satisfy a request."""

    min: int
    max: Optional[int]
    """The largest allowed count, itself a count only if a step ends there; None if open."""
    operand: int = 1
    operator: str = "+"
    """`+`, `*` or `^`: how the next value follows from a value and `operand`."""
    ids: Optional[Idset] = None
    """The counts of a set with gaps; None for a range."""

    def encode(self) -> str:
        """Return the shortest RFC 45 text."""
        if self.ids is not None:
            return self.ids.encode()
        if self.max is None:
            text = f"{self.min}+"
        elif self.max == self.min:
            return str(self.min)
        else:
            text = f"{self.min}-{self.max}"
        if self.operator != "+":
            return f"{text}:{self.operand}:{self.operator}"
        return text if self.operand == 1 else f"{text}:{self.operand}"

    def values(self, limit: int) -> Iterator[int]:
        """Yield the counts in ascending order, none above `limit`."""
        if self.ids is not None:
            for value in self.ids:
                if value > limit:
                    return
                yield value
            return
        last = limit if self.max is None else min(self.max, limit)
        value = self.min
        while value <= last:
            yield value
            if self.operator == "+":
                value += self.operand
            elif self.operator == "*":
                value *= self.operand
            elif self.operand >= last.bit_length():
                return  # the next power exceeds `last`, and computing it could exhaust memory
            else:
                value **= self.operand

    def to_obj(self) -> Dict[str, Any]:
        """Return the RFC 14 dictionary. Raises RangeError for a set of counts, which has no such form."""
        if self.ids is not None:
            raise RangeError(f"'{self.encode()}' is a set of counts: it has no min/max form")
        obj: Dict[str, Any] = {"min": self.min}
        if self.max is not None:
            obj["max"] = self.max
        if (self.operand, self.operator) != (1, "+"):
            obj["operand"], obj["operator"] = self.operand, self.operator
        return obj


def parse(text: str) -> Range:
    """Return the counts of a text, optionally in `[]`. Raises RangeError.

    Steps must ascend. For `+`, the operand must be at least 1. For `*`, the operand must be at least 2 and the start at
    least 1. For `^`, both must be at least 2.
    """
    inner = text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text
    match = _RANGE.match(inner)
    if match is None:
        return _parse_set(text)
    low, plus, high, by, operator = match.groups()
    lowest = int(low)
    highest = None if plus else lowest if high is None else int(high)
    if by is not None and high is None and not plus:
        raise RangeError(f"invalid range '{text}': steps need an end, such as {low}-{lowest + 4}:{by} or {low}+:{by}")
    operand, operator = 1 if by is None else int(by), operator or "+"
    if highest is not None and highest < lowest:
        raise RangeError(f"invalid range '{text}': {highest} is less than {lowest}")
    smallest_operand, smallest = {"+": (1, 0), "*": (2, 1), "^": (2, 2)}[operator]
    if operand < smallest_operand:
        raise RangeError(f"invalid range '{text}': the operand of {operator} must be {smallest_operand} or more")
    if lowest < smallest:
        raise RangeError(f"invalid range '{text}': a range with {operator} must start at {smallest} or more")
    return Range(lowest, highest, operand, operator)


def _parse_set(text: str) -> Range:
    try:
        ids = Idset.parse(text, _LARGEST)
    except IdsetError as exc:
        raise RangeError(f"invalid count '{text}': expected a range such as 1-4:2:* or 2+, or {exc}") from None
    if not ids:
        raise RangeError(f"invalid count '{text}': it allows no number")
    return Range(ids.first, ids.last, ids=ids)
