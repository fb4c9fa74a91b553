"""`flux.idset`: sets of small integers (RFC 22) with the methods of the C bindings."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Union

from headrace.spec.idset import Idset


class IDset:
    """A changeable set of ids, from text or from numbers."""

    def __init__(self, arg: Union[str, Iterable[int], Idset, IDset] = "") -> None:
        if isinstance(arg, IDset):
            arg = arg._ids
        self._ids = arg if isinstance(arg, Idset) else Idset.parse(arg) if isinstance(arg, str) else Idset(arg)

    def __str__(self) -> str:
        return str(self._ids)

    def __repr__(self) -> str:
        return f"IDset('{self._ids}')"

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, value: object) -> bool:
        return value in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IDset) and self._ids == other._ids

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, index: int) -> bool:
        return index in self._ids

    def __or__(self, other: Any) -> IDset:
        return IDset(self._ids | IDset(other)._ids)

    def __and__(self, other: Any) -> IDset:
        return IDset(self._ids & IDset(other)._ids)

    def __sub__(self, other: Any) -> IDset:
        return IDset(self._ids - IDset(other)._ids)

    __add__ = __or__
    union = __or__
    intersect = __and__
    difference = __sub__

    def set(self, first: int, last: Any = None) -> IDset:
        self._ids = self._ids | Idset(range(first, (first if last is None else last) + 1))
        return self

    def clear(self, first: int, last: Any = None) -> IDset:
        self._ids = self._ids - Idset(range(first, (first if last is None else last) + 1))
        return self

    def test(self, value: int) -> bool:
        return value in self._ids

    def add(self, other: Any) -> IDset:
        self._ids = self._ids | IDset(other)._ids
        return self

    def subtract(self, other: Any) -> IDset:
        self._ids = self._ids - IDset(other)._ids
        return self

    def first(self) -> int:
        return next(iter(self._ids))

    def last(self) -> int:
        return int(self._ids.last)

    def next(self, value: int) -> int:
        return next(number for number in self._ids if number > value)

    def count(self) -> int:
        return len(self._ids)

    def copy(self) -> IDset:
        return IDset(self._ids)

    def encode(self, flags: int = 0) -> str:
        return self._ids.encode()

    def expand(self) -> list:
        return list(self._ids)

    def equal(self, other: Any) -> bool:
        return self._ids == IDset(other)._ids


def decode(text: str) -> IDset:
    return IDset(text)
