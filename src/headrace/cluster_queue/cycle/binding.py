"""Binding: whether placed pods are bound within the queue's `readyTimeout`."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

from msgspec.structs import replace

from headrace.formats.spec import duration as durations
from headrace.k8s.objects.conditions import condition

from ..admission import is_bound_here
from ..model.cluster_queue import ClusterQueue
from ..model.entry import Awaited, Entry
from ..model.fluxjobs import moment_of
from ..model.snapshot import Snapshot, is_placed, node_of

Object = dict[str, Any]

# The beginning of the reason of a job whose pods are not bound.
NOT_BOUND = "not bound"


class Binding:
    """Tracks the pods that wait to be bound.

    `due` has, by job uid, the time by which the next of its pods must be bound (seconds since the epoch).
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.due: dict[str, float] = {}
        self._snapshot = snapshot

    def pin(self, entry: Entry, queue: ClusterQueue | None, pods: Iterable[str], now: float) -> None:
        """Note that pods (by uid) are given to their nodes now."""
        entry.awaited = replace(entry.awaited, pinned_at={**entry.awaited.pinned_at, **dict.fromkeys(pods, now)})
        if queue and queue.settings.ready_timeout:
            self.due[entry.uid] = min(now + queue.settings.ready_timeout, self.due.get(entry.uid, inf))

    def review(self, entry: Entry, queue: ClusterQueue | None, now: float) -> None:
        """Note which pods were not bound in time, and the deadline of the next one."""
        self.due.pop(entry.uid, None)
        pods = list(self._snapshot.live_pods(entry.uid)) if entry.has_nodes else []
        waits = {pod["metadata"]["uid"]: pod for pod in pods if _waits_for_binding(pod)}
        before = entry.awaited
        pinned_at = {uid: before.pinned_at.get(uid, _pinned_at(entry, pod)) for uid, pod in waits.items()}
        if entry.state.is_over:
            entry.set_unbound("")
        if queue is None or not entry.has_nodes:
            if before.pinned_at or before.late:
                entry.awaited = Awaited(pinned_at, avoided=before.avoided)
            return
        # The slots of late pods that are being deleted are freed once the pods are gone.
        going = before.late.intersection(
            pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" in pod["metadata"]
        )
        ends = {uid: at + queue.settings.ready_timeout for uid, at in pinned_at.items()}
        late = [uid for uid, end in ends.items() if end <= now]
        avoided = before.avoided.union(node_of(waits[uid]) for uid in late)
        entry.awaited = Awaited(pinned_at, going.union(late), avoided)
        if late and not entry.status.unbound:
            limit = durations.encode(queue.settings.ready_timeout)
            entry.set_unbound(f"{NOT_BOUND} {_why_not_bound(waits[late[0]], limit)}")
        elif sum(1 for pod in pods if pod["spec"].get("nodeName")) >= entry.demand.pods:
            entry.set_unbound("")
        if len(late) < len(ends):
            self.due[entry.uid] = min(end for end in ends.values() if end > now)

    def forget(self, entry: Entry) -> None:
        """Forget a job that is gone."""
        self.due.pop(entry.uid, None)


def _waits_for_binding(pod: Object) -> bool:
    """Whether a pod was given to a node and is not bound yet."""
    is_bound = bool(pod["spec"].get("nodeName"))
    return is_placed(pod) and not is_bound and "deletionTimestamp" not in pod["metadata"]


def _pinned_at(entry: Entry, pod: Object) -> float:
    """The time at which a pod was pinned, if that was before this process started."""
    return max(entry.status.started_at, moment_of(pod["metadata"].get("creationTimestamp")))


def _why_not_bound(pod: Object, limit: str) -> str:
    if is_bound_here(pod):
        return f"in {limit}: its node {node_of(pod)} has no room for it"
    why = condition(pod.get("status"), "PodScheduled").get("message") or "no reason given"
    return f"by kube-scheduler in {limit}: {why}"
