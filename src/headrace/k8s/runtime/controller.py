"""Controllers: each keeps the objects of one kind in their desired state.

Controllers are level-triggered: a reconcile compares the present state with the desired one, whatever has happened, and
writes nothing if they agree.

A change of an object, or of an object that it owns, puts its key into the controller's queue. A worker takes the key:
`observe` reads only caches, `reconcile` decides and is pure, `carry_out` writes. A controller whose decisions are
objects and a status (`Outcome`) needs only `reconcile`; others provide `observe` and `carry_out` as well.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, NamedTuple, Protocol

from headrace.formats.exposition.metrics import Metrics

from ..objects.kinds import Kind
from .api import Api, ApiError, Unreachable, is_namespace_ending
from .cache import Key, key_of
from .credentials import CredentialsError
from .events import Report, record, where
from .steps import Observed, Outcome, steps_towards
from .watches import Selection, Watches
from .work_queue import WorkQueue
from .writes import Taken, Writes, patch_of

Object = dict[str, Any]

log = logging.getLogger("headrace.k8s.controller")

# The minimum delay in seconds of a reconcile that another reconcile requests. A requested time in the past, which is a
# defect, must not keep a controller from all other work.
SHORTEST_REQUEUE = 0.5
# Seconds before a create is retried if another object has the name.
TAKEN_RETRY = 30.0


class Part(Protocol):
    """A worker of a process: a `Controller`, or anything else with a queue. `name` is its label in metrics."""

    name: str

    @property
    def queue(self) -> Sized: ...
    async def work(self) -> None: ...


class Shared:
    """The API client, caches and metrics that the controllers of one process share.

    `component` is the name of the process in Events ("headrace-operator"). With underscores, it is the prefix of the
    names of its metrics.
    """

    def __init__(self, api: Api, metrics: Metrics, component: str, namespaces: Sequence[str] = ()) -> None:
        self.api = api
        self.metrics = metrics
        self.component = component
        self.watches = Watches(api, namespaces)
        self.controllers: list[Part] = []
        self.at_end: list[Callable[[], None]] = []
        """Functions to call after the controllers have stopped."""
        prefix, by = component.replace("-", "_"), ("controller",)
        self.reconciles, self.errors = f"{prefix}_reconciles_total", f"{prefix}_errors_total"
        self.seconds = f"{prefix}_reconcile_seconds"
        metrics.counter(self.reconciles, "Reconciles.", by)
        metrics.counter(self.errors, "Reconciles that failed and are repeated.", by)
        metrics.histogram(self.seconds, "Time of a reconcile without its requests.", by)
        metrics.gauge(f"{prefix}_queue_length", "Objects that wait for a reconcile.", self._queue_lengths, by)

    async def work(self) -> None:
        """Run all controllers, once the caches are filled, until cancelled."""
        await self.watches.filled()
        await asyncio.gather(*(one.work() for one in self.controllers))

    def _queue_lengths(self) -> Mapping[tuple[str, ...], float]:
        return {(one.name,): len(one.queue) for one in self.controllers}


class Watch(NamedTuple):
    """Objects that a controller's objects depend on without owning them.

    `concerned` returns the keys of the controller's objects that a change affects, each with the delay of their
    reconcile in seconds. The other fields are as in `Watches.cache`.
    """

    selection: Selection
    concerned: Callable[[Object], Iterable[tuple[Key, float]]]
    namespaces: tuple[str, ...] = ()
    without: str = ""


class Controller:
    """`reconcile(observed, now)` decides what to do for one object of the selection `kind`.

    `observe(item, now)` returns the argument for `reconcile`, or None to leave the object alone. The default returns an
    `Observed`, and None for an object that is being deleted. `carry_out(observed, decided, now)` does what `reconcile`
    decided, and returns the time of the next reconcile if nothing changes (seconds since the epoch), or None. The
    default takes an `Outcome`. `forget` is called with the key of an object that is gone.
    """

    def __init__(
        self, shared: Shared, kind: Selection, owns: Sequence[Selection], reconcile: Callable[[Any, float], Any],
        *, watches: Sequence[Watch] = (), observe: Callable[[Object, float], Any] | None = None,
        carry_out: Callable[[Any, Any, float], Awaitable[float | None]] | None = None,
        forget: Callable[[Key], None] = lambda key: None, workers: int = 1, name: str = "",
    ) -> None:  # fmt: skip
        self.kind = kind.kind
        self.name = name or kind.kind.plural
        self.reconcile = reconcile
        self.queue: WorkQueue[Key] = WorkQueue(time.monotonic)
        self.objects = shared.watches.cache(kind, self._add)
        self.owned = {one.kind.kind: shared.watches.cache(one, self._owner_changed) for one in owns}
        self.writes = Writes(shared.api, kind.kind, self.seen)
        self._kinds = {one.kind.kind: one.kind for one in owns}
        self._shared = shared
        self._observe = observe or self._see
        self._carry_out = carry_out or self._write
        self._forget = forget
        self._workers = workers
        for watch in watches:
            shared.watches.cache(watch.selection, self._requeuing(watch), watch.namespaces, watch.without)
        shared.controllers.append(self)
        shared.metrics.count(shared.reconciles, self.name, add=0)
        shared.metrics.count(shared.errors, self.name, add=0)

    async def work(self) -> None:
        """Reconcile all objects, then each change, until cancelled. The caches must be filled.

        The process that leads next completes interrupted work.
        """
        for item in self.objects:
            self.queue.add(key_of(item))
        log.info("working", extra={self.name: len(self.objects)})
        await asyncio.gather(*(self._worker() for _ in range(self._workers)))

    def requeue(self, key: Key, seconds: float) -> None:
        """Reconcile an object after some seconds, unless an earlier reconcile is queued."""
        self.queue.add_at(key, time.monotonic() + seconds)

    def seen(self, kind: Kind, item: Object) -> None:
        """Put an object of a response into its cache before the watch reports it."""
        meta = item["metadata"]
        if kind == self.kind:
            # With its last finalizer removed, the object is gone. The watch may have reported that already.
            if not meta.get("deletionTimestamp") or meta.get("finalizers"):
                self.objects.put(item)
        elif kind.kind in self.owned:
            self.owned[kind.kind].put(item)

    async def reconcile_key(self, key: Key, now: float) -> None:
        """Reconcile one object. Raises ApiError, Unreachable, CredentialsError."""
        item = self.objects.get(*key)
        if item is None:
            self._forget(key)
            return
        began = time.perf_counter()
        observed = self._observe(item, now)
        if observed is None:
            return
        decided = self.reconcile(observed, now)
        self._shared.metrics.count(self._shared.reconciles, self.name)
        self._shared.metrics.observe(self._shared.seconds, time.perf_counter() - began, self.name)
        requeue_at = await self._carry_out(observed, decided, now)
        if requeue_at is not None:
            self.requeue(key, max(requeue_at - now, SHORTEST_REQUEUE))

    async def _worker(self) -> None:
        while True:
            key = await self.queue.get()
            try:
                await self.reconcile_key(key, time.time())
                self.queue.succeeded(key)
            except (ApiError, Unreachable, CredentialsError) as exc:
                delay = self.queue.add_failed(key)
                self._shared.metrics.count(self._shared.errors, self.name)
                log.warning("%s, again in %.1f s", exc, delay, extra=where(self.kind, key))
            except Exception:
                self.queue.add_failed(key)
                self._shared.metrics.count(self._shared.errors, self.name)
                log.exception("defect of the controller", extra=where(self.kind, key))
            finally:
                self.queue.done(key)

    # --- changes, and the objects that they affect

    def _add(self, item: Object) -> None:
        self.queue.add(key_of(item))

    def _owner_changed(self, item: Object) -> None:
        for key in owners_of(item, self.kind):
            self.queue.add(key)

    def _requeuing(self, watch: Watch) -> Callable[[Object], None]:
        def changed(item: Object) -> None:
            for key, seconds in watch.concerned(item):
                if seconds:
                    self.requeue(key, seconds)
                else:
                    self.queue.add(key)

        return changed

    # --- defaults, for a controller that decides on objects and a status

    def _see(self, item: Object, now: float) -> Observed | None:
        if item["metadata"].get("deletionTimestamp"):
            return None
        uid = item["metadata"]["uid"]
        owned = {kind: cache.owned_by(uid) for kind, cache in self.owned.items()}
        return Observed(item, {kind: {one["metadata"]["name"]: one for one in items} for kind, items in owned.items()})

    async def _write(self, observed: Observed, outcome: Outcome, now: float) -> float | None:
        item = observed.item
        annotation = f"{self._shared.component}/fingerprint"
        try:
            for step in steps_towards(observed, outcome.objects, self.kind, self._kinds, annotation):
                await self.writes.carry_out(item, step)
        except Taken as exc:
            await self.record(item, Report("Warning", "NameTaken", str(exc)), now)
            return now + TAKEN_RETRY
        except ApiError as exc:
            if is_namespace_ending(exc):
                return None
            raise
        for event in outcome.events:
            await self.record(item, event, now)
        if outcome.status is not None and patch_of(item.get("status") or {}, outcome.status):
            await self.writes.publish(item, outcome.status)
        return outcome.requeue_at

    async def record(self, item: Object, event: Report, now: float) -> None:
        """Write an Event about an object of the controller's kind."""
        await record(self._shared.api, self.kind, item, event, now, self._shared.component)


def owners_of(item: Object, kind: Kind) -> Iterator[Key]:
    """The key of the object of `kind` that controls an object, if there is one."""
    for one in item["metadata"].get("ownerReferences") or ():
        group = one.get("apiVersion", kind.api_version).rpartition("/")[0]
        if one.get("controller") and (group, one.get("kind")) == (kind.group, kind.kind):
            yield item["metadata"].get("namespace", ""), one["name"]
