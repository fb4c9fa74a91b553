"""The entry of a workload, restored from its FluxJob, or from its pods if the FluxJob was deleted.

So a restarted process continues from the objects of the cluster.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.jobid import TIMESTAMP_SHIFT
from headrace.k8s.objects.timestamps import seconds_of

from ..admission import gate_index
from ..model import fluxjobs
from ..model.assignment import Assignment
from ..model.demand import Demand
from ..model.entry import Backlog, Entry, Published, State, Status
from ..model.fluxjobs import jobid_in, jobid_of, moment_of
from ..model.snapshot import Snapshot, is_held, is_placed, node_of
from .binding import NOT_BOUND
from .context import EPOCH, Context

Object = dict[str, Any]


def enter(context: Context, uid: str, demand: Demand, now: float) -> Entry:
    """The job of a workload, from its FluxJob, or from its pods if that was deleted; else a new job."""
    snapshot = context.snapshot
    workload, item = snapshot.workloads[uid]
    meta = item["metadata"]
    flux = snapshot.fluxjobs.get(uid) or {}
    published = flux.get("status") or {}
    reason = published.get("reason", "")
    placed = [pod for pod in snapshot.live_pods(uid) if is_placed(pod)]
    jobid = _known_id(context, flux, placed, now)
    context.ids.high_water = max(context.ids.high_water, jobid)
    status = Status(
        queued_at=moment_of(published.get("queuedAt")) or _came_at(snapshot, uid),
        state=State(published.get("state", "Held")),
        reason="" if reason.startswith(NOT_BOUND) else reason,
        unbound=reason if reason.startswith(NOT_BOUND) else "",
        started_at=moment_of(published.get("startedAt")),
        ended_at=moment_of(published.get("endedAt")),
    )
    first = demand.sets[0].name if demand.sets else ""
    nodes = list(Hostlist.parse(published.get("nodes", "")))
    sets = fluxjobs.sets_in(published, len(nodes), first)
    # A user may have written the annotation that assigns a pod to a node, but users cannot bind a pod.
    bound = [pod for pod in placed if pod["spec"].get("nodeName")]
    if not published and bound:
        status, nodes = replace(status, state=State.RELEASED, started_at=now), [node_of(pod) for pod in bound]
        sets = [own.name if own else first for own in map(demand.set_of, bound)]
    entry = Entry(
        uid=uid,
        workload=workload,
        item=item,
        demand=demand,
        jobid=jobid or context.ids.next(int(now * 1000)),
        queue=flux.get("spec", {}).get("queue") or snapshot.queue_of(meta["namespace"]),
        status=status,
        assignment=Assignment(tuple(nodes), tuple(sets), frozenset(Idset.parse(published.get("freed", "")))),
        backlog=Backlog(fluxjobs.waits_in(published)),
        published=Published(now, fluxjobs.forecast_in(published)),
    )
    context.entries[uid] = context.by_part[entry.jobid] = entry
    return entry


def _came_at(snapshot: Snapshot, uid: str) -> float:
    """The time at which a workload came to its queue (seconds since the epoch).

    This is its creation, unless its user kept it from creating pods until later, or it had pods before its namespace
    had a queue.
    """
    workload, item = snapshot.workloads[uid]
    pods = list(snapshot.live_pods(uid))
    is_late = (workload.suspend and not is_held(item)) or any(gate_index(pod) < 0 for pod in pods)
    made = [seconds_of(pod["metadata"]["creationTimestamp"]) for pod in pods if gate_index(pod) >= 0]
    created = seconds_of(item["metadata"]["creationTimestamp"])
    return max(created, min(made)) if is_late and made else created


def _known_id(context: Context, flux: Object, placed: list[Object], now: float) -> int:
    """The job id of a workload, from its FluxJob or its pods; 0 for none.

    Users may write the labels of pods. So an id that another job has is ignored, and so is an id of a future time: all
    new ids would follow it.
    """
    newest = (int(now * 1000) - EPOCH + 1) << TIMESTAMP_SHIFT
    published = [jobid_in(pod) for pod in placed]
    known = [jobid_of(flux) if flux else 0, *(one for one in published if one < newest)]
    return next((one for one in known if one and one not in context.by_part), 0)
