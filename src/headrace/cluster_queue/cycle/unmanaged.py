"""Pods of objects that are left alone: they do not wait, though every pod of a labelled namespace gets the gate.

Admission sees a pod by itself, and not the label of the object that has made it. So in a queue that binds, such a pod
has the scheduler name of the queue, too, and no other scheduler looks at it. It is bound here, as kube-scheduler would
do that: to a node that has room now, whatever is planned there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..admission import gate_index, is_skipped
from ..model import constraints, resources
from ..model.cluster_queue import ClusterQueue
from . import actions, pin
from .context import Context

Object = dict[str, Any]


class Unmanaged:
    """`unbindable` are the uids of objects with a pod that is to be bound, and that no node has room for."""

    def __init__(self, context: Context) -> None:
        self.unbindable: dict[str, None] = {}
        self._snapshot = context.snapshot
        self._queues = context.queues
        # By the uid of a pod, the hold that keeps its room on its node from the write of its binding on until the watch
        # shows the pod as bound.
        self._holds: dict[str, tuple[ClusterQueue, int]] = {}

    def settle(self) -> None:
        """End the holds of pods that are bound, which count as those of others from then on, or gone."""
        for uid, (queue, hold) in list(self._holds.items()):
            pod, is_open = self._snapshot.pods.get(uid), queue in self._queues.values()
            if pod is None or not pin.is_to_bind(pod) or not is_open:
                del self._holds[uid]
                if is_open:
                    queue.release(hold)

    def about(self, uid: str, now: float) -> Iterator[actions.Action]:
        """What is to be written about the pods of an object, if it is left alone."""
        workload, item = self._snapshot.workloads.get(uid, (None, {}))
        if workload is None or uid in self._snapshot.fluxjobs or not (is_skipped(item) or workload.is_unmanaged(item)):
            return
        queue = self._queues.get(self._snapshot.queue_of(item["metadata"]["namespace"]))
        for pod in self._snapshot.live_pods(uid):
            if gate_index(pod) >= 0:
                yield actions.PatchPod(pod, pin.ungate(pod))
            elif queue and queue.settings.placement == "bind" and pin.is_to_bind(pod):
                if node := self._node_for(pod, queue, int(now)):
                    yield from pin.bind(pod, node)
                else:
                    self.unbindable[uid] = None

    def _node_for(self, pod: Object, queue: ClusterQueue, now: int) -> str:
        """The node that a pod is to be bound to, where room is held for it; "" for none."""
        uid = pod["metadata"]["uid"]
        if uid not in self._holds:
            amounts = resources.amounts_of(pod["spec"])
            node = queue.node_with_room(amounts, constraints.constraint_of(pod["spec"], queue.has_taints))
            if not node:
                return ""
            self._holds[uid] = queue, queue.hold(node, amounts, now)
        queue, hold = self._holds[uid]
        return queue.holds[hold].node
