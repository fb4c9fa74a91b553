"""What the steps of a cycle share: the cluster as last seen, the queues at work, and the jobs in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any

from headrace.formats.spec.jobid import FluidGenerator
from headrace.k8s.objects.kinds import PODS

from ..admission import gate_index
from ..model import fluxjobs
from ..model.assignment import Slot
from ..model.cluster_queue import ClusterQueue
from ..model.entry import Entry, State
from ..model.queue_nodes import QueueNodes
from ..model.quota import Account
from ..model.snapshot import Snapshot, is_placed

Object = dict[str, Any]
# The time of the first job id, in milliseconds: 2025-01-01. Ids last for 35 years from then on.
EPOCH = 1_735_689_600_000


class Context:
    """`entries` are the queued jobs by the uid of their workload, and `by_part` by the ids of what they have in front
    of a graph; `in_parts` are those with several parts there.

    In each step, `touched` are the workloads to report on, `loads` the nodes on which what pods have may have changed,
    and `changed` the queues with other positions or reasons than before. `namespace` is the queue's own.
    """

    def __init__(self, namespace: str) -> None:
        self.snapshot = Snapshot(namespace)
        self.queues: dict[str, ClusterQueue] = {}
        self.ids = FluidGenerator(epoch_ms=EPOCH)
        # Ids of parts of jobs in front of a graph. Those of jobs are smaller: of one second, a job goes before what
        # others ask for beside their first part.
        self.parts = count(1 << 63)
        self.defects: list[tuple[str, Exception]] = []
        # Workloads and FluxQueues about which the next step writes again.
        self.asked_again: dict[str, None] = {}
        self.begin()

    def begin(self) -> None:
        """Know of no queue and no job, as a process does that has not seen the cluster yet."""
        self.queues.clear()
        self.entries: dict[str, Entry] = {}
        self.by_part: dict[int, Entry] = {}
        self.in_parts: dict[str, Entry] = {}
        self.slot_of: dict[str, Slot] = {}
        self.queue_nodes: dict[str, QueueNodes] = {}
        self.touched: dict[str, None] = {}
        self.loads: dict[str, None] = {}
        self.changed: dict[str, None] = {}

    def touch(self, about: str) -> None:
        """Have the next step ask again for what is to be written about a workload (its uid) or a FluxQueue (its name).

        No change stands for that: one with the object as the last step has seen it would hide a newer one that waits.
        """
        self.asked_again[about] = None

    def entries_of(self, queue: str) -> Iterator[Entry]:
        """The jobs of a queue."""
        return (entry for entry in self.entries.values() if entry.queue == queue)

    def account_of(self, entry: Entry) -> Account | None:
        """The account of a job's namespace, None where it has no quota."""
        queue = self.queues.get(entry.queue)
        return queue.accounts.get(entry.item["metadata"]["namespace"]) if queue else None

    def outside(self, entry: Entry) -> Iterator[Object]:
        """The pods of a job that have neither a slot nor the gate, and were not told to end. They were created before
        their namespace had a queue, name their node, or lost their gate to somebody else than the queue.

        A job that was suspended has given its slots back. Its pods still have their marks, and end soon: they are
        left out.
        """
        for pod in self.snapshot.live_pods(entry.uid):
            meta = pod["metadata"]
            ends = "deletionTimestamp" in meta or (entry.workload.suspend and is_placed(pod))
            if meta["uid"] not in self.slot_of and gate_index(pod) < 0 and not ends:
                yield pod

    def running_outside(self, entry: Entry) -> list[Object]:
        """The pods of a job that the queue does not hold, and has given no slot. What they have of their nodes is
        counted as that of others (`usage`).
        """
        if entry.status.is_suspended_by_user:
            # Its user has suspended it: they are about to end.
            return []
        is_pod = entry.workload.kind == PODS
        return [pod for pod in self.outside(entry) if is_pod or pod["spec"].get("nodeName")]

    def is_published(self, entry: Entry) -> bool:
        """Whether the status says which nodes a job has."""
        published: Object = (self.snapshot.fluxjobs.get(entry.uid) or {}).get("status") or {}
        has_nodes = State(published.get("state", "Held")).has_nodes
        return has_nodes and {
            key: published[key] for key in ("nodes", "sets", "freed", "waits") if key in published
        } == fluxjobs.nodes_of(entry)

    def left(self, entry: Entry) -> dict[str, int]:
        """How many pods of each set a job wants beside those that have slots or run without one."""
        taken = self._outside_by_set(entry)
        taken.update(slot.set for slot in entry.slots if slot.pod)
        return {one.name: max(one.pods - taken[one.name], 0) for one in entry.demand.sets}

    def lacks(self, entry: Entry) -> dict[str, int]:
        """How many pods of each set have no slot."""
        has = self._outside_by_set(entry)
        has.update(slot.set for slot in entry.slots)
        return {one.name: max(one.pods - has[one.name], 0) for one in entry.demand.sets}

    def _outside_by_set(self, entry: Entry) -> Counter[str]:
        """By set, how many pods of a job run on without a slot."""
        runs = (pod for pod in self.outside(entry) if entry.workload.lasts or pod["spec"].get("nodeName"))
        return Counter(own.name for pod in runs if (own := entry.demand.set_of(pod)))
