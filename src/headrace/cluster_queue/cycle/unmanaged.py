"""Pods of unmanaged objects: they do not wait, although all pods of labelled namespaces get the gate.

Admission sees only the pod, not the label of the object that created it. So in a queue that binds, the webhook gives
such a pod the queue's scheduler name, too, and no other scheduler handles it. This program binds it as kube-scheduler
would: to a node with room now, whatever is planned there.
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
    """Starts the pods of unmanaged objects.

    `unbindable` are the uids of objects with a pod to bind for which no node has room.
    """

    def __init__(self, context: Context) -> None:
        self.unbindable: dict[str, None] = {}
        self._snapshot = context.snapshot
        self._queues = context.queues
        # By pod uid, the hold that reserves the pod's room on its node from the binding write until the watch shows the
        # pod as bound.
        self._holds: dict[str, tuple[ClusterQueue, int]] = {}

    def settle(self) -> None:
        """Release the holds of pods that are gone, or bound and thereby counted as pods of others."""
        for uid, (queue, hold) in list(self._holds.items()):
            pod, is_open = self._snapshot.pods.get(uid), queue in self._queues.values()
            if pod is None or not pin.is_to_bind(pod) or not is_open:
                del self._holds[uid]
                if is_open:
                    queue.release(hold)

    def about(self, uid: str, now: float) -> Iterator[actions.Action]:
        """The writes about the pods of an object, if the object is unmanaged."""
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
        """The node for a pod to be bound to, with room held for the pod; "" if no node has room."""
        uid = pod["metadata"]["uid"]
        if uid not in self._holds:
            amounts = resources.amounts_of(pod["spec"])
            node = queue.node_with_room(amounts, constraints.constraint_of(pod["spec"], queue.has_taints))
            if not node:
                return ""
            self._holds[uid] = queue, queue.hold(node, amounts, now)
        queue, hold = self._holds[uid]
        return queue.holds[hold].node
