"""The places of jobs: what each has of which node, which pod has it, and when it is given back.

What is given back is held until the job's status tells it (`Job.leaving`), as a core that begins anew would take it for
the job's until then.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any

from ..admission import gate_index, is_bound_here
from ..model import constraints, nodes, resources
from ..model.cluster_queue import ClusterQueue
from ..model.demand import PodSet, SetRequest
from ..model.entry import Job, Place, State
from ..model.snapshot import Snapshot, is_placed, node_of
from ..workloads import ordinal_of
from ..workloads.pod import template_of
from . import pin

Object = dict[str, Any]


class Places:
    """`of_pod` is the place of each pod that has one; `loads` are the nodes on which that has changed since it was
    cleared, and `changed` the queues in which something was given back. `queues` are all, by name.
    """

    def __init__(self, snapshot: Snapshot, queues: dict[str, ClusterQueue]) -> None:
        self.of_pod: dict[str, Place] = {}
        self.loads: dict[str, None] = {}
        self.changed: dict[str, None] = {}
        self._snapshot = snapshot
        self._queues = queues

    def settle(self, job: Job, queue: ClusterQueue, now: int) -> None:
        """Give a job's places to its pods, and give back those that no pod will have."""
        pods = {pod["metadata"]["uid"]: pod for pod in self._snapshot.live_pods(job.uid)}
        if not job.is_placed and job.state.has_nodes:
            job.is_placed = True
            taken = [index for index in range(len(job.nodes)) if index not in job.freed]
            job.places = [self._place(job, queue, index, now, job.queued_at) for index in taken]
        for place in [one for one in job.places if one.pod and one.pod not in pods]:
            if place.pod in job.late:
                # Its node might not take the next pod either: that waits anew.
                self.give_back(job, place, keep=job.state.has_nodes)
                job.unbound = ""
            else:
                self._vacate(place)
        job.grown = {name: entry for name, entry in job.grown.items() if entry[0] in pods}
        free = [place for place in job.places if not place.pod]
        without = [one for one in pods.items() if one[0] not in self.of_pod and not _is_unbound(one[1])]
        # Pods that are on a node already have their places there before any other pod.
        for uid, pod in sorted((one for one in without if node_of(one[1])), key=_by_index) if free else ():
            if found := _best(job, [one for one in free if one.node == node_of(pod)], pod):
                free.remove(found)
                self._occupy(found, uid)
        # The place of a pod that this program is still to bind may have moved since the pod was given its node.
        waiting = [one for one in without if one[0] not in self.of_pod and _is_open(one[1])]
        free = [*free, *self._taken_over(job, pods, [pod for _, pod in waiting], free)]
        for uid, pod in sorted(waiting, key=_by_index) if free else ():
            if not free:
                break
            if found := _best(job, free, pod):
                free.remove(found)
                self._occupy(found, uid)
            else:
                _grow(job, free, uid, pod)
        kept = {place.index for place in self._kept(job, free)}
        for place in [place for place in free if place.index not in kept]:
            if _is_undersized(job, place):
                job.undersized.append(place.since)
            self.give_back(job, place, keep=job.state.has_nodes)
        if job.state is State.RELEASED and _all_run(job, pods):
            job.state = State.RUNNING

    def _taken_over(
        self, job: Job, pods: dict[str, Object], waiting: list[Object], free: list[Place]
    ) -> Iterator[Place]:
        """The places that lost pods leave to those pods that wait and for which no place of their set is free. A lost
        pod keeps its place until then: a StatefulSet, say, makes another one only when the lost one is gone.
        """
        lost = [place for place in job.places if place.pod and self._is_lost(pods[place.pod])] if waiting else []
        if not lost:
            return
        wanted = Counter(own.name for pod in waiting if (own := job.demand.set_of(pod)))
        wanted.subtract(place.set for place in free)
        for place in lost:
            if wanted[place.set] > 0:
                wanted[place.set] -= 1
                self._vacate(place)
                yield place

    def _is_lost(self, pod: Object) -> bool:
        """Whether a pod is told to end on a node that is gone or not ready: it stays until that is back, or somebody
        deletes it by force. Most controllers make another one at once.
        """
        if "deletionTimestamp" not in pod["metadata"]:
            return False
        node = self._snapshot.nodes.get(node_of(pod))
        return node is None or not nodes.is_ready(node)

    def _place(self, job: Job, queue: ClusterQueue, index: int, now: int, since: float) -> Place:
        """A place at an index of a job's nodes, which holds what a pod of its set asks for that waited since then."""
        node, own = job.nodes[index], job.sets[index]
        amounts = job.amounts_of(own)
        return Place(index, node, own, queue.hold(node, amounts, now, job.end), amounts, job.queue, since)

    def _kept(self, job: Job, free: list[Place]) -> Iterator[Place]:
        """Of the places without a pod, those that wait for one."""
        enough = [one for one in free if not _is_undersized(job, one)]
        if not enough:
            return
        if job.demand.missing and not job.demand.sets:
            # The Jobs that make the pods were deleted and are being made anew: until they are there, no set is known.
            yield from enough
            return
        beside = []
        for name, left in self.left(job).items():
            own = [one for one in enough if one.set == name]
            yield from own[:left]
            beside += own[left:]
        known = {one.name for one in job.demand.sets}
        beside += [one for one in enough if one.set not in known]
        yield from beside[: job.demand.unseen]

    def left(self, job: Job) -> dict[str, int]:
        """How many pods of each set a job wants beside those that have places or run without one."""
        taken = self._outside(job)
        taken.update(place.set for place in job.places if place.pod)
        return {one.name: max(one.pods - taken[one.name], 0) for one in job.demand.sets}

    def lacks(self, job: Job) -> dict[str, int]:
        """How many pods of each set have no place."""
        has = self._outside(job)
        has.update(place.set for place in job.places)
        return {one.name: max(one.pods - has[one.name], 0) for one in job.demand.sets}

    def outside(self, job: Job) -> Iterator[Object]:
        """The pods of a job that have neither a place nor the gate, and were not told to end. They were created before
        their namespace had a queue, name their node, or lost their gate to somebody else than the queue.

        A job that was suspended has given its places back. Its pods still have their marks, and end soon: they are
        left out.
        """
        for pod in self._snapshot.live_pods(job.uid):
            meta = pod["metadata"]
            ends = "deletionTimestamp" in meta or (job.workload.suspend and is_placed(pod))
            if meta["uid"] not in self.of_pod and gate_index(pod) < 0 and not ends:
                yield pod

    def _outside(self, job: Job) -> Counter[str]:
        """By set, how many pods of a job run on without a place."""
        runs = (pod for pod in self.outside(job) if job.workload.lasts or pod["spec"].get("nodeName"))
        return Counter(own.name for pod in runs if (own := job.demand.set_of(pod)))

    def add(self, job: Job, queue: ClusterQueue, own: str, nodes: list[str], now: int, since: float) -> None:
        """Give a job a place for a pod of a set that waited `since` then on each of these nodes, at the first indexes
        of that set that its nodes do not need any more.
        """
        for node in nodes:
            index = min((one for one in job.freed if job.sets[one] == own), default=len(job.nodes))
            job.nodes[index : index + 1] = [node]
            job.sets[index : index + 1] = [own]
            job.freed.pop(index, None)
            insort(job.places, self._place(job, queue, index, now, since), key=lambda place: place.index)

    def is_usable(self, job: Job, queue: ClusterQueue, place: Place) -> bool:
        """Whether the node of a place takes the place's pod, or while there is none, pods of its set."""
        return queue.is_usable(place.node, self._constraint(job, queue, place))

    def _constraint(self, job: Job, queue: ClusterQueue, place: Place) -> Any:
        """What the pod of a place asks of its node, None for nothing. Admission may have added to what the templates of
        its set say, which counts while there is no pod.
        """
        pod = self._snapshot.pods.get(place.pod)
        if pod is not None:
            return constraints.constraint_of(template_of(pod), queue.has_taints)
        asked = job.asked.sets.get(place.set) if job.asked else None
        return asked.constraint if asked else None

    def leave_lost_nodes(self, job: Job, queue: ClusterQueue, now: int) -> bool:
        """Give the places of a job on nodes that take no pods any more to other nodes, now or as soon as there are
        some; returns whether all have one. Pods that are bound or pinned stay. A node to which a pod of the job was not
        bound in time is left, too, if there is another one now.
        """
        all_have = True
        for place in job.places:
            pod = self._snapshot.pods.get(place.pod)
            if pod is not None and not _is_open(pod):
                continue
            is_usable = self.is_usable(job, queue, place)
            if is_usable and place.node not in job.avoided:
                continue
            others = [one for one in job.places if one is not place]
            own = self._constraint(job, queue, place)
            parts = [own, beside(job, queue, place.set, others), *_none_of(job.avoided)]
            amounts = job.amounts_of(place.set)
            node = queue.another_node(amounts, constraints.together(parts), now, job.end)
            if node:
                job.leaving.append(place.hold)
                place.node, place.hold = node, queue.hold(node, amounts, now, job.end)
                place.amounts = amounts
                job.nodes[place.index] = node
            elif not is_usable:
                all_have = False
        return all_have

    def widen(self, job: Job, queue: ClusterQueue, place: Place, now: int) -> bool:
        """Give a place as much as its pod asks for, which is to be bound; returns whether its node has room for that.
        A pod whose gate its user has taken away, or that a core before this one has, may ask for more than the place
        was made for.
        """
        asks = resources.amounts_of(self._snapshot.pods[place.pod]["spec"])
        more = resources.beyond(asks, place.amounts)
        if not queue.has_room(place.node, more):
            return False
        if more:
            queue.release(place.hold)
            place.amounts = resources.largest([place.amounts, asks])
            place.hold = queue.hold(place.node, place.amounts, now, job.end)
        return True

    def _occupy(self, place: Place, pod: str) -> None:
        place.pod = pod
        self.of_pod[pod] = place
        self.loads[place.node] = None

    def _vacate(self, place: Place) -> None:
        self.of_pod.pop(place.pod, None)
        place.pod, place.beyond = "", {}
        self.loads[place.node] = None

    def give_back(self, job: Job, place: Place, keep: bool = False) -> None:
        """A job has a place no more; `keep`: what that holds is kept until the status tells it."""
        self._vacate(place)
        job.places.remove(place)
        job.freed[place.index] = None
        while job.workload.lasts and len(job.nodes) - 1 in job.freed:
            job.nodes.pop()
            job.sets.pop()
            job.freed.pop(len(job.nodes), None)
        job.leaving.append(place.hold)
        if not keep:
            self.leave(job)

    def leave(self, job: Job) -> None:
        """End the holds of what a job has given back."""
        queue, leaving = self._queues.get(job.queue), job.leaving
        job.leaving = []
        for hold in leaving:
            if queue and hold in queue.holds:
                queue.release(hold)
        self.changed[job.queue] = None

    def forget(self, job: Job) -> None:
        """The queue of a job, and with it all holds, is gone."""
        for place in job.places:
            self._vacate(place)
        job.places, job.leaving, job.is_placed = [], [], False


def _by_index(entry: tuple[str, Object]) -> tuple[int, str]:
    return ordinal_of(entry[1]) or 0, entry[1]["metadata"]["name"]


def beside(job: Job, queue: ClusterQueue, name: str, places: Iterable[Place]) -> Any:
    """The constraint on nodes of a set that follows from other places of its job, None for none."""
    asked, places = job.asked, list(places)
    own = asked.sets.get(name) if asked else None
    if asked is None or own is None:
        return None
    taken = {one.node for one in places if _is_apart(name, own, one.set, asked.sets.get(one.set))}
    parts = _none_of(taken)
    if asked.within:
        parts.append(queue.beside([one.node for one in places], asked.within))
    return constraints.together(parts)


def _none_of(names: Collection[str]) -> list[Any]:
    """The constraint that keeps from some nodes, as a list of one; empty for none."""
    return [{"not": [{"hostlist": sorted(names)}]}] if names else []


def _is_apart(name: str, own: SetRequest, other_name: str, other: SetRequest | None) -> bool:
    """Whether pods of two sets have no node in common."""
    return own.is_apart if name == other_name else bool(own.keeps_apart and other and other.keeps_apart)


def _is_unbound(pod: Object) -> bool:
    """Whether kube-scheduler is still to bind a pod to a node of its own choice. The place that its job may have for it
    is kept until then.
    """
    return gate_index(pod) < 0 and not node_of(pod) and not is_bound_here(pod)


def _is_open(pod: Object) -> bool:
    """Whether it is still for this program to say on which node a pod is."""
    return gate_index(pod) >= 0 or pin.is_to_bind(pod)


def _is_undersized(job: Job, place: Place) -> bool:
    """Whether a place is too small for what is asked for now: templates were changed, or pods are larger than these."""
    return bool(resources.beyond(job.amounts_of(place.set), place.amounts))


def _best(job: Job, free: list[Place], pod: Object) -> Place | None:
    """The place of a pod's set with its ordinal, else the first of its set that has room for it. A pod without the gate
    is not held back any more: what it has beyond its place is counted where it is bound.
    """
    own = job.demand.set_of(pod)
    fits = [one for one in free if one.set == own.name] if own else free
    index, amounts = _index_of(job, own, pod), resources.amounts_of(pod["spec"])
    is_free = gate_index(pod) < 0
    first = [one for one in fits if one.index == index]
    return next((one for one in [*first, *fits] if is_free or not resources.beyond(amounts, one.amounts)), None)


def _grow(job: Job, free: list[Place], uid: str, pod: Object) -> None:
    """Have a job ask for as much for a set of pods as one of them asks for that no place of its set has room for."""
    own = job.demand.set_of(pod)
    if own and any(one.set == own.name for one in free):
        amounts = resources.amounts_of(pod["spec"])
        if resources.beyond(amounts, job.amounts_of(own.name)):
            job.grown[own.name] = uid, resources.largest([amounts, job.amounts_of(own.name)])


def _index_of(job: Job, own: PodSet | None, pod: Object) -> int | None:
    """The index among a job's nodes that is a pod's by its ordinal in its set, None for none."""
    ordinal = ordinal_of(pod, own.per_job if own else 0)
    if own is None or ordinal is None or ordinal < own.first_ordinal:
        return None
    indexes = (index for index, name in enumerate(job.sets) if name == own.name)
    return next(islice(indexes, ordinal - own.first_ordinal, None), None)


def _all_run(job: Job, pods: dict[str, Object]) -> bool:
    running = sum(1 for pod in pods.values() if (pod.get("status") or {}).get("phase") == "Running")
    return 0 < job.demand.pods <= running
