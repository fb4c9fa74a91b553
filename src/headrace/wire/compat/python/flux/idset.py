"""`flux.idset`: sets of small integers (RFC 22) with the methods of the C bindings."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, List, Optional, Union

from headrace.formats.spec.idset import Idset

IDSET_FLAG_AUTOGROW = 1
IDSET_FLAG_BRACKETS = 2
IDSET_FLAG_RANGE = 4
IDSET_INVALID_ID = 0xFFFFFFFE


def _id(value: Any) -> int:
    """The id as an int. Raises TypeError for any other type, ValueError for a negative number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"an id is an integer, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"an id is 0 or more, not {value}")
    return value


def _range(first: Any, last: Any) -> Idset:
    low = _id(first)
    high = low if last is None else _id(last)
    if high < low:
        raise ValueError(f"the range {low}-{high} is empty")
    return Idset.from_ranges([(low, high)])


def _ids(arg: Any) -> Idset:
    """Convert an argument to an Idset. Raises TypeError, ValueError."""
    if isinstance(arg, IDset):
        return arg.ids
    if isinstance(arg, Idset):
        return arg
    if isinstance(arg, str):
        return Idset.parse(arg)
    if isinstance(arg, int):
        arg = (arg,)
    return Idset(_id(value) for value in arg)


class IDset:
    """A mutable set of ids, from text, a number or numbers. Flags determine its text."""

    def __init__(self, arg: Union[str, int, Iterable[int], Idset, IDset] = "", flags: Optional[int] = None) -> None:
        self.ids: Idset = _ids(arg)
        self._flags = IDSET_FLAG_RANGE if flags is None else flags

    def set_flags(self, flags: int) -> None:
        """Set a mask of IDSET_FLAG_RANGE (`0-3`, not `0,1,2,3`) and IDSET_FLAG_BRACKETS (`[0-3]`)."""
        self._flags = flags

    def encode(self, flags: Optional[int] = None) -> str:
        flags = self._flags if flags is None else flags
        if flags & IDSET_FLAG_RANGE:
            return self.ids.encode(brackets=bool(flags & IDSET_FLAG_BRACKETS))
        text = ",".join(map(str, self.ids))
        return f"[{text}]" if flags & IDSET_FLAG_BRACKETS and len(self) > 1 else text

    def __str__(self) -> str:
        return self.encode()

    def __repr__(self) -> str:
        return f"IDset('{self.ids}')"

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, value: object) -> bool:
        return _id(value) in self.ids

    def __eq__(self, other: object) -> bool:
        return self.equal(other)

    __hash__ = None  # type: ignore[assignment]

    def equal(self, idset: Any) -> bool:
        """Whether two sets are equal. Raises TypeError for anything but an IDset."""
        if not isinstance(idset, IDset):
            raise TypeError(f"an IDset is compared with another, not with {type(idset).__name__}")
        return self.ids == idset.ids

    def __getitem__(self, index: int) -> bool:
        return _id(index) in self.ids

    def __setitem__(self, index: int, value: Any) -> None:
        """Add or remove an id. Raises TypeError for a value other than True, False, 1 and 0."""
        if value not in (True, False):
            raise TypeError("an id is in a set or not: True or False")
        (self.set if value else self.clear)(index)

    def __or__(self, other: Any) -> IDset:
        return IDset(self.ids | _ids(other), self._flags)

    def __and__(self, other: Any) -> IDset:
        return IDset(self.ids & _ids(other), self._flags)

    def __sub__(self, other: Any) -> IDset:
        return IDset(self.ids - _ids(other), self._flags)

    __add__ = __or__

    def union(self, *args: Any) -> IDset:
        out = self
        for other in args:
            out = out | other
        return out

    def intersect(self, *args: Any) -> IDset:
        out = self
        for other in args:
            out = out & other
        return out

    def difference(self, *args: Any) -> IDset:
        out = self
        for other in args:
            out = out - other
        return out

    def set(self, start: int, end: Optional[int] = None) -> IDset:
        self.ids = self.ids | _range(start, end)
        return self

    def clear(self, start: int, end: Optional[int] = None) -> IDset:
        self.ids = self.ids - _range(start, end)
        return self

    def test(self, i: int) -> bool:
        return _id(i) in self.ids

    def add(self, arg: Any) -> IDset:
        self.ids = self.ids | _ids(arg)
        return self

    def subtract(self, arg: Any) -> IDset:
        self.ids = self.ids - _ids(arg)
        return self

    def first(self) -> int:
        """The lowest id; IDSET_INVALID_ID for an empty set."""
        return self.ids.first if self.ids else IDSET_INVALID_ID

    def last(self) -> int:
        """The highest id; IDSET_INVALID_ID for an empty set."""
        return self.ids.last if self.ids else IDSET_INVALID_ID

    def next(self, i: int) -> int:
        """The next higher id; IDSET_INVALID_ID after the last."""
        above = self.ids.bits >> (_id(i) + 1) << (i + 1)
        return Idset.from_bits(above).first if above else IDSET_INVALID_ID

    def count(self) -> int:
        return len(self.ids)

    def copy(self) -> IDset:
        return IDset(self.ids, self._flags)

    def expand(self) -> List[int]:
        return list(self.ids)


def decode(string: str) -> IDset:
    return IDset(string)
