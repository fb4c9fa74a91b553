"""Assign: the nodes of each job, the slot of each pod, and when slots are freed.

The hold of a freed slot is kept until the job's status shows that the slot is free (`Entry.leaving`). A process that
restarts before then still counts the slot as the job's.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from ..admission import gate_index, is_bound_here
from ..model import constraints, nodes, resources
from ..model.assignment import Assignment, Slot
from ..model.cluster_queue import ClusterQueue
from ..model.demand import PodSet, Request
from ..model.entry import Entry, State
from ..model.request import beside, none_of, request_for
from ..model.snapshot import node_of
from ..workloads import ordinal_of
from ..workloads.pod import template_of
from . import pin
from .context import Context
from .order import Order
from .schedule import Start

Object = dict[str, Any]


STRANDED = "the node of a slot no longer accepts its pod, and no other eligible node has room"


class Assign:
    """The fifth step: assigns the slots of started jobs to pods, and frees slots that no pod will use.

    `stranded` are jobs with a slot on a node that does not accept the slot's pod, while no other suitable node has
    room.
    """

    def __init__(self, context: Context, order: Order) -> None:
        self.stranded: dict[str, None] = {}
        self._context = context
        self._order = order

    def start(self, name: str, starts: Iterable[Start], now: float) -> bool:
        """Create the slots of the started jobs of a queue. Returns whether one of these jobs waits for more."""
        has_more = False
        decided: dict[str, Entry] = {}
        for one in starts:
            if one.nodes:
                self._start(one, self._context.queues[name], now)
                has_more = has_more or one.entry.standing.is_ready
            decided[one.entry.uid] = one.entry
        # Several parts of a job may have started. The assignment of slots to pods, and the job's next request, depend
        # on all of them.
        for entry in decided.values():
            if entry.has_nodes:
                self.settle(entry, int(now))
            if entry.awaited.avoided:
                # The queue may have chosen a node again to which a pod of the job was not bound in time.
                self.leave_lost_nodes(entry.uid, int(now))
            self._order.account(entry)
            self._context.touched[entry.uid] = None
        return has_more

    def _start(self, start: Start, queue: ClusterQueue, now: float) -> None:
        """Give a job the nodes of a part that has started, set by set."""
        entry = start.entry
        part = self._order.take(entry, start.part)
        if not entry.has_nodes:
            entry.assignment = Assignment()
            self.begin_without_slots(entry)
        entry.start(now)
        for own, names in zip(part.shape.pods, start.nodes, strict=True):
            self._add(entry, queue, own, names, int(now), part.wait.since)
        if account := self._context.account_of(entry):
            # The account keeps the pending part apart from the running job, under this id. The job's next part has the
            # same id and often the same amounts, but it needs its own check against the quota.
            account.forget(-entry.jobid)

    def requeue(self, entry: Entry) -> None:
        """Free all slots of a job and let it wait again with its former time in the queue."""
        self._order.withdraw(entry)
        self._order.want_nothing(entry)
        self._free_all_slots(entry)
        entry.requeue()
        entry.assignment, entry.has_slots = Assignment(), False

    def begin_without_slots(self, entry: Entry) -> None:
        """Begin with no slots, instead of creating those of the job's assignment."""
        entry.has_slots = True

    def forget(self, entry: Entry) -> None:
        """Forget a deleted job. The resources that its pods still use count as those of pods outside the queue."""
        self._free_all_slots(entry)

    def _free_all_slots(self, entry: Entry) -> None:
        self._free_slots(entry, entry.slots)
        self.release_holds(entry)

    def settle(self, entry: Entry, now: int) -> None:
        """Assign a job's slots to its pods, and free the slots that no pod will use."""
        queue = self._context.queues.get(entry.queue)
        if queue:
            if entry.request is None:
                entry.ask(self._request_at_start(entry, queue))
            self._settle(entry, queue, now)

    def _request_at_start(self, entry: Entry, queue: ClusterQueue) -> Request | None:
        """The request of a job with nodes, even if its queue would refuse it now (`Admit` reports that).

        The job may have been released under other settings, or its object may have changed since. None if even its pods
        are invalid; its slots are then counted by their own amounts.
        """
        spec = (self._context.snapshot.fluxjobs.get(entry.uid) or {}).get("spec") or {}
        for started_with in (None, float(spec.get("duration") or 0)):
            with suppress(Exception):
                return request_for(entry, queue.settings, queue.has_taints, started_with)
        return None

    def leave_all_lost_nodes(self, now: int) -> None:
        """Move the slots of all touched and stranded jobs off nodes that no longer accept pods."""
        for uid in [*self.stranded, *self._context.touched]:
            with self._order.contained(uid):
                self.leave_lost_nodes(uid, now)

    def leave_lost_nodes(self, uid: str, now: int) -> None:
        """Move the slots of a job off nodes that no longer accept pods."""
        self.stranded.pop(uid, None)
        entry = self._context.entries.get(uid)
        queue = self._context.queues.get(entry.queue) if entry else None
        if entry and queue and entry.has_nodes and not self._leave_lost_nodes(entry, queue, now):
            self.stranded[uid] = None
            entry.explain(entry.status.reason or STRANDED)

    def _settle(self, entry: Entry, queue: ClusterQueue, now: int) -> None:
        """Assign a job's slots to its pods, and free the slots that no pod will use."""
        pods = {pod["metadata"]["uid"]: pod for pod in self._context.snapshot.live_pods(entry.uid)}
        if not entry.has_slots and entry.has_nodes:
            entry.has_slots = True
            since = entry.status.queued_at
            entry.slots = [self._slot(entry, queue, index, now, since) for index in entry.assignment.kept]
        for slot in [one for one in entry.slots if one.pod and one.pod not in pods]:
            if slot.pod in entry.awaited.late:
                # The node might not accept the next pod either, so the replacement waits in the queue.
                self._free_slots(entry, [slot], keep=entry.has_nodes)
                entry.set_unbound("")
            else:
                self._vacate(slot)
        entry.enlarged = {name: one for name, one in entry.enlarged.items() if one[0] in pods}
        free = [slot for slot in entry.slots if not slot.pod]
        without = [one for one in pods.items() if one[0] not in self._context.slot_of and not _is_unbound(one[1])]
        # Pods that are already on a node get their slots there before any other pod.
        for uid, pod in sorted((one for one in without if node_of(one[1])), key=_by_index) if free else ():
            if found := _best(entry, [one for one in free if one.node == node_of(pod)], pod):
                free.remove(found)
                self._occupy(found, uid)
        # Pods that this program has not bound yet. The slot of such a pod may be on another node than the one that was
        # written into the pod.
        waiting = [one for one in without if one[0] not in self._context.slot_of and _is_open(one[1])]
        free = [*free, *self._taken_over(entry, pods, [pod for _, pod in waiting], free)]
        for uid, pod in sorted(waiting, key=_by_index) if free else ():
            if not free:
                break
            if found := _best(entry, free, pod):
                free.remove(found)
                self._occupy(found, uid)
            else:
                _enlarge(entry, free, uid, pod)
        kept = {slot.index for slot in self._kept(entry, free)}
        unused = [slot for slot in free if slot.index not in kept]
        for slot in unused:
            if _is_undersized(entry, slot):
                self._order.want_larger(entry, slot.since)
        self._free_slots(entry, unused, keep=entry.has_nodes)
        if entry.state is State.RELEASED and _all_run(entry, pods):
            entry.run()

    def _taken_over(
        self, entry: Entry, pods: dict[str, Object], waiting: list[Object], free: list[Slot]
    ) -> Iterator[Slot]:
        """Take slots from lost pods, as many as waiting pods of the same set need beyond the free slots."""
        lost = [slot for slot in entry.slots if slot.pod and self._is_lost(pods[slot.pod])] if waiting else []
        if not lost:
            return
        wanted = Counter(own.name for pod in waiting if (own := entry.demand.set_of(pod)))
        wanted.subtract(slot.set for slot in free)
        for slot in lost:
            if wanted[slot.set] > 0:
                wanted[slot.set] -= 1
                self._vacate(slot)
                yield slot

    def _is_lost(self, pod: Object) -> bool:
        """Whether a pod is being deleted on a node that is gone or not ready.

        The pod stays until the node returns or a user deletes the pod by force. Most controllers create a replacement
        at once.
        """
        if "deletionTimestamp" not in pod["metadata"]:
            return False
        node = self._context.snapshot.nodes.get(node_of(pod))
        return node is None or not nodes.is_ready(node)

    def _slot(self, entry: Entry, queue: ClusterQueue, index: int, now: int, since: float) -> Slot:
        """A slot at an index of a job's nodes, of the size that its set requests. Its pod has waited since `since`."""
        node, own = entry.assignment.nodes[index], entry.assignment.sets[index]
        amounts = entry.amounts_of(own)
        return Slot(index, node, own, queue.hold(node, amounts, now, entry.planned_end), amounts, entry.queue, since)

    def _kept(self, entry: Entry, free: list[Slot]) -> Iterator[Slot]:
        """The slots without a pod that are kept for pods that do not exist yet."""
        enough = [one for one in free if not _is_undersized(entry, one)]
        if not enough:
            return
        if entry.demand.missing and not entry.demand.sets:
            # The Jobs that create the pods were deleted and are being recreated. The sets are unknown until then.
            yield from enough
            return
        beside = []
        for name, left in self._context.left(entry).items():
            own = [one for one in enough if one.set == name]
            yield from own[:left]
            beside += own[left:]
        known = {one.name for one in entry.demand.sets}
        beside += [one for one in enough if one.set not in known]
        yield from beside[: entry.demand.unseen]

    def _add(self, entry: Entry, queue: ClusterQueue, own: str, nodes: list[str], now: int, since: float) -> None:
        """Add a slot on each of these nodes for pods of a set that have waited from `since` on.

        The slots get the lowest indexes of the set that are no longer in use.
        """
        entry.assignment, indexes = entry.assignment.with_nodes(own, nodes)
        for index in indexes:
            insort(entry.slots, self._slot(entry, queue, index, now, since), key=lambda slot: slot.index)

    def is_usable(self, entry: Entry, queue: ClusterQueue, slot: Slot) -> bool:
        """Whether the node of a slot accepts the slot's pod or, if the slot has none, pods of its set."""
        return queue.is_usable(slot.node, self._constraint(entry, queue, slot))

    def _constraint(self, entry: Entry, queue: ClusterQueue, slot: Slot) -> Any:
        """The constraint of a slot's pod on its node; None for no constraint.

        If the slot has a pod, the constraint is derived from the pod, because admission may have added to its template.
        Otherwise it is derived from the template of the set.
        """
        pod = self._context.snapshot.pods.get(slot.pod)
        if pod is not None:
            return constraints.constraint_of(template_of(pod), queue.has_taints)
        asked = entry.request.sets.get(slot.set) if entry.request else None
        return asked.constraint if asked else None

    def _leave_lost_nodes(self, entry: Entry, queue: ClusterQueue, now: int) -> bool:
        """Move a job's slots off nodes that no longer accept pods, if other nodes have room.

        Returns whether every slot is on a usable node. Slots of bound or pinned pods are not moved. If a pod of the job
        was not bound to a node in time, slots on this node are moved as well, if another node has room.
        """
        all_have = True
        for slot in entry.slots:
            pod = self._context.snapshot.pods.get(slot.pod)
            if pod is not None and not _is_open(pod):
                continue
            is_usable = self.is_usable(entry, queue, slot)
            if is_usable and slot.node not in entry.awaited.avoided:
                continue
            others = [one for one in entry.slots if one is not slot]
            own = self._constraint(entry, queue, slot)
            parts = [own, beside(entry, queue, slot.set, others), *none_of(entry.awaited.avoided)]
            amounts = entry.amounts_of(slot.set)
            node = queue.another_node(amounts, constraints.together(parts), now, entry.planned_end)
            if node:
                entry.leaving.append(slot.hold)
                slot.node, slot.hold = node, queue.hold(node, amounts, now, entry.planned_end)
                slot.amounts = amounts
                entry.assignment = entry.assignment.moved(slot.index, node)
            elif not is_usable:
                all_have = False
        return all_have

    def widen(self, entry: Entry, queue: ClusterQueue, slot: Slot, now: int) -> bool:
        """Enlarge a slot to the size of its pod before the pod is bound. Returns whether the node has room.

        A pod may request more than its slot if its user removed the gate, or if a previous process placed it.
        """
        asks = resources.amounts_of(self._context.snapshot.pods[slot.pod]["spec"])
        more = resources.beyond(asks, slot.amounts)
        if not queue.has_room(slot.node, more):
            return False
        if more:
            queue.release(slot.hold)
            slot.amounts = resources.largest([slot.amounts, asks])
            slot.hold = queue.hold(slot.node, slot.amounts, now, entry.planned_end)
        return True

    def _occupy(self, slot: Slot, pod: str) -> None:
        slot.pod = pod
        self._context.slot_of[pod] = slot
        self._context.loads[slot.node] = None

    def _vacate(self, slot: Slot) -> None:
        self._context.slot_of.pop(slot.pod, None)
        slot.pod, slot.beyond = "", {}
        self._context.loads[slot.node] = None

    def _free_slots(self, entry: Entry, slots: list[Slot], keep: bool = False) -> None:
        """Remove slots from a job. With `keep`, their holds stay until the status shows the change."""
        for slot in slots:
            self._vacate(slot)
            entry.leaving.append(slot.hold)
        gone = {slot.index for slot in slots}
        if gone:
            entry.slots = [slot for slot in entry.slots if slot.index not in gone]
            entry.assignment = entry.assignment.without(gone, entry.workload.lasts)
            if not keep:
                self.release_holds(entry)

    def release_holds(self, entry: Entry) -> None:
        """Release the holds of slots that a job has freed."""
        queue, leaving = self._context.queues.get(entry.queue), entry.leaving
        entry.leaving = []
        for hold in leaving:
            if queue and hold in queue.holds:
                queue.release(hold)
        self._context.changed[entry.queue] = None

    def forget_queue(self, entry: Entry) -> None:
        """Forget the slots of a job whose queue is gone, and all holds with it."""
        for slot in entry.slots:
            self._vacate(slot)
        entry.slots, entry.leaving, entry.has_slots = [], [], False


def _by_index(entry: tuple[str, Object]) -> tuple[int, str]:
    return ordinal_of(entry[1]) or 0, entry[1]["metadata"]["name"]


def _is_unbound(pod: Object) -> bool:
    """Whether kube-scheduler chooses the node of a pod, and has not bound it yet.

    Until it is bound, the pod gets no slot, but a free slot of the job is kept for it.
    """
    return gate_index(pod) < 0 and not node_of(pod) and not is_bound_here(pod)


def _is_open(pod: Object) -> bool:
    """Whether this program still decides on which node a pod runs."""
    return gate_index(pod) >= 0 or pin.is_to_bind(pod)


def _is_undersized(entry: Entry, slot: Slot) -> bool:
    """Whether a slot is smaller than its set's demand: templates have changed, or pods exceed them."""
    return bool(resources.beyond(entry.amounts_of(slot.set), slot.amounts))


def _best(entry: Entry, free: list[Slot], pod: Object) -> Slot | None:
    """The slot with the pod's ordinal in its set or, if that is not free, the first slot of the set with enough room.

    A pod without the gate may get a slot that is too small: it cannot be held back any more, and the resources that it
    uses beyond the slot are counted on the node where it is bound.
    """
    own = entry.demand.set_of(pod)
    fits = [one for one in free if one.set == own.name] if own else free
    index, amounts = _index_of(entry, own, pod), resources.amounts_of(pod["spec"])
    is_free = gate_index(pod) < 0
    first = [one for one in fits if one.index == index]
    return next((one for one in [*first, *fits] if is_free or not resources.beyond(amounts, one.amounts)), None)


def _enlarge(entry: Entry, free: list[Slot], uid: str, pod: Object) -> None:
    """Raise the demand of a pod's set to the size of the pod, if no slot of the set has room for it."""
    own = entry.demand.set_of(pod)
    if own and any(one.set == own.name for one in free):
        amounts = resources.amounts_of(pod["spec"])
        if resources.beyond(amounts, entry.amounts_of(own.name)):
            entry.enlarged[own.name] = uid, resources.largest([amounts, entry.amounts_of(own.name)])


def _index_of(entry: Entry, own: PodSet | None, pod: Object) -> int | None:
    """The index among a job's nodes that corresponds to a pod's ordinal in its set; None if there is none."""
    ordinal = ordinal_of(pod, own.per_job if own else 0)
    if own is None or ordinal is None or ordinal < own.first_ordinal:
        return None
    indexes = (index for index, name in enumerate(entry.assignment.sets) if name == own.name)
    return next(islice(indexes, ordinal - own.first_ordinal, None), None)


def _all_run(entry: Entry, pods: dict[str, Object]) -> bool:
    running = sum(1 for pod in pods.values() if (pod.get("status") or {}).get("phase") == "Running")
    return 0 < entry.demand.pods <= running
