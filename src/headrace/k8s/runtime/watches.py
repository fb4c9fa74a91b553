"""The caches of one process: each selection of objects is listed and watched once, however many controllers use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..objects.kinds import Kind
from .api import Api
from .cache import Cache
from .reflector import Reflector

Object = dict[str, Any]
Handler = Callable[[Object], None]

# kubectl's copy of the applied document.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def without_managed_fields(item: Object) -> Object:
    """An object without fields that only other clients read, as many are kept in memory."""
    meta = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    if _LAST_APPLIED in meta.get("annotations", ()):
        meta["annotations"] = {key: text for key, text in meta["annotations"].items() if key != _LAST_APPLIED}
    return {**item, "metadata": meta}


class Selection(NamedTuple):
    """Objects of one kind, by label and field selectors (key=value,...). `trim` reduces each to the fields that are
    kept. Selections that are equal share a cache.
    """

    kind: Kind
    labels: str = ""
    fields: str = ""
    trim: Callable[[Object], Object] = without_managed_fields


class _Watched:
    """A selection's cache, its reflectors by namespace, and who is told of changes."""

    def __init__(self, selection: Selection) -> None:
        self.cache = Cache(selection.trim)
        self.reflectors: dict[str, Reflector] = {}
        self.handlers: list[Handler] = []

    def changed(self, item: Object) -> None:
        for handler in self.handlers:
            handler(item)


class Watches:
    """`namespaces` are those that are watched unless a selection names others; () stands for all."""

    def __init__(self, api: Api, namespaces: Sequence[str] = ()) -> None:
        self._api = api
        self._namespaces = tuple(namespaces)
        self._watched: dict[Selection, _Watched] = {}

    @property
    def synced(self) -> bool:
        """Whether all caches have been filled once."""
        return all(one.synced.is_set() for one in self._reflectors())

    def cache(
        self, selection: Selection, changed: Handler | None = None, namespaces: Sequence[str] = (), without: str = ""
    ) -> Cache:
        """The cache of a selection, before `run`. `changed` is called with each object that is added, changed or
        deleted. `without` says what is so if the API server refuses the objects, which is then no error.
        """
        watched = self._watched.setdefault(selection, _Watched(selection))
        if changed and changed not in watched.handlers:
            watched.handlers.append(changed)
        for where in namespaces or self._namespaces or ("",):
            if where not in watched.reflectors:
                watched.reflectors[where] = Reflector(
                    self._api, selection.kind, watched.cache, watched.changed, where,
                    selection.labels, selection.fields, without,
                )  # fmt: skip
        return watched.cache

    async def run(self) -> None:
        """Fill the caches and keep them current, until cancelled; a process that waits for its Lease does so, too."""
        await asyncio.gather(*(one.run() for one in self._reflectors()))

    async def filled(self) -> None:
        """Wait until all caches have been filled once."""
        for one in self._reflectors():
            await one.synced.wait()

    def _reflectors(self) -> list[Reflector]:
        return [one for watched in self._watched.values() for one in watched.reflectors.values()]
