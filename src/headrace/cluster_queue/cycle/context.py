"""State shared by the steps of a cycle: the cluster as last seen, the active queues and their jobs."""

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
    """The shared state of a cycle.

    `entries` are the queued jobs by the uid of their workload, `by_part` the same by the ids of their pending parts,
    and `in_parts` those with several pending parts.

    Within a step, `touched` are the workloads to report on, `loads` the nodes whose use may have changed, and `changed`
    the queues with changed positions or reasons. `namespace` is the namespace of the queue itself.
    """

    def __init__(self, namespace: str) -> None:
        self.snapshot = Snapshot(namespace)
        self.queues: dict[str, ClusterQueue] = {}
        self.ids = FluidGenerator(epoch_ms=EPOCH)
        # Ids of pending parts of jobs. They are larger than all job ids: within one second, a job goes before further
        # parts of other jobs.
        self.parts = count(1 << 63)
        self.defects: list[tuple[str, Exception]] = []
        # Workloads and FluxQueues for which the next step repeats its writes.
        self.asked_again: dict[str, None] = {}
        self.begin()

    def begin(self) -> None:
        """Forget all queues and jobs, as in a process that has not seen the cluster yet."""
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
        """Have the next step repeat the writes about a workload (its uid) or a FluxQueue (its name).

        A Change would not do: with the object as of the last step, it would hide a newer one that waits.
        """
        self.asked_again[about] = None

    def entries_of(self, queue: str) -> Iterator[Entry]:
        """The jobs in a queue."""
        return (entry for entry in self.entries.values() if entry.queue == queue)

    def account_of(self, entry: Entry) -> Account | None:
        """The quota account of a job's namespace; None without a quota."""
        queue = self.queues.get(entry.queue)
        return queue.accounts.get(entry.item["metadata"]["namespace"]) if queue else None

    def outside(self, entry: Entry) -> Iterator[Object]:
        """The pods of a job that have neither a slot nor the gate, and are not being deleted.

        They were created before their namespace had a queue, name their node, or lost their gate to someone other than
        the queue.

        The placed pods of a job that was suspended are left out: the job has given its slots back, and they end soon.
        """
        for pod in self.snapshot.live_pods(entry.uid):
            meta = pod["metadata"]
            ends = "deletionTimestamp" in meta or (entry.workload.suspend and is_placed(pod))
            if meta["uid"] not in self.slot_of and gate_index(pod) < 0 and not ends:
                yield pod

    def running_outside(self, entry: Entry) -> list[Object]:
        """The pods of a job that run, or can run, without a slot from the queue.

        What they use of their nodes counts as the use of others (`usage`).
        """
        if entry.status.is_suspended_by_user:
            # The user has suspended the job, so its pods are about to end.
            return []
        is_pod = entry.workload.kind == PODS
        return [pod for pod in self.outside(entry) if is_pod or pod["spec"].get("nodeName")]

    def is_published(self, entry: Entry) -> bool:
        """Whether the published status shows the nodes that a job has."""
        published: Object = (self.snapshot.fluxjobs.get(entry.uid) or {}).get("status") or {}
        has_nodes = State(published.get("state", "Held")).has_nodes
        return has_nodes and {
            key: published[key] for key in ("nodes", "sets", "freed", "waits") if key in published
        } == fluxjobs.nodes_of(entry)

    def left(self, entry: Entry) -> dict[str, int]:
        """The pods that each set of a job wants beside those that have a slot or run without one."""
        taken = self._outside_by_set(entry)
        taken.update(slot.set for slot in entry.slots if slot.pod)
        return {one.name: max(one.pods - taken[one.name], 0) for one in entry.demand.sets}

    def lacks(self, entry: Entry) -> dict[str, int]:
        """The number of pods in each set that have no slot."""
        has = self._outside_by_set(entry)
        has.update(slot.set for slot in entry.slots)
        return {one.name: max(one.pods - has[one.name], 0) for one in entry.demand.sets}

    def _outside_by_set(self, entry: Entry) -> Counter[str]:
        """The number of pods of a job in each set that run without a slot."""
        runs = (pod for pod in self.outside(entry) if entry.workload.lasts or pod["spec"].get("nodeName"))
        return Counter(own.name for pod in runs if (own := entry.demand.set_of(pod)))
