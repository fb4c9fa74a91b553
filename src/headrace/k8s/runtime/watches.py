"""The caches of one process: each selection of objects is listed and watched once, whoever uses it.

A cache is kept equal to the API server's objects: they are listed once, then watched, and listed again only if the
server no longer has the version to continue from (status 410). Nothing is polled. After an error, a new watch starts
from the last version seen, after a pause that grows with consecutive errors. A refusal that the operator can work
without is retried only every five minutes, since rights seldom change; a kind that is not defined, every ten seconds.
Source: Kubernetes API concepts, "Efficient detection of changes" and "Watch bookmarks".
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..objects.kinds import Kind
from .api import Api, ApiError, Unreachable
from .cache import Cache
from .credentials import CredentialsError

Object = dict[str, Any]
Handler = Callable[[Object], None]

log = logging.getLogger("headrace.k8s.reflector")

FIRST_PAUSE = 0.2
LARGEST_PAUSE = 20.0
REFUSED_PAUSE = 300.0
ABSENT_PAUSE = 10.0
# kubectl's copy of the applied document.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def without_managed_fields(item: Object) -> Object:
    """An object without fields that only other clients read, to save memory."""
    meta = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    if _LAST_APPLIED in meta.get("annotations", ()):
        meta["annotations"] = {key: text for key, text in meta["annotations"].items() if key != _LAST_APPLIED}
    return {**item, "metadata": meta}


class Selection(NamedTuple):
    """Objects of one kind, by label and field selectors (key=value,...).

    `trim` reduces each object to the fields that are kept. Equal selections share a cache.
    """

    kind: Kind
    labels: str = ""
    fields: str = ""
    trim: Callable[[Object], Object] = without_managed_fields


class _Watched:
    """A selection's cache, its reflectors by namespace, and the handlers of changes."""

    def __init__(self, selection: Selection) -> None:
        self.cache = Cache(selection.trim)
        self.reflectors: dict[str, Reflector] = {}
        self.handlers: list[Handler] = []

    def changed(self, item: Object) -> None:
        for handler in self.handlers:
            handler(item)


class Watches:
    """Caches by selection, and their reflectors.

    `namespaces` are watched unless a selection names others; () stands for all.
    """

    def __init__(self, api: Api, namespaces: Sequence[str] = ()) -> None:
        self._api = api
        self._namespaces = tuple(namespaces)
        self._watched: dict[Selection, _Watched] = {}

    @property
    def synced(self) -> bool:
        """True if all caches have been filled once."""
        return all(one.synced.is_set() for one in self._reflectors())

    def cache(
        self, selection: Selection, changed: Handler | None = None, namespaces: Sequence[str] = (), without: str = ""
    ) -> Cache:
        """The cache of a selection. Must be called before `run`.

        `changed` is called with each object that is added, changed or deleted. With `without`, a refusal of the API
        server is not an error; the text describes, for the log, how the program works without these objects.
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
        """Fill the caches and keep them current, until cancelled.

        A process that waits for its Lease does so, too.
        """
        await asyncio.gather(*(one.run() for one in self._reflectors()))

    async def filled(self) -> None:
        """Wait until all caches have been filled once."""
        for one in self._reflectors():
            await one.synced.wait()

    def _reflectors(self) -> list[Reflector]:
        return [one for watched in self._watched.values() for one in watched.reflectors.values()]


class Reflector:
    """Fills a cache with the objects of one kind, of a namespace or of all ("").

    Reflectors of several namespaces may share a cache. `changed` is called with each object that was added, changed or
    deleted. With `without`, as in `Watches.cache`, a refusal is logged once, and the cache counts as filled.
    """

    def __init__(
        self, api: Api, kind: Kind, cache: Cache, changed: Callable[[Object], None],
        namespace: str = "", labels: str = "", fields: str = "", without: str = "",
    ) -> None:  # fmt: skip
        self.kind = kind
        self.cache = cache
        self.synced = asyncio.Event()
        """Set once the first listing is in the cache, or was refused and is optional."""
        self._api = api
        self._changed = changed
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._without = without
        self._is_refusal_logged = False
        self._version = ""
        self._breaks = 0

    async def run(self) -> None:
        """Fill the cache and keep it current, until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                began = time.monotonic()
                await self._watch()
                if time.monotonic() - began < FIRST_PAUSE:
                    await self._pause("the watch has ended at once")
                else:
                    self._breaks = 0
            except ApiError as exc:
                if exc.status == 410:
                    self._version = ""
                    if not self._breaks:
                        # The first expired version leads to a new listing at once, further ones to a pause before it.
                        self._breaks = 1
                        continue
                if self._without and exc.status in (403, 404):
                    await self._pause_refused(exc)
                else:
                    await self._pause(f"{exc.status} {exc.message}")
            except (Unreachable, CredentialsError) as exc:
                await self._pause(str(exc))

    async def _list(self) -> None:
        where = self._namespace, self._labels, self._fields
        listing = await self._api.list_objects(self.kind, *where, self.cache.trimmed)
        for gone in self.cache.replace(listing.items, self._namespace, listing.version):
            self._changed(gone)
        for item in listing.items:
            self._changed(item)
        self._version = listing.version
        self.synced.set()

    async def _watch(self) -> None:
        stream = self._api.watch(self.kind, self._version, self._namespace, self._labels, self._fields)
        async for event, item in stream:
            self._breaks = 0
            self._version = item["metadata"]["resourceVersion"]
            if event == "BOOKMARK":
                continue
            if event == "DELETED":
                self.cache.drop(item)
            else:
                self.cache.put(item)
            self._changed(item)

    async def _pause(self, why: str) -> None:
        delay = min(FIRST_PAUSE * 2.0**self._breaks, LARGEST_PAUSE) * random.uniform(0.8, 1.2)
        self._breaks += 1
        level = logging.WARNING if self._breaks in (3, 10) else logging.DEBUG
        log.log(level, "watch of %s interrupted, again in %.1f s: %s", self.kind.plural, delay, why)
        await asyncio.sleep(delay)

    async def _pause_refused(self, exc: ApiError) -> None:
        self.synced.set()
        is_absent = exc.status == 404
        level = logging.INFO if is_absent else logging.WARNING
        level = logging.DEBUG if self._is_refusal_logged else level
        self._is_refusal_logged = True
        where = self._namespace or "all namespaces"
        log.log(level, "no watch of %s in %s, %s: %s", self.kind.plural, where, self._without, exc.message)
        await asyncio.sleep(ABSENT_PAUSE if is_absent else REFUSED_PAUSE)
