"""Results that are kept until they have too many bytes: what users ask must not grow a scheduler for good."""

from __future__ import annotations

from typing import Generic, TypeVar

_Value = TypeVar("_Value")
# Bytes of the keys of one table, and its entries. What a scheduler makes of a request has a few times the bytes of it.
MOST_BYTES = 1 << 20
MOST_ENTRIES = 4096


class Kept(Generic[_Value]):
    """A table by the bytes or the text of a request. Before it has more than the limits, all of it is dropped."""

    def __init__(self) -> None:
        self._found: dict[object, _Value] = {}
        self._size = 0

    def get(self, key: object) -> _Value | None:
        return self._found.get(key)

    def put(self, key: object, size: int, value: _Value) -> None:
        """Keep `value`, unless its key, of `size` bytes, is larger than the table may be."""
        if self._size + size > MOST_BYTES or len(self._found) >= MOST_ENTRIES:
            self.clear()
        if size <= MOST_BYTES:
            self._found[key] = value
            self._size += size

    def clear(self) -> None:
        self._found.clear()
        self._size = 0
