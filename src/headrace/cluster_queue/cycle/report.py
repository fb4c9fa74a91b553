"""What is to be written about a job: its FluxJob and the Events of it, and what makes the job run once that tells its
nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import ceil
from typing import Any

from headrace.k8s.objects.kinds import PODS
from headrace.k8s.runtime.events import Report
from headrace.k8s.runtime.writes import patch_of

from ..admission import gate_index, is_bound_here
from ..model import fluxjobs
from ..model.cluster_queue import ClusterQueue
from ..model.entry import Job, State
from ..model.snapshot import Snapshot, is_held, node_of
from ..names import FLUXJOBS
from ..workloads.workload import value_at
from . import actions, pin
from .assign import Places
from .binding import Binding

Object = dict[str, Any]

# Seconds between two writes of a status in which only a position, an estimate or a count has changed.
STATUS_INTERVAL = 30.0
BEHIND = "waits for the jobs before it"


class Writes:
    """`untold` has by the uid of a job when counts of its pods are to be told that were not worth a write at once, and
    `unbindable` jobs with a pod that is to be bound, and a node that takes none now or has no room for it.
    """

    def __init__(self, snapshot: Snapshot, queues: dict[str, ClusterQueue], places: Places, binding: Binding) -> None:
        self.untold: dict[str, float] = {}
        self.unbindable: dict[str, None] = {}
        self._snapshot = snapshot
        self._queues = queues
        self._places = places
        self._binding = binding

    def forget(self, job: Job) -> None:
        """A job is gone."""
        self.untold.pop(job.uid, None)

    def about(self, job: Job, now: float) -> Iterator[actions.Action]:
        """All that is to be written about a job now, in order."""
        flux, queue = self._snapshot.fluxjobs.get(job.uid), self._queues.get(job.queue)
        reserves = bool(queue and queue.queue.policy.reservations != 0)
        if flux is None:
            yield actions.Create(fluxjobs.made_of(job, reserves))
            return
        if job.is_renewed:
            yield actions.Delete(FLUXJOBS, flux)
            return
        told: Object = flux.get("status") or {}
        if not job.is_claimed and told.get("state") == "Held":
            if not is_held(job.item):
                yield actions.Change(job.workload.kind, job.item, job.workload.held_again(job.item))
                return
            job.is_claimed = True
        body = fluxjobs.changes_of(job, reserves, flux)
        if body:
            # The status is written to the version that comes of this.
            yield actions.Change(FLUXJOBS, flux, body)
            return
        pods = {pod["metadata"]["uid"]: pod for pod in self._snapshot.live_pods(job.uid)}
        wanted = fluxjobs.status_of(job, told, self._counts(job, pods), now)
        is_due = job.is_due or (job.state.has_nodes and now - job.told_at >= STATUS_INTERVAL)
        patch = patch_of(told, wanted)
        self.untold.pop(job.uid, None)
        if _matters(told, wanted) or (is_due and patch):
            yield from _report(job, told, wanted)
            yield actions.Publish(FLUXJOBS, flux, patch)
            job.told_at, job.told_place, job.is_due = now, fluxjobs.place_of(job), False
        else:
            if patch and job.state.has_nodes:
                self.untold[job.uid] = job.told_at + STATUS_INTERVAL
            # A write that was refused told nothing.
            job.told_place = fluxjobs.place_in(told)
            if job.told_place != fluxjobs.place_of(job):
                self._places.changed[job.queue] = None
        if job.state.has_nodes and self.is_told(job):
            yield from self._effects(job, pods, now)

    def is_told(self, job: Job) -> bool:
        """Whether the status says which nodes a job has."""
        told: Object = (self._snapshot.fluxjobs.get(job.uid) or {}).get("status") or {}
        has_nodes = State(told.get("state", "Held")).has_nodes
        return has_nodes and {
            key: told[key] for key in ("nodes", "sets", "freed", "waits") if key in told
        } == fluxjobs.nodes_of(job)

    def _effects(self, job: Job, pods: dict[str, Object], now: float) -> Iterator[actions.Action]:
        """What makes a job run whose nodes are told."""
        workload, queue = job.workload, self._queues.get(job.queue)
        limit = job.seconds if queue and queue.settings.enforce_duration else 0
        # A job without nodes has pods that run outside the queue alone: it has not had its turn yet.
        if job.nodes and (workload.is_suspended(job.item) or is_held(job.item)):
            yield actions.Change(workload.kind, job.item, workload.released(job.item, limit, job.started_at))
        elif workload.deadline and any(gate_index(pods[one.pod]) >= 0 for one in job.places if one.pod in pods):
            # Its user has created it suspended, and unsuspended it: its pods alone were held.
            body = workload.released(job.item, limit, job.started_at)
            if value_at(body, workload.deadline):
                yield actions.Change(workload.kind, job.item, body)
        if limit and not workload.lasts and job.kind_name != PODS.kind:
            # A pod that comes later than others of its job, as one that replaces a lost one, ends with them.
            limit = min(limit, max(ceil(job.end - now), 1))
        for place in job.places:
            pod = pods.get(place.pod)
            if pod is not None and gate_index(pod) >= 0:
                if queue and not self._places.is_usable(job, queue, place):
                    # A pod that is pinned could not go to another node (`Places.leave_lost_nodes`).
                    continue
                give = pin.mark if is_bound_here(pod) else pin.pin
                yield actions.PatchPod(pod, give(pod, place.node, job.jobid, 0 if workload.deadline else limit))
                self._binding.pinned(job, queue, place.pod, now)
            elif pod is not None and queue and pin.is_to_bind(pod):
                if not queue.is_usable(place.node, None) or not self._places.widen(job, queue, place, int(now)):
                    self.unbindable[job.uid] = None
                    continue
                if node_of(pod) != place.node:
                    yield actions.PatchPod(pod, pin.move(pod, place.node))
                yield from pin.bind(pod, place.node)
        yield from self._evictions(job, pods)

    def _evictions(self, job: Job, pods: dict[str, Object]) -> Iterator[actions.Action]:
        """Take pods away that were not bound in time, where their owner makes new ones. A workload none of whose pods
        is bound is suspended, as if by its user, and so waits anew; where some are, the others are left.
        """
        late = [pod for uid, pod in pods.items() if uid in job.late and "deletionTimestamp" not in pod["metadata"]]
        if late and job.workload.suspend and not any(pod["spec"].get("nodeName") for pod in pods.values()):
            if not job.workload.is_suspended(job.item):
                yield actions.Change(job.workload.kind, job.item, job.workload.suspended())
            return
        for pod in late:
            if any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences") or ()):
                yield actions.Delete(PODS, pod)

    def _counts(self, job: Job, pods: dict[str, Object]) -> Object:
        running = sum(1 for pod in pods.values() if (pod.get("status") or {}).get("phase") == "Running")
        placed = sum(1 for place in job.places if place.pod)
        return {"wanted": job.demand.pods, "placed": placed, "running": running} if job.state.has_nodes else {}


def _report(job: Job, told: Object, wanted: Object) -> Iterator[actions.Action]:
    """The Events about a change of state, or of the reason of a job."""
    is_new = told.get("state") != job.state.value
    has_changed = is_new or _without_amounts(told) != _without_amounts(wanted)
    reports = []
    if job.unbound and job.unbound != told.get("reason"):
        reports.append(Report("Warning", "NotBound", job.unbound))
    if not told.get("state") and job.asked and job.asked.left:
        text = f"not planned for, left to kube-scheduler on the node that a pod is given: {', '.join(job.asked.left)}"
        reports.append(Report("Normal", "LeftToScheduler", text))
    if job.state is State.HELD and has_changed:
        reports.append(Report("Normal", "Queued", f"in queue {job.queue}: {job.reason or BEHIND}"))
    elif job.state is State.REFUSED and (is_new or told.get("reason") != job.reason):
        reports.append(Report("Warning", "Refused", job.reason))
    elif job.state is State.RELEASED and is_new:
        reports.append(Report("Normal", "Released", f"on {wanted.get('nodes')}"))
    if job.reason and has_changed and job.state not in (State.HELD, State.REFUSED):
        reports.append(Report("Warning" if job.state is State.FAILED else "Normal", job.state.value, job.reason))
    for report in reports:
        yield actions.Tell(job.workload.kind, job.workload.objects(job.item)[0], told, report)


def _without_amounts(status: Object) -> str:
    """A reason without its amounts, which change all the time."""
    return re.sub(r"\d+", "", str(status.get("reason", "")))


def _matters(told: Object, wanted: Object) -> bool:
    """Whether a status is to be written at once: not if only a position, an estimate or a count has changed."""
    keys = ("state", "reason", "nodes", "sets", "freed", "waits", "jobid", "startedAt", "endedAt")
    return any(told.get(key) != wanted.get(key) for key in keys)
