"""Effects: the writes that make a job run once its status shows its nodes, from the observed objects."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

from headrace.k8s.objects.kinds import PODS

from ..admission import gate_index, is_bound_here
from ..model.entry import Entry
from ..model.snapshot import is_held, node_of
from ..workloads.workload import value_at
from . import actions, pin
from .assign import Assign
from .binding import Binding
from .context import Context

Object = dict[str, Any]


class Effects:
    """Computes the effects.

    `unbindable` are jobs with a pod to bind whose node accepts no pods now or has no room for it.
    """

    def __init__(self, context: Context, assign: Assign, binding: Binding) -> None:
        self.unbindable: dict[str, None] = {}
        self._context = context
        self._assign = assign
        self._binding = binding

    def about(self, entry: Entry, pods: dict[str, Object], now: float) -> Iterator[actions.Action]:
        """The writes that make a job run, given that its status shows its nodes."""
        workload, queue = entry.workload, self._context.queues.get(entry.queue)
        limit = entry.seconds if queue and queue.settings.enforce_duration else 0
        # A job without nodes only has pods that run outside the queue: it has not started yet.
        if entry.assignment.nodes and (workload.is_suspended(entry.item) or is_held(entry.item)):
            yield actions.Change(
                workload.kind, entry.item, workload.released(entry.item, limit, entry.status.started_at)
            )
        elif workload.deadline and any(gate_index(pods[one.pod]) >= 0 for one in entry.slots if one.pod in pods):
            # The user created the object suspended and then unsuspended it: only its pods were held.
            body = workload.released(entry.item, limit, entry.status.started_at)
            if value_at(body, workload.deadline):
                yield actions.Change(workload.kind, entry.item, body)
        if limit and not workload.lasts and entry.kind_name != PODS.kind:
            # A pod created later than the others of its job, such as the replacement of a lost pod, ends with them.
            limit = min(limit, max(ceil(entry.planned_end - now), 1))
        pinned: list[str] = []
        for slot in entry.slots:
            pod = pods.get(slot.pod)
            if pod is not None and gate_index(pod) >= 0:
                if queue and not self._assign.is_usable(entry, queue, slot):
                    # Once pinned, the pod could not go to another node (`Assign.leave_lost_nodes`).
                    continue
                give = pin.mark if is_bound_here(pod) else pin.pin
                yield actions.PatchPod(pod, give(pod, slot.node, entry.jobid, 0 if workload.deadline else limit))
                pinned.append(slot.pod)
            elif pod is not None and queue and pin.is_to_bind(pod):
                if not queue.is_usable(slot.node, None) or not self._assign.widen(entry, queue, slot, int(now)):
                    self.unbindable[entry.uid] = None
                    continue
                if node_of(pod) != slot.node:
                    yield actions.PatchPod(pod, pin.move(pod, slot.node))
                yield from pin.bind(pod, slot.node)
        if pinned:
            self._binding.pin(entry, queue, pinned, now)
        yield from self._evictions(entry, pods)

    def _evictions(self, entry: Entry, pods: dict[str, Object]) -> Iterator[actions.Action]:
        """Delete the pods that were not bound in time, if their owner creates new ones.

        If no pod of a workload is bound, the workload is suspended as if by its user, and is queued again. If some are
        bound, only late pods are deleted.
        """
        late = [
            pod for uid, pod in pods.items() if uid in entry.awaited.late and "deletionTimestamp" not in pod["metadata"]
        ]
        if late and entry.workload.suspend and not any(pod["spec"].get("nodeName") for pod in pods.values()):
            if not entry.workload.is_suspended(entry.item):
                yield actions.Change(entry.workload.kind, entry.item, entry.workload.suspended())
            return
        for pod in late:
            if any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences") or ()):
                yield actions.Delete(PODS, pod)
