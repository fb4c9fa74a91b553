"""The use of nodes outside slots: by pods without a slot, and by resized pods beyond their slot.

It depends on the assignments of jobs, so it is counted once those of the current cycle are known.
"""

from __future__ import annotations

from ..model import resources
from ..model.cluster_queue import ClusterQueue
from ..model.snapshot import Object, is_live, lasts_for_ever
from .context import Context
from .external import Externals
from .unmanaged import Unmanaged


class Usage:
    """Counts the use of nodes by pods outside slots, as one hold on each node."""

    def __init__(self, context: Context, externals: Externals) -> None:
        self._context = context
        self._externals = externals
        # By node, the queue and hold of its use outside slots, and the amounts.
        self._held: dict[str, tuple[ClusterQueue, int, resources.Amounts]] = {}

    def count(self, now: int, unmanaged: Unmanaged) -> None:
        """Update the use of the nodes where it may have changed."""
        context = self._context
        self._externals.settle(context.snapshot.externals, now)
        context.loads.update(self._externals.changed)
        self._externals.changed.clear()
        unmanaged.settle()
        for node in context.loads:
            self._count(node, now)

    def _count(self, node: str, now: int) -> None:
        """Hold what pods use of a node without a slot, or beyond their slot after a resize.

        The use of pods that never end by themselves is subtracted from the node's size instead.
        """
        context = self._context
        name = next((name for name, one in context.queues.items() if node in one.nodes), "")
        queue = context.queues.get(name)
        lasting: list[resources.Amounts] = []
        passing = list(self._externals.elsewhere(node, queue))
        for uid, pod in context.snapshot.pods_on.get(node, {}).items():
            if is_live(pod):
                lasts = uid not in context.slot_of and lasts_for_ever(pod)
                (lasting if lasts else passing).append(self._beyond_slot(uid, pod, name, node))
        if queue and queue.set_lasting(node, resources.total(lasting), now):
            # Jobs that no node could serve are tried again.
            for entry in context.entries_of(name):
                if not entry.standing.is_ready:
                    context.touch(entry.uid)
        if queue and queue.set_outside(node, resources.total([*lasting, *passing])):
            # The reason of the first job in line names these amounts.
            context.changed[name] = None
        amounts, before = resources.total(passing), self._held.get(node)
        if before and (before[0], before[2]) == (queue, amounts):
            return
        if before:
            del self._held[node]
            if before[0] in context.queues.values():
                before[0].release(before[1])
        if queue and amounts:
            self._held[node] = queue, queue.hold(node, amounts, now), amounts

    def _beyond_slot(self, uid: str, pod: Object, queue: str, node: str) -> resources.Amounts:
        """The amounts that a pod uses of its node beyond its slot in a queue.

        The node may have come to the queue after the slot was made. A pod that is assigned to the node only by an
        annotation, which users may write, uses nothing without a slot.
        """
        slot = self._context.slot_of.get(uid)
        if slot and slot.node != node:
            slot = None
        if not pod["spec"].get("nodeName"):
            return slot.amounts if slot and slot.queue != queue else {}
        amounts = resources.amounts_of(pod["spec"], pod.get("status"))
        if slot:
            slot.beyond = resources.beyond(amounts, slot.amounts)
        return slot.beyond if slot and slot.queue == queue else amounts
