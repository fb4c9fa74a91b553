"""Jobs of other schedulers, which were matched by gRPC: what they have of the nodes. Pure.

The FluxJob of such a job belongs to no object, and is in the queue's own namespace. One in another namespace is
ignored, as somebody else has made it. Its `spec.resources` says what the job has of each node, and from when on if it
was reserved for later, so that one write makes it known, and a core that begins anew holds the same. It has that until
the FluxJob is gone.
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
# The annotation of the FluxJob of a group of pods: how many they are.
NUMBER = "fluxqueue/group-size"
Amounts = Mapping[str, resources.Amounts]
"""What a job has of nodes, by their names."""


def made_of(
    jobid: int, namespace: str, queue: str, amounts: Amounts, jobspec: Object, duration: int, start: int = 0
) -> Object:
    """The FluxJob of a job with these amounts, for `duration` seconds (0: not known) from its creation on, or from
    `start` on (seconds since the epoch), if that is not 0.
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
    """When a job's time begins (seconds since the epoch)."""
    return reserved_start(fluxjob) or seconds_of(fluxjob["metadata"]["creationTimestamp"])


def reserved_start(fluxjob: Object) -> float:
    """The time for which a job was reserved; 0 for one that began at once, and for what is no time, as somebody may
    have written.
    """
    text = (fluxjob["spec"].get("resources") or {}).get("start")
    try:
        return max(seconds_of(text), 0) if isinstance(text, str) else 0
    except (ValueError, OverflowError):
        return 0


def status_of(fluxjob: Object, now: float) -> Object:
    """The status of such a FluxJob. While its time is to come, its nodes are those of its `reason`."""
    hosts = Hostlist(node for node, _ in amounts_of(fluxjob)).encode()
    start, times = start_of(fluxjob), {"queuedAt": fluxjob["metadata"]["creationTimestamp"]}
    head = {"jobid": str(jobid_of(fluxjob)), **times}
    if reserved_start(fluxjob) > now:
        planned = {"estimatedStart": text_of(start), "reason": f"reserved on {hosts}"}
        return {"submitStatus": "statusNew", "state": State.HELD.value, **head, **planned}
    running = {"nodes": hosts, "startedAt": text_of(start)}
    return {"submitStatus": "statusSubmit", "state": State.RUNNING.value, **head, **running}


class Externals:
    """The holds of external jobs in the queues, by job id, which count against the quota of their `namespace`.
    `changed` are the nodes of jobs that have come or gone since it was cleared.
    """

    def __init__(self, context: Context, namespace: str) -> None:
        self.changed: dict[str, None] = {}
        self._context = context
        self._namespace = namespace
        self._holds: dict[int, tuple[ClusterQueue, list[int]]] = {}
        # Amounts of nodes that each job has: by job id, and by node and job id.
        self._nodes: dict[int, Amounts] = {}
        self._on: dict[str, dict[int, resources.Amounts]] = {}
        # Jobs whose FluxJobs have not been observed yet.
        self._new: set[int] = set()
        # The versions of the FluxJobs for which was asked to say that they run.
        self._asked: dict[int, str] = {}

    def _give(self, jobid: int, queue: ClusterQueue, amounts: Amounts, now: int, start: int, end: int) -> None:
        """A new job holds amounts of nodes, from a time on to another one (0: for ever)."""
        self._new.add(jobid)
        self._place(jobid, amounts)
        self._hold(jobid, queue, amounts, now, start, end)

    def match(
        self, name: str, jobspec: Object, request: JobRequest, now: float, reserves: bool
    ) -> tuple[int, Selection, int]:
        """Give resources of a queue to a new job of another scheduler now or, if it `reserves`, at the
        earliest time at which it fits; returns its id, what it has, and from which time on (seconds).

        Raises Refusal where there is no such queue, no room, or no such time that is known, and for what is over the
        quota of the queue's own namespace.
        """
        queue = self._context.queues.get(name)
        if queue is None:
            raise Refusal(f"there is no FluxQueue {name}")
        if queue.has_taints and request.constraint is None and not request.sets:
            # Nobody says which taints the other scheduler's pods tolerate. So a match gets nodes without taints, unless
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
        """Which limits of the quota a new job with these amounts would be over, and by how much; "" for none."""
        account = queue.accounts.get(self._namespace)
        return account.excess_of(_counted(amounts)) if account else ""

    def is_new(self, jobid: int) -> bool:
        """Whether the FluxJob of a job that was given resources has not been observed yet."""
        return jobid in self._new

    def observe(self, fluxjob: Object) -> None:
        """A FluxJob is there, or has been: from now on its job holds something as long as it is there (`settle`)."""
        self._new.discard(jobid_of(fluxjob))

    def drop(self, jobid: int) -> None:
        """A job holds nothing any more; unknown ones are ignored."""
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
        """What jobs have of a node that has come to this queue, and is not of theirs any more."""
        for jobid, amounts in self._on.get(node, {}).items():
            if jobid not in self._holds or self._holds[jobid][0] is not queue:
                yield amounts

    def _place(self, jobid: int, amounts: Amounts) -> None:
        self._nodes[jobid] = amounts
        for node, of in amounts.items():
            self._on.setdefault(node, {})[jobid] = of
            self.changed[node] = None

    def settle(self, fluxjobs: Mapping[int, Object], now: int) -> None:
        """Hold what the FluxJobs that there are say, in the queues as they are now."""
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
        """A queue may have other quotas than before."""
        if account := queue.accounts.get(self._namespace):
            account.run(jobid, _counted(self._nodes[jobid]))

    def begun(
        self, fluxjobs: Mapping[int, Object], touched: Container[str], now: float
    ) -> Iterator[tuple[str, tuple[actions.Action, ...]]]:
        """Say of the jobs whose time has come that they run: what to write, by the name of what it is about. It is
        asked for once for each version of a FluxJob, and again if its name is `touched`.
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
        """When the next job begins; inf for none."""
        starts = (reserved_start(item) for item in fluxjobs.values() if _waits(item))
        return min((start for start in starts if start > now), default=inf)


def _counted(amounts: Amounts) -> resources.Amounts:
    """What a job has of all nodes, and itself as one job."""
    return {**resources.total(amounts.values()), JOB: 1}


def _waits(fluxjob: Object) -> bool:
    """Whether a job was reserved, and its status does not say that it runs."""
    return reserved_start(fluxjob) > 0 and (fluxjob.get("status") or {}).get("state") != State.RUNNING.value


def amounts_of(fluxjob: Object) -> Iterator[tuple[str, resources.Amounts]]:
    """What a FluxJob has of nodes; entries that are none, as somebody may have written, are left out."""
    found = (fluxjob["spec"].get("resources") or {}).get("nodes")
    for one in found if isinstance(found, list) else ():
        amounts = one.get("amounts") if isinstance(one, dict) else None
        if isinstance(amounts, dict) and all(type(of) is int and of >= 0 for of in amounts.values()):
            yield str(one.get("name")), {kind: of for kind, of in amounts.items() if of}
