"""The places of jobs: what each has of which node, which pod has it, and when it is given back.

What is given back is held until the job's status tells it (`Job.leaving`), as a core that begins anew would take it for
the job's until then.
"""

from __future__ import annotations

from typing import Any

from .. import constraints, requests
from ..admission import gate_index
from ..workloads import ordinal_of
from .cluster_queue import ClusterQueue
from .job import Job, Place, State
from .world import World, node_of

Object = dict[str, Any]


class Places:
    """`of_pod` is the place of each pod that has one; `loads` are the nodes on which that has changed since it was
    cleared, and `changed` the queues in which something was given back. `queues` are all, by name.
    """

    def __init__(self, world: World, queues: dict[str, ClusterQueue]) -> None:
        self.of_pod: dict[str, Place] = {}
        self.loads: dict[str, None] = {}
        self.changed: dict[str, None] = {}
        self._world = world
        self._queues = queues

    def settle(self, job: Job, queue: ClusterQueue, now: int) -> None:
        """Give a job's places to its pods, and give back those that no pod will have."""
        pods = {pod["metadata"]["uid"]: pod for pod in self._world.live_pods(job.uid)}
        if not job.is_placed and job.state.has_nodes:
            job.is_placed = True
            job.places = [
                Place(index, node, queue.hold(node, job.amounts, now, job.end), job.amounts, job.queue)
                for index, node in enumerate(job.nodes)
                if index not in job.freed
            ]
        for place in job.places:
            if place.pod and place.pod not in pods:
                self._vacate(place)
        free = [place for place in job.places if not place.pod]
        # Pods that are on a node already have their places there before any other pod.
        for uid, pod in sorted(pods.items(), key=lambda entry: (not node_of(entry[1]), *_by_index(entry))):
            if uid in self.of_pod:
                continue
            node = node_of(pod)
            fits = [one for one in free if one.node == node] if node else free
            found = _best(fits, pod, job.amounts)
            if found is not None:
                free.remove(found)
                self._occupy(found, uid)
        taken = sum(1 for place in job.places if place.pod) + self.outside(job)
        left = max(job.wish.pods - taken, 0)
        # Where the request has changed, a place may be too small for what is asked for now.
        kept = [place for place in free if not requests.beyond(job.amounts, place.amounts)][:left]
        for place in [place for place in free if place not in kept]:
            self.give_back(job, place, keep=job.state.has_nodes)
        if job.state is State.RELEASED and _all_run(job, pods):
            job.state = State.RUNNING

    def outside(self, job: Job) -> int:
        """The pods of a job that run without a place, as they were there before its namespace had a queue."""
        if not job.workload.lasts:
            return 0
        pods = self._world.live_pods(job.uid)
        return sum(1 for pod in pods if pod["metadata"]["uid"] not in self.of_pod and gate_index(pod) < 0)

    def add(self, job: Job, queue: ClusterQueue, nodes: list[str], now: int) -> None:
        """Give a job a place on each of these nodes, at the first indexes that its nodes do not need any more."""
        for node in nodes:
            index = min(job.freed, default=len(job.nodes))
            job.nodes[index : index + 1] = [node]
            job.freed.discard(index)
            job.places.append(Place(index, node, queue.hold(node, job.amounts, now, job.end), job.amounts, job.queue))
        job.places.sort(key=lambda place: place.index)

    def leave_lost_nodes(self, job: Job, queue: ClusterQueue, now: int) -> bool:
        """Give the places of a job on nodes that take no pods any more to other nodes, now or as soon as there are
        some; returns whether all have one. Pods that are bound or pinned stay.
        """
        all_have = True
        for place in job.places:
            pod = self._world.pods.get(place.pod)
            constraint = job.asked.constraint if job.asked else None
            if queue.is_usable(place.node, constraint) or (pod is not None and gate_index(pod) < 0):
                continue
            if job.asked and job.asked.is_apart:
                constraint = constraints.together([constraint, {"not": [{"hostlist": job.nodes}]}])
            if job.asked and job.asked.within:
                others = [one.node for one in job.places if one is not place]
                constraint = constraints.together([constraint, queue.beside(others, job.asked.within)])
            node = queue.another_node(job.amounts, constraint, now, job.end)
            if node:
                job.leaving.append(place.hold)
                place.node, place.hold = node, queue.hold(node, job.amounts, now, job.end)
                place.amounts = job.amounts
                job.nodes[place.index] = node
            else:
                all_have = False
        return all_have

    def _occupy(self, place: Place, pod: str) -> None:
        place.pod = pod
        self.of_pod[pod] = place
        self.loads[place.node] = None

    def _vacate(self, place: Place) -> None:
        self.of_pod.pop(place.pod, None)
        place.pod = ""
        self.loads[place.node] = None

    def give_back(self, job: Job, place: Place, keep: bool = False) -> None:
        """A job has a place no more; `keep`: what that holds is kept until the status tells it."""
        self._vacate(place)
        job.places.remove(place)
        job.freed.add(place.index)
        while job.workload.lasts and len(job.nodes) - 1 in job.freed:
            job.nodes.pop()
            job.freed.discard(len(job.nodes))
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


def _best(free: list[Place], pod: Object, largest: requests.Amounts) -> Place | None:
    """The place with the ordinal of a pod, else the first that has room for it."""
    index, amounts = ordinal_of(pod), requests.amounts_of(pod["spec"])
    own = next((one for one in free if one.index == index), None)
    for place in [own, *free] if own else free:
        if not requests.beyond(amounts, place.amounts) or place.amounts == largest:
            return place
    return None


def _all_run(job: Job, pods: dict[str, Object]) -> bool:
    running = sum(1 for pod in pods.values() if (pod.get("status") or {}).get("phase") == "Running")
    return 0 < job.wish.pods <= running
