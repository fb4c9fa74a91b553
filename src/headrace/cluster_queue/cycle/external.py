"""Jobs of other schedulers, matched through gRPC: their holds on nodes. Pure.

The FluxJob of such a job belongs to no object and is in the namespace of the queue itself. One in another namespace is
ignored, because a user may have created it. Its `spec.resources` says what the job has on each node and, for a
reservation, from when. So one write publishes the job, and a restarted process holds the same. The job keeps its
resources until the FluxJob is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from math import inf
from typing import Any

from headrace.formats.spec.hostlist import Hostlist
from headrace.k8s.objects.timestamps import seconds_of, text_of
from headrace.k8s.runtime.writes import patch_of
from headrace.sched.graph.request import JobRequest
from headrace.sched.graph.selection import Selection
from headrace.sched.queueing.why import no_match

from ..model import constraints, nodes, resources
from ..model.cluster_queue import ClusterQueue
from ..model.entry import State
from ..model.fluxjobs import jobid_of
from ..model.quota import JOB
from ..model.request import Refusal
from ..names import EXTERNAL, FLUXJOBS, JOBID
from . import actions
from .context import Context

Object = dict[str, Any]
# The annotation of a group's FluxJob: the number of pods in the group.
NUMBER = "fluxqueue/group-size"
Amounts = Mapping[str, resources.Amounts]
"""What a job has of nodes, by their names."""


def made_of(
    jobid: int, namespace: str, queue: str, amounts: Amounts, jobspec: Object, duration: int, start: int = 0
) -> Object:
    """The FluxJob of a job with these amounts.

    The job lasts `duration` seconds (0: not known) from `start` (seconds since the epoch), or from its creation if that
    is 0.
    """
    name = f"match-{jobid}"
    given = {"nodes": [{"name": node, "amounts": dict(of)} for node, of in amounts.items()]}
    return {
        "apiVersion": FLUXJOBS.api_version,
        "kind": FLUXJOBS.kind,
        "metadata": {"name": f"{name}-external", "namespace": namespace, "labels": {JOBID: str(jobid)}},
        "spec": {
            "jobspec": json.dumps(jobspec, separators=(",", ":")),
            "type": EXTERNAL,
            "name": name,
            "duration": duration,
            "reservation": start > 0,
            "nodes": len(amounts),
            "queue": queue,
            "resources": {**given, "start": text_of(start)} if start else given,
        },
    }


def start_of(fluxjob: Object) -> float:
    """The time from which a job has its resources (seconds since the epoch)."""
    return reserved_start(fluxjob) or seconds_of(fluxjob["metadata"]["creationTimestamp"])


def reserved_start(fluxjob: Object) -> float:
    """The start time of a reservation; 0 for a job that began at once, and for an invalid time."""
    text = (fluxjob["spec"].get("resources") or {}).get("start")
    try:
        return max(seconds_of(text), 0) if isinstance(text, str) else 0
    except (ValueError, OverflowError):
        return 0


def status_of(fluxjob: Object, now: float) -> Object:
    """The status of such a FluxJob. Before a reservation starts, `reason` names its nodes."""
    hosts = Hostlist(node for node, _ in amounts_of(fluxjob)).encode()
    start, times = start_of(fluxjob), {"queuedAt": fluxjob["metadata"]["creationTimestamp"]}
    head = {"jobid": str(jobid_of(fluxjob)), **times}
    if reserved_start(fluxjob) > now:
        planned = {"estimatedStart": text_of(start), "reason": f"reserved on {hosts}"}
        return {"submitStatus": "statusNew", "state": State.HELD.value, **head, **planned}
    running = {"nodes": hosts, "startedAt": text_of(start)}
    return {"submitStatus": "statusSubmit", "state": State.RUNNING.value, **head, **running}


class Externals:
    """The holds of external jobs in the queues, by job id.

    They count against the quota of `namespace`. `changed` are the nodes of jobs that were added or removed since it was
    cleared.
    """

    def __init__(self, context: Context, namespace: str) -> None:
        self.changed: dict[str, None] = {}
        self._context = context
        self._namespace = namespace
        self._holds: dict[int, tuple[ClusterQueue, list[int]]] = {}
        # The amounts that each job has of nodes: by job id, and by node and job id.
        self._nodes: dict[int, Amounts] = {}
        self._on: dict[str, dict[int, resources.Amounts]] = {}
        # Jobs whose FluxJob has not been observed yet.
        self._new: set[int] = set()
        # The FluxJob versions for which a `Running` status was already requested.
        self._asked: dict[int, str] = {}

    def _give(self, jobid: int, queue: ClusterQueue, amounts: Amounts, now: int, start: int, end: int) -> None:
        """Hold amounts of nodes for a new job from `start` until `end` (0: without an end)."""
        self._new.add(jobid)
        self._place(jobid, amounts)
        self._hold(jobid, queue, amounts, now, start, end)

    def match(
        self, name: str, jobspec: Object, request: JobRequest, now: float, reserves: bool
    ) -> tuple[int, Selection, int]:
        """Give a new job of another scheduler resources of a queue.

        The job starts now or, with `reserves`, as soon as it fits. Returns its id, its resources and its start time
        (seconds).

        Raises Refusal if there is no such queue, no room, no known time at which it fits, or if it exceeds the quota of
        the queue's own namespace.
        """
        queue = self._context.queues.get(name)
        if queue is None:
            raise Refusal(f"there is no FluxQueue {name}")
        if queue.has_taints and request.constraint is None and not request.sets:
            # The tolerations of the other scheduler's pods are not known. So a match gets nodes without taints, unless
            # its jobspec has a constraint.
            request = JobRequest(request.resources, request.duration, constraints.constraint_of({}))
        found = queue.earliest(request, int(now), reserves)
        if found.selection is None:
            raise Refusal(no_match(queue.scheduler, jobspec, request, int(now), reserves))
        amounts = nodes.amounts_in(found.selection)
        if excess := self.excess(queue, amounts):
            raise Refusal(f"no room now: {excess}")
        self._context.ids.high_water = max(self._context.ids.high_water, *self._context.snapshot.externals, 0)
        jobid = self._context.ids.next(int(now * 1000))
        end = found.start + request.duration if request.duration else 0
        self._give(jobid, queue, amounts, int(now), found.start, end)
        self._context.changed[name] = None
        return jobid, found.selection, found.start

    def excess(self, queue: ClusterQueue, amounts: Amounts) -> str:
        """The quota limits that a new job with these amounts would exceed, and by how much; "" for none."""
        account = queue.accounts.get(self._namespace)
        return account.excess_of(_counted(amounts)) if account else ""

    def is_new(self, jobid: int) -> bool:
        """Whether a job was given resources and its FluxJob has not been observed yet."""
        return jobid in self._new

    def observe(self, fluxjob: Object) -> None:
        """Note that a FluxJob exists or existed: its job now holds resources only while it exists (`settle`)."""
        self._new.discard(jobid_of(fluxjob))

    def drop(self, jobid: int) -> None:
        """Release all holds of a job. Unknown jobs are ignored."""
        self._new.discard(jobid)
        self._asked.pop(jobid, None)
        queue, holds = self._holds.pop(jobid, (None, []))
        for hold in holds:
            if queue:
                queue.release(hold)
        if queue and (account := queue.accounts.get(self._namespace)):
            account.forget(jobid)
        for node in self._nodes.pop(jobid, ()):
            self._on[node].pop(jobid)
            if not self._on[node]:
                del self._on[node]
            self.changed[node] = None

    def elsewhere(self, node: str, queue: ClusterQueue | None) -> Iterator[resources.Amounts]:
        """The amounts of a node held by jobs of other queues, from which the node has come to this queue."""
        for jobid, amounts in self._on.get(node, {}).items():
            if jobid not in self._holds or self._holds[jobid][0] is not queue:
                yield amounts

    def _place(self, jobid: int, amounts: Amounts) -> None:
        self._nodes[jobid] = amounts
        for node, of in amounts.items():
            self._on.setdefault(node, {})[jobid] = of
            self.changed[node] = None

    def settle(self, fluxjobs: Mapping[int, Object], now: int) -> None:
        """Update the holds from the existing FluxJobs and the current queues."""
        for jobid, item in fluxjobs.items():
            queue = self._context.queues.get(item["spec"].get("queue", ""))
            held = self._holds.get(jobid)
            if jobid not in self._nodes:
                self._place(jobid, dict(amounts_of(item)))
            if held and held[0] is queue:
                self._account(jobid, queue)
                continue
            self._holds.pop(jobid, None)
            if queue:
                duration = item["spec"].get("duration", 0)
                end = start_of(item) + duration if duration else 0
                self._hold(jobid, queue, self._nodes[jobid], now, reserved_start(item), end)
        for jobid in [one for one in self._nodes if one not in fluxjobs and one not in self._new]:
            self.drop(jobid)

    def _hold(self, jobid: int, queue: ClusterQueue, amounts: Amounts, now: int, start: float, end: float) -> None:
        self._holds[jobid] = queue, [queue.hold(node, of, now, end, start) for node, of in amounts.items()]
        self._account(jobid, queue)

    def _account(self, jobid: int, queue: ClusterQueue) -> None:
        """Enter a job into its account; the queue's quotas may have changed."""
        if account := queue.accounts.get(self._namespace):
            account.run(jobid, _counted(self._nodes[jobid]))

    def begun(
        self, fluxjobs: Mapping[int, Object], touched: Container[str], now: float
    ) -> Iterator[tuple[str, tuple[actions.Action, ...]]]:
        """Mark the jobs whose reserved time has come as running; yields the writes by object name.

        The write is requested once for each version of a FluxJob, and again if its name is `touched`.
        """
        for jobid, item in fluxjobs.items():
            meta = item["metadata"]
            about, version = f"{meta['namespace']}/{meta['name']}", meta["resourceVersion"]
            is_due = _waits(item) and reserved_start(item) <= now
            if is_due and (about in touched or self._asked.get(jobid) != version):
                self._asked[jobid] = version
                patch = patch_of(item.get("status") or {}, status_of(item, now))
                yield about, (actions.Publish(FLUXJOBS, item, patch),)

    def next_start(self, fluxjobs: Mapping[int, Object], now: float) -> float:
        """The start of the next reserved job (seconds since the epoch); inf if there is none."""
        starts = (reserved_start(item) for item in fluxjobs.values() if _waits(item))
        return min((start for start in starts if start > now), default=inf)


def _counted(amounts: Amounts) -> resources.Amounts:
    """The amounts of a job on all nodes, and the job itself as one job."""
    return {**resources.total(amounts.values()), JOB: 1}


def _waits(fluxjob: Object) -> bool:
    """Whether a job was reserved and its status does not say yet that it runs."""
    return reserved_start(fluxjob) > 0 and (fluxjob.get("status") or {}).get("state") != State.RUNNING.value


def amounts_of(fluxjob: Object) -> Iterator[tuple[str, resources.Amounts]]:
    """The amounts on each node according to a FluxJob. Invalid entries are skipped: users may write them."""
    found = (fluxjob["spec"].get("resources") or {}).get("nodes")
    for one in found if isinstance(found, list) else ():
        amounts = one.get("amounts") if isinstance(one, dict) else None
        if isinstance(amounts, dict) and all(type(of) is int and of >= 0 for of in amounts.values()):
            yield str(one.get("name")), {kind: of for kind, of in amounts.items() if of}
