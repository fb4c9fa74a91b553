"""The last step of the cycle: computes the writes for each workload, beginning with the status of its FluxJob."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf
from typing import Any

from msgspec.structs import replace

from headrace.k8s.runtime.events import Report as Event
from headrace.k8s.runtime.writes import patch_of

from ..model import fluxjobs
from ..model.entry import Entry, Published, State
from ..model.snapshot import is_held
from ..names import FLUXJOBS
from . import actions
from .assign import Assign
from .binding import Binding
from .context import Context
from .effects import Effects
from .external import Externals
from .order import Order
from .refresh import BEHIND, STATUS_INTERVAL, Refresh
from .unmanaged import Unmanaged

Object = dict[str, Any]


class Report:
    """Computes the writes for all workloads that have changed."""

    def __init__(
        self, context: Context, order: Order, assign: Assign, binding: Binding, externals: Externals, now: float
    ) -> None:
        self._context = context
        self._order = order
        self._assign = assign
        self._binding = binding
        self._externals = externals
        self._refresh = Refresh(context, order, now)
        self._effects = Effects(context, assign, binding)
        self.unmanaged = Unmanaged(context)
        # By job uid, the time to write changed pod counts that did not justify a write at once.
        self._unpublished: dict[str, float] = {}

    def due(self, now: float) -> dict[str, None]:
        """The workloads to report on in this step although they have not changed."""
        found = {**self._effects.unbindable, **self.unmanaged.unbindable}
        self._effects.unbindable.clear()
        self.unmanaged.unbindable.clear()
        for times in (self._binding.due, self._unpublished):
            found.update({uid: None for uid, at in times.items() if at <= now})
        self._refresh.expire(now)
        return found

    def writes(self, now: float) -> Iterator[tuple[str, tuple[actions.Action, ...]]]:
        """The writes, by workload."""
        context = self._context
        for uid in [uid for uid in self._unpublished if uid not in context.entries]:
            del self._unpublished[uid]
        self._order.forget_positions()
        if now >= self._refresh.at:
            for changed in self._refresh.refresh(now):
                changed.published = replace(changed.published, is_due=True)
                context.touched[changed.uid] = None
        for uid in context.touched:
            with self._order.contained(uid):
                entry = context.entries.get(uid)
                if entry and entry.is_submitted:
                    review = self._refresh.update_reason if entry.standing.position else self._refresh.update
                    review(entry, int(now))
                found = tuple(self._about(entry, now) if entry else self._without_entry(uid, now))
                if found:
                    yield uid, found
        yield from self._externals.begun(context.snapshot.externals, context.touched, now)

    def wake_at(self, now: float) -> float:
        """The time of the next step if nothing changes."""
        queues = (queue.queue.next_start() for queue in self._context.queues.values())
        return min(
            [
                *(start for start in queues if start is not None),
                *self._binding.due.values(),
                *self._unpublished.values(),
                *self._refresh.first_estimates.values(),
                self._refresh.at if self._refresh.is_due else inf,
                self._externals.next_start(self._context.snapshot.externals, now),
            ]
        )

    def _without_entry(self, uid: str, now: float) -> Iterator[actions.Action]:
        """The writes for a uid without an entry: it has an orphaned FluxJob, or is an unmanaged object."""
        if orphan := self._context.snapshot.orphans.get(uid):
            yield actions.Delete(FLUXJOBS, orphan)
        yield from self.unmanaged.about(uid, now)

    def _about(self, entry: Entry, now: float) -> Iterator[actions.Action]:
        """The writes for a job, in order."""
        flux, queue = self._context.snapshot.fluxjobs.get(entry.uid), self._context.queues.get(entry.queue)
        reserves = bool(queue and queue.queue.policy.reservations != 0)
        if flux is None:
            yield actions.Create(fluxjobs.made_of(entry, reserves))
            return
        if entry.is_renewed:
            yield actions.Delete(FLUXJOBS, flux)
            return
        published: Object = flux.get("status") or {}
        if entry.status.is_suspended_by_user and published.get("state") == "Held":
            if not is_held(entry.item):
                yield actions.Change(entry.workload.kind, entry.item, entry.workload.held_again(entry.item))
                return
            entry.set_suspended_by_user(False)
        body = fluxjobs.changes_of(entry, reserves, flux)
        if body:
            # The status is written to the version that results from this change.
            yield actions.Change(FLUXJOBS, flux, body)
            return
        pods = {pod["metadata"]["uid"]: pod for pod in self._context.snapshot.live_pods(entry.uid)}
        wanted = fluxjobs.status_of(entry, published, self._counts(entry, pods), now)
        is_due = entry.published.is_due or (entry.has_nodes and now - entry.published.at >= STATUS_INTERVAL)
        patch = patch_of(published, wanted)
        self._unpublished.pop(entry.uid, None)
        if _matters(published, wanted) or (is_due and patch):
            yield from _events(entry, published, wanted)
            yield actions.Publish(FLUXJOBS, flux, patch)
            entry.published = Published(now, fluxjobs.forecast_of(entry))
        else:
            if patch and entry.has_nodes:
                self._unpublished[entry.uid] = entry.published.at + STATUS_INTERVAL
            # If the last status write was refused, the published forecast is still the old one.
            entry.published = replace(entry.published, forecast=fluxjobs.forecast_in(published))
            if entry.published.forecast != fluxjobs.forecast_of(entry):
                self._context.changed[entry.queue] = None
        if entry.has_nodes and self._context.is_published(entry):
            yield from self._effects.about(entry, pods, now)

    def _counts(self, entry: Entry, pods: dict[str, Object]) -> Object:
        running = sum(1 for pod in pods.values() if (pod.get("status") or {}).get("phase") == "Running")
        placed = sum(1 for slot in entry.slots if slot.pod)
        return {"wanted": entry.demand.pods, "placed": placed, "running": running} if entry.has_nodes else {}


def _events(entry: Entry, published: Object, wanted: Object) -> Iterator[actions.Action]:
    """The Events about a change of state or of the reason of a job."""
    is_new = published.get("state") != entry.state.value
    has_changed = is_new or _without_amounts(published) != _without_amounts(wanted)
    reports = []
    if entry.status.unbound and entry.status.unbound != published.get("reason"):
        reports.append(Event("Warning", "NotBound", entry.status.unbound))
    if not published.get("state") and entry.request and entry.request.left:
        text = (
            f"not planned by the queue; kube-scheduler checks it on the planned node: {', '.join(entry.request.left)}"
        )
        reports.append(Event("Normal", "LeftToScheduler", text))
    if entry.state is State.HELD and has_changed:
        reports.append(Event("Normal", "Queued", f"in queue {entry.queue}: {entry.status.reason or BEHIND}"))
    elif entry.state is State.REFUSED and (is_new or published.get("reason") != entry.status.reason):
        reports.append(Event("Warning", "Refused", entry.status.reason))
    elif entry.state is State.RELEASED and is_new:
        reports.append(Event("Normal", "Released", f"on {wanted.get('nodes')}"))
    if entry.status.reason and has_changed and entry.state not in (State.HELD, State.REFUSED):
        reports.append(
            Event("Warning" if entry.state is State.FAILED else "Normal", entry.state.value, entry.status.reason)
        )
    for report in reports:
        yield actions.Tell(entry.workload.kind, entry.workload.objects(entry.item)[0], published, report)


def _without_amounts(status: Object) -> str:
    """A reason without its amounts, which change all the time."""
    return re.sub(r"\d+", "", str(status.get("reason", "")))


def _matters(published: Object, wanted: Object) -> bool:
    """Whether to write a status at once: not if only a position, an estimate or a count has changed."""
    keys = ("state", "reason", "nodes", "sets", "freed", "waits", "jobid", "startedAt", "endedAt")
    return any(published.get(key) != wanted.get(key) for key in keys)
