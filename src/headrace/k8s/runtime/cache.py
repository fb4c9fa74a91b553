"""A local copy of the objects of one kind, by namespace and name, with an index by owner.

A reflector fills it. Objects that the operator itself wrote are added at once (`put`), so that the next reconcile has
them even before the watch reports them. Of two versions, the newer one is kept. Pure but for its log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

Object = dict[str, Any]
log = logging.getLogger("headrace.k8s.cache")

# Bytes of the largest part that is shared. Shared parts outlive the object that they came with, so this limit and their
# number bound the memory that users can make this program keep.
_LARGEST_SHARED = 2048

Key = tuple[str, str]
"""Namespace and name."""


def key_of(item: Object) -> Key:
    meta = item["metadata"]
    return meta.get("namespace", ""), meta["name"]


def owner_of(item: Object) -> str:
    """The uid of the controller that owns the object; "" without one."""
    for one in item["metadata"].get("ownerReferences") or ():
        if one.get("controller"):
            return str(one.get("uid", ""))
    return ""


def version_of(item: Object) -> int:
    """The resource version as a number (KEP-5504 makes versions comparable); 0 for any other text."""
    text = item["metadata"].get("resourceVersion", "")
    return int(text) if text.isdigit() else 0


def shared(part: Any) -> Any:
    """A part of an object, as decoded from JSON; equal small parts are one object in memory.

    Callers must not change it. Raises RecursionError if it is nested too deeply, OverflowError for numbers beyond 64
    bits.
    """
    text = msgspec.json.encode(part)
    return _decoded(text) if len(text) <= _LARGEST_SHARED else part


@lru_cache(4096)
def _decoded(text: bytes) -> Any:
    return msgspec.json.decode(text)


class Cache:
    """Objects of one kind. `trim` reduces an object to the fields that are used before it is stored."""

    def __init__(self, trim: Callable[[Object], Object] = lambda item: item) -> None:
        self._trim = trim
        self._items: dict[Key, Object] = {}
        self._owned: dict[str, dict[Key, None]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Object]:
        return iter(self._items.values())

    def get(self, namespace: str, name: str) -> Object | None:
        return self._items.get((namespace, name))

    def owned_by(self, uid: str) -> list[Object]:
        """The objects whose controller has this uid, by name."""
        return [self._items[key] for key in sorted(self._owned.get(uid, ()))]

    def put(self, item: Object) -> Object | None:
        """Store `item` unless a newer version with its uid is stored; returns the replaced object, or None."""
        return self._store(self.trimmed(item))

    def _store(self, item: Object) -> Object | None:
        key = key_of(item)
        old = self._items.get(key)
        if old is not None:
            if _uid(old) == _uid(item) and version_of(old) > version_of(item):
                return None
            self._unlink(key, old)
        self._items[key] = item
        self._owned.setdefault(owner_of(item), {})[key] = None
        return old

    def trimmed(self, item: Object) -> Object:
        """The object as it is stored.

        An object that cannot be trimmed, because its fields have an unexpected form, is kept whole, so that it does not
        break the watch of the others.
        """
        try:
            return self._trim(item)
        except Exception as exc:
            namespace, name = key_of(item)
            log.warning("not trimmed: %r", exc, extra={"namespace": namespace, "object": name})
            return item

    def drop(self, item: Object) -> None:
        """Remove a deleted object; a newer object of the same name is kept."""
        key = key_of(item)
        old = self._items.get(key)
        if old is not None and _uid(old) == _uid(item):
            self._unlink(key, old)
            del self._items[key]

    def replace(self, items: Iterable[Object], namespace: str = "", version: str = "") -> list[Object]:
        """Replace the objects of one namespace, or of all (""), by a listing; returns the removed objects.

        `items` are as `trimmed` returns them; `version` is the listing's. Stored objects that are newer than the
        listing are kept.
        """
        fresh = list(items)
        present = {(key_of(one), _uid(one)) for one in fresh}
        listed = [one for key, one in self._items.items() if namespace in ("", key[0])]
        made = int(version) if version.isdigit() else float("inf")
        gone = [one for one in listed if (key_of(one), _uid(one)) not in present and version_of(one) <= made]
        for one in gone:
            self.drop(one)
        for one in fresh:
            self._store(one)
        return gone

    def _unlink(self, key: Key, item: Object) -> None:
        owner = owner_of(item)
        owned = self._owned.get(owner)
        if owned:
            owned.pop(key, None)
            if not owned:
                del self._owned[owner]


def _uid(item: Object) -> str:
    return str(item["metadata"].get("uid", ""))
