"""The cluster queue as a state machine: `Core.step` takes what has changed and the time, and returns what to write.

A job's nodes are written into the status of its FluxJob before anything else happens, and all effects follow from that
status as it is observed: the object is unsuspended, its pods are pinned, or ungated and, when that is observed, bound.
So a core that begins anew from the objects of the cluster goes on where the one before has ended, at whichever write
that was.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from math import inf
from typing import Any

from msgspec import Struct

from headrace.formats.spec.hostlist import Hostlist
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.jobid import TIMESTAMP_SHIFT, FluidGenerator
from headrace.k8s.objects.kinds import PODS
from headrace.k8s.objects.timestamps import seconds_of
from headrace.k8s.runtime.writes import patch_of
from headrace.sched.graph.request import JobRequest, RequestError
from headrace.sched.graph.selection import Selection
from headrace.sched.queueing.queue import Planned, Refused, Started
from headrace.sched.queueing.why import never, no_match, while_down

from ..admission import gate_index, is_skipped
from ..crd import Settings, WrongQueueError, settings_of
from ..model import constraints, fluxjobs, nodes, resources
from ..model.cluster_queue import ClusterQueue
from ..model.demand import Demand, PodSet, Request
from ..model.entry import WINDOW, Job, State, growing, parts_of, started, waits_again, waits_of
from ..model.fluxjobs import is_external, jobid_in, jobid_of, moment_of
from ..model.queue_nodes import QueueNodes, divided
from ..model.quota import Account
from ..model.request import (
    Refusal,
    check_marks,
    check_placement,
    check_priority,
    claims_of,
    jobspec_of,
    marks_of,
    request_for,
    request_of,
)
from ..model.snapshot import (
    Change,
    Snapshot,
    Touched,
    is_held,
    is_live,
    is_placed,
    lasts_for_ever,
    node_of,
    workload_of,
)
from ..names import FLUXJOBS, FLUXQUEUES, HOLD
from ..workloads import group
from . import actions
from .assign import Places, beside
from .binding import NOT_BOUND, Binding
from .chronicle import Chronicle, Record
from .external import Externals
from .refresh import Refresh
from .report import Writes
from .unmanaged import Unmanaged

Object = dict[str, Any]

# How far (seconds) the clock may fall behind the last step without the queues beginning anew: it is held meanwhile.
_CLOCK_SLACK = 1.0
# How many times one step has a queue start what the starts before have put in front of it.
_ROUNDS = 8
OUTSIDE = (
    "it runs outside the queue: its pods have no gate, as they name their node, have a label by which they are left "
    "alone, or somebody has taken the gate away"
)
# The most characters of a reason that repeats what a user has written: the store has reasons in keys, whose size
# PostgreSQL limits.
_LONGEST_REASON = 1000
NO_PODS = "it asks for no pods"
STRANDED = "a place is on a node that does not take its pod, and no other that does has room"
# The time of the first job id, in milliseconds: 2025-01-01. Ids last for 35 years from then on.
_EPOCH = 1_735_689_600_000


class Steps(Struct, frozen=True):
    """The writes by the uid of their workload (or the name of their FluxQueue), each in order, and the time of the next
    step if nothing changes (seconds since the epoch). `records` are what has happened, for the store; `defects` what
    went wrong, with the uid of the workload of which nothing else was done in this step, or the name of a node that is
    not used.
    """

    writes: dict[str, tuple[actions.Action, ...]]
    wake_at: float
    records: tuple[Record, ...] = ()
    defects: tuple[tuple[str, Exception], ...] = ()


class Core:
    """All queues of a cluster; `namespace` is the queue's own."""

    def __init__(self, namespace: str) -> None:
        self.snapshot = Snapshot(namespace)
        self.chronicle = Chronicle()
        self.queues: dict[str, ClusterQueue] = {}
        self.externals = Externals(self.queues, namespace)
        self._asked_again: dict[str, None] = {}
        self._ids = FluidGenerator(epoch_ms=_EPOCH)
        # Ids of parts of jobs in front of a graph. Those of jobs are smaller: of one second, a job goes before what
        # others ask for beside their first part.
        self._parts = count(1 << 63)
        self._defects: list[tuple[str, Exception]] = []
        self._begin(0)

    def _begin(self, now: float) -> None:
        """Know of no queue and no job, as a core does that has not seen the cluster yet."""
        self._stepped_at = now
        self.jobs: dict[str, Job] = {}
        self._jobs_by_id: dict[int, Job] = {}
        # Jobs that stand in front of a graph with several parts, by uid.
        self._in_parts: dict[str, Job] = {}
        self.queues.clear()
        self._queue_nodes: dict[str, QueueNodes] = {}
        self.places = Places(self.snapshot, self.queues)
        # By node, the queue and the hold of what pods without a place have of it, and how much that is.
        self._foreign: dict[str, tuple[ClusterQueue, int, resources.Amounts]] = {}
        self.refresh = Refresh(now, self.queues, self.places, self._jobs_by_id, self._in_parts)
        # Jobs with a place on a node that does not take its pod, and no other node to move it to.
        self._stranded: dict[str, None] = {}
        self.binding = Binding(self.snapshot)
        self.writes = Writes(self.snapshot, self.queues, self.places, self.binding)
        self.unmanaged = Unmanaged(self.snapshot, self.queues)

    def step(self, changes: Iterable[Change], now: float) -> Steps:
        """What to do after some changes. Writes that are asked for and not seen done are asked for again when what they
        are about changes, or is named by `touch`.
        """
        touched = self._observe(list(changes), now)
        if now < self._stepped_at - _CLOCK_SLACK:
            # The clock was set back. What is planned for the time from which it came would be kept until then.
            self._begin(now)
            touched = self.snapshot.everything()
        self._stepped_at = now = max(now, self._stepped_at)
        self._touched, self.places.loads = touched.workloads, touched.loads
        self._touched.update({**self._stranded, **self.writes.unbindable, **self.unmanaged.unbindable})
        self.writes.unbindable.clear()
        self.unmanaged.unbindable.clear()
        self._take_due(now)
        for queue in self.queues.values():
            queue.queue.advance(int(now))
        writes: dict[str, tuple[actions.Action, ...]] = {}
        if touched.queues or touched.nodes:
            writes.update(self._review_nodes(touched.nodes, touched.queues, int(now)))
        for uid in sorted(touched.workloads, key=self._order):
            with self._contained(uid):
                self._review(uid, now)
        self.externals.settle(self.snapshot.externals, int(now))
        self.places.loads.update(self.externals.changed)
        self.externals.changed.clear()
        self.unmanaged.settle()
        for node in self.places.loads:
            self._count_foreign(node, int(now))
        # By now all that jobs and others have is entered.
        for uid in [*self._stranded, *self._touched]:
            with self._contained(uid):
                self._leave_lost_nodes(uid, int(now))
        for uid in self._touched:
            if uid in self.jobs:
                with self._contained(uid):
                    self._account(self.jobs[uid])
        goes_on = [self._serve(name, now) for name in self.queues]
        self.refresh.forget_positions()
        if now >= self.refresh.at:
            self._touched.update({job.uid: None for job in self.refresh.look(now)})
        for uid in self._touched:
            with self._contained(uid):
                job = self.jobs.get(uid)
                if job and job.is_submitted:
                    review = self.refresh.explain_again if job.position else self.refresh.line_up
                    review(job, int(now))
                found = tuple(self.writes.about(job, now) if job else self._without_job(uid, now))
                if found:
                    writes[uid] = found
        writes.update(self.externals.begun(self.snapshot.externals, touched.workloads, now))
        starts = [start for queue in self.queues.values() if (start := queue.queue.next_start()) is not None]
        wake_at = min(
            [
                *starts,
                *self.binding.due.values(),
                *self.writes.untold.values(),
                *self.refresh.first_estimates.values(),
                self.refresh.at if self.refresh.is_due else inf,
                self.externals.next_start(self.snapshot.externals, now),
                now if any(goes_on) or self._asked_again else inf,
            ]
        )
        defects, self._defects = self._defects, []
        return Steps(writes, wake_at, self.chronicle.take(), tuple(defects))

    def _without_job(self, uid: str, now: float) -> Iterator[actions.Action]:
        """What is to be written about what is no job: a FluxJob that has lost its object, or an object left alone."""
        if orphan := self.snapshot.orphans.get(uid):
            yield actions.Delete(FLUXJOBS, orphan)
        yield from self.unmanaged.about(uid, now)

    @contextmanager
    def _contained(self, uid: str) -> Iterator[None]:
        """Keep from all others what goes wrong with one workload: what its users, or an administrator who edits its
        FluxJob, have written may be of a form that nobody has thought of. It has no part in the order until it changes.
        """
        try:
            yield
        except Exception as exc:
            self._defects.append((uid, exc))
            if uid in self.jobs:
                self._withdraw(self.jobs[uid])

    def _observe(self, changes: list[Change], now: float) -> Touched:
        """Take changes in; returns what they and calls of `touch` are about."""
        touched = self.snapshot.apply(changes)
        for change in changes:
            if change.kind == FLUXJOBS and is_external(change.item):
                if not self.snapshot.is_own(change.item):
                    continue
                self.externals.observe(change.item)
                self.chronicle.see_external(change.item, change.gone, now)
            elif change.kind == FLUXJOBS and not change.gone and (uid := workload_of(change.item)):
                with self._contained(uid):
                    self.chronicle.see(uid, change.item, now)
        for uid, job in self.jobs.items() if touched.claims else ():
            # A volume of another form is a matter of the review of its workload.
            with suppress(Exception):
                if any(one in touched.claims for one in claims_of(job)):
                    touched.workloads[uid] = None
        for about in self._asked_again:
            (touched.queues if about in self.snapshot.queues else touched.workloads)[about] = None
        self._asked_again = {}
        return touched

    def _take_due(self, now: float) -> None:
        """Have this step look at jobs and queues for which a time has come."""
        for times in (self.binding.due, self.writes.untold):
            self._touched.update({uid: None for uid, at in times.items() if at <= now})
        # A job runs beyond its duration where the time of an estimate comes and none has started.
        first = self.refresh.first_estimates
        for name in [name for name, at in first.items() if at <= now]:
            del first[name]
            self.places.changed[name] = None

    def touch(self, about: str) -> None:
        """Have the next step ask again for what is to be written about a workload (its uid) or a FluxQueue (its name).

        No change stands for that: one with the object as the last step has seen it would hide a newer one that waits.
        """
        self._asked_again[about] = None

    def give(
        self, name: str, jobspec: Object, request: JobRequest, now: float, reserves: bool
    ) -> tuple[int, Selection, int]:
        """Give resources of a queue to a new job of another scheduler (`external`), now or, if it `reserves`, at the
        earliest time at which it fits; returns its id, what it has, and from which time on (seconds).

        Raises Refusal where there is no such queue, no room, or no such time that is known, and for what is over the
        quota of the queue's own namespace.
        """
        queue = self.queues.get(name)
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
        if excess := self.externals.excess(queue, amounts):
            raise Refusal(f"no room now: {excess}")
        self._ids.high_water = max(self._ids.high_water, *self.snapshot.externals, 0)
        jobid = self._ids.next(int(now * 1000))
        end = found.start + request.duration if request.duration else 0
        self.externals.give(jobid, queue, amounts, int(now), found.start, end)
        self.places.changed[name] = None
        return jobid, found.selection, found.start

    def _order(self, uid: str) -> tuple[str, int, str]:
        """Workloads that are first seen together are queued in the order of their creation."""
        found = self.snapshot.workloads.get(uid)
        if found is None:
            return "", 0, uid
        return found[1]["metadata"].get("creationTimestamp", ""), self.snapshot.first_versions[uid], uid

    # --- nodes and queues

    def _review_nodes(
        self, nodes: Container[str], queues: Iterable[str], now: int
    ) -> Iterator[tuple[str, tuple[actions.Action, ...]]]:
        """Give each node to its queue, and rebuild the queues whose settings have changed."""
        for name in queues:
            item = self.snapshot.queues.get(name)
            settings = _settings_of(item) if item else None
            queue = self.queues.get(name)
            if queue and queue.settings != settings:
                if settings and queue.settings.of_graph == settings.of_graph:
                    queue.set_settings(settings)
                    self._touched.update({uid: None for uid, job in self.jobs.items() if job.queue == name})
                else:
                    self._close(name)
            if settings and name not in self.queues:
                self._open(name, settings)
        found = divided(self.snapshot.queues, self.snapshot.nodes)
        for name, queue in self.queues.items():
            mine, had_taints = found[name].nodes, queue.has_taints
            for node in [one for one in queue.nodes if one not in mine]:
                queue.drop_node(node)
                self.places.loads[node] = None
                self._nodes_changed(name)
            for node in sorted((one for one in mine if one in nodes or one not in queue.nodes), key=_natural):
                try:
                    has_changed = queue.put_node(self.snapshot.nodes[node], now)
                except Exception as exc:
                    # One of a form that nobody has thought of costs itself alone.
                    self._defects.append((node, exc))
                    queue.drop_node(node)
                    has_changed = True
                if has_changed:
                    self.places.loads[node] = None
                    self._nodes_changed(name)
            if queue.has_taints != had_taints:
                self._ask_anew(name)
        self._queue_nodes = found
        for name, item in self.snapshot.queues.items():
            patch = patch_of(item.get("status") or {}, found[name].status())
            if patch:
                yield name, (actions.Publish(FLUXQUEUES, item, patch),)

    def _open(self, name: str, settings: Settings) -> None:
        self.queues[name] = ClusterQueue(settings)
        self._touched.update({uid: None for uid, job in self.jobs.items() if job.queue == name})

    def _close(self, name: str) -> None:
        gone = self.queues.pop(name)
        self._foreign = {node: held for node, held in self._foreign.items() if held[0] is not gone}
        for uid, job in self.jobs.items():
            if job.queue == name:
                job.is_ready = False
                for part in list(job.line):
                    self._leave_line(job, part)
                self.places.forget(job)
                self._touched[uid] = None

    def _nodes_changed(self, name: str) -> None:
        """Jobs that no node could serve are tried again, and jobs may need other nodes."""
        self.places.changed[name] = None
        for uid, job in self.jobs.items():
            if job.queue == name and (job.state.has_nodes or not job.is_ready):
                self._touched[uid] = None

    def _ask_anew(self, name: str) -> None:
        """Nodes of a queue have come to have taints: its jobs ask from now on for those whose taints they tolerate."""
        for uid, job in self.jobs.items():
            if job.queue == name:
                if job.state.has_nodes:
                    job.asked = None
                self._touched[uid] = None

    def _count_foreign(self, node: str, now: int) -> None:
        """Hold what pods have of a node without a place there, or beyond it, as one that was resized. What those have
        that never end by themselves is as if the node did not have it.
        """
        name = next((name for name, one in self.queues.items() if node in one.nodes), "")
        queue = self.queues.get(name)
        lasting: list[resources.Amounts] = []
        passing = list(self.externals.elsewhere(node, queue))
        for uid, pod in self.snapshot.pods_on.get(node, {}).items():
            if is_live(pod):
                lasts = uid not in self.places.of_pod and lasts_for_ever(pod)
                (lasting if lasts else passing).append(self._beyond_place(uid, pod, name, node))
        if queue and queue.set_lasting(node, resources.total(lasting), now):
            # Jobs that no node could serve are tried again.
            for uid, job in self.jobs.items():
                if job.queue == name and not job.is_ready:
                    self.touch(uid)
        if queue and queue.set_outside(node, resources.total([*lasting, *passing])):
            # The reason of the first job in line names these amounts.
            self.places.changed[name] = None
        amounts, before = resources.total(passing), self._foreign.get(node)
        if before and (before[0], before[2]) == (queue, amounts):
            return
        if before:
            del self._foreign[node]
            before[0].release(before[1])
        if queue and amounts:
            self._foreign[node] = queue, queue.hold(node, amounts, now), amounts

    def _beyond_place(self, uid: str, pod: Object, queue: str, node: str) -> resources.Amounts:
        """What a pod has of its node beyond its place there in a queue; the node may have come to that queue since.

        A pod that is only said to be given to the node, as users may write, has nothing without a place.
        """
        place = self.places.of_pod.get(uid)
        if place and place.node != node:
            place = None
        if not pod["spec"].get("nodeName"):
            return place.amounts if place and place.queue != queue else {}
        amounts = resources.amounts_of(pod["spec"], pod.get("status"))
        if place:
            place.beyond = resources.beyond(amounts, place.amounts)
        return place.beyond if place and place.queue == queue else amounts

    # --- one workload

    def _review(self, uid: str, now: float) -> None:
        """Bring what is known of a workload up to what is observed of it."""
        found, job = self.snapshot.workloads.get(uid), self.jobs.get(uid)
        if found is None:
            self.chronicle.forget(uid, now)
            if job:
                self._drop(job, int(now))
            return
        kind, item = found
        if kind is group.WORKLOAD_KIND:
            item = group.without_former(item, self._group_jobid(uid, job))
        problem, demand = "", job.demand if job else Demand(sets=(PodSet(pods=1, templates=()),))
        try:
            demand = kind.demand(item, self.snapshot.made_by(uid))
        except Exception as exc:
            problem = self._problem(uid, exc)
        if job is None:
            # An object that has a FluxJob keeps it when a label comes to say that the object is left alone.
            is_unmanaged = uid not in self.snapshot.fluxjobs and (is_skipped(item) or kind.is_unmanaged(item))
            if is_unmanaged or not self._waits(uid, item, demand):
                return
            job = self._enter(uid, demand, now)
        job.item, job.demand = item, demand
        if job.is_renewed and uid not in self.snapshot.fluxjobs:
            self._drop(job, int(now))
            self._review(uid, now)
            return
        if job.is_claimed and kind.is_suspended(item) and not is_held(item):
            job.is_claimed = False
            if job.state.has_nodes:
                if job.unbound:
                    # What could not be bound would be given the same place at once, and keep all others from it.
                    job.queued_at = now
                self._requeue(job)
        if demand.end and not job.state.is_over:
            self._withdraw(job)
            job.state, job.reason, job.ended_at = State(demand.end), demand.failure[:_LONGEST_REASON], now
        if job.leaving and (job.state.is_over or self.writes.is_told(job)):
            self.places.leave(job)
        if job.state.has_nodes or job.places:
            self._settle(job, int(now))
        if not job.state.is_over:
            self._wait(job, problem, now)
        self.binding.review(job, self.queues.get(job.queue), now)

    def _group_jobid(self, uid: str, job: Job | None) -> int:
        """The id of the job to which the pods of a group belong; 0 if they are to be another, or it has none yet."""
        if job:
            return 0 if job.state.is_over else job.jobid
        flux = self.snapshot.fluxjobs.get(uid)
        return jobid_of(flux) if flux else 0

    def _waits(self, uid: str, item: Object, demand: Demand) -> bool:
        """Whether a workload is to have a FluxJob: it has one, or it is held in a namespace with a queue."""
        if uid in self.snapshot.fluxjobs or demand.end:
            return uid in self.snapshot.fluxjobs
        labelled = self.snapshot.queue_of(item["metadata"]["namespace"])
        pods = self.snapshot.pods_of(uid)
        return bool(labelled) and (is_held(item) or any(gate_index(pod) >= 0 or is_placed(pod) for pod in pods))

    def _enter(self, uid: str, demand: Demand, now: float) -> Job:
        """A job for a workload, as its FluxJob says, or its pods where somebody has deleted that; else a new one."""
        workload, item = self.snapshot.workloads[uid]
        meta = item["metadata"]
        flux = self.snapshot.fluxjobs.get(uid) or {}
        told = flux.get("status") or {}
        reason = told.get("reason", "")
        placed = [pod for pod in self.snapshot.live_pods(uid) if is_placed(pod)]
        jobid = self._known_id(flux, placed, now)
        self._ids.high_water = max(self._ids.high_water, jobid)
        job = Job(
            uid=uid,
            workload=workload,
            item=item,
            demand=demand,
            jobid=jobid or self._ids.next(int(now * 1000)),
            queue=flux.get("spec", {}).get("queue") or self.snapshot.queue_of(meta["namespace"]),
            queued_at=moment_of(told.get("queuedAt")) or self._came_at(uid),
            state=State(told.get("state", "Held")),
            nodes=list(Hostlist.parse(told.get("nodes", ""))),
            sets=[],
            places=[],
            freed=dict.fromkeys(Idset.parse(told.get("freed", ""))),
            reason="" if reason.startswith(NOT_BOUND) else reason,
            unbound=reason if reason.startswith(NOT_BOUND) else "",
            started_at=moment_of(told.get("startedAt")),
            ended_at=moment_of(told.get("endedAt")),
            waits=fluxjobs.waits_in(told),
            told_at=now,
            told_place=fluxjobs.place_in(told),
        )
        first = demand.sets[0].name if demand.sets else ""
        job.sets = fluxjobs.sets_in(told, len(job.nodes), first)
        # What says alone that a pod was given to a node may be of its user; that it is bound there is not.
        bound = [pod for pod in placed if pod["spec"].get("nodeName")]
        if not told and bound:
            job.state, job.nodes = State.RELEASED, [node_of(pod) for pod in bound]
            found = [demand.set_of(pod) for pod in bound]
            job.started_at, job.sets = now, [own.name if own else first for own in found]
        self.jobs[uid] = self._jobs_by_id[job.jobid] = job
        return job

    def _came_at(self, uid: str) -> float:
        """When a workload came to its queue (seconds since the epoch): with its creation, but for one that was kept
        from having pods by its user until later, or had pods before its namespace had a queue.
        """
        workload, item = self.snapshot.workloads[uid]
        pods = list(self.snapshot.live_pods(uid))
        is_late = (workload.suspend and not is_held(item)) or any(gate_index(pod) < 0 for pod in pods)
        made = [seconds_of(pod["metadata"]["creationTimestamp"]) for pod in pods if gate_index(pod) >= 0]
        created = seconds_of(item["metadata"]["creationTimestamp"])
        return max(created, min(made)) if is_late and made else created

    def _known_id(self, flux: Object, placed: list[Object], now: float) -> int:
        """The job id of a workload, as its FluxJob says, or its pods; 0 for none. Users may write into the labels of
        pods: that another has an id counts as none, as does one of a time to come, behind which all new ones would be.
        """
        newest = (int(now * 1000) - _EPOCH + 1) << TIMESTAMP_SHIFT
        told = [jobid_in(pod) for pod in placed]
        known = [jobid_of(flux) if flux else 0, *(one for one in told if one < newest)]
        return next((one for one in known if one and one not in self._jobs_by_id), 0)

    def _drop(self, job: Job, now: int) -> None:
        """The workload is gone; what its pods still hold is counted as that of others."""
        self._withdraw(job)
        for place in list(job.places):
            self.places.give_back(job, place)
        self.places.leave(job)
        if account := self._account_of(job):
            account.forget(job.jobid)
            account.forget(-job.jobid)
        self.binding.forget(job)
        self.writes.forget(job)
        del self.jobs[job.uid], self._jobs_by_id[job.jobid]

    def _withdraw(self, job: Job) -> None:
        """Nothing of a job is in front of the graph any more."""
        for part in list(job.line):
            self._withdraw_part(job, part)
        job.is_ready, job.excess = False, ""
        job.position, job.estimate, job.is_reserved = 0, 0, False

    def _withdraw_part(self, job: Job, part: int) -> None:
        queue = self.queues.get(job.queue)
        if queue:
            queue.withdraw(part)
            self.places.changed[job.queue] = None
        self._leave_line(job, part)

    def _leave_line(self, job: Job, part: int) -> None:
        del job.line[part]
        if len(job.line) < 2:
            self._in_parts.pop(job.uid, None)
        if part != job.jobid:
            del self._jobs_by_id[part]

    def _requeue(self, job: Job) -> None:
        """A job that ran gives all back, and waits anew from its time in the queue on."""
        self._withdraw(job)
        for place in list(job.places):
            self.places.give_back(job, place)
        self.places.leave(job)
        job.state, job.nodes, job.is_placed, job.started_at, job.reason = State.HELD, [], False, 0, ""
        job.sets, job.freed, job.waits, job.undersized = [], {}, [], []

    def _wait(self, job: Job, problem: str, now: float) -> None:
        """Have the pods of a job that have no places wait in its queue, with what it asks for now; `problem` is what is
        wrong with its objects.
        """
        queue, outside = self.queues.get(job.queue), self._outside(job)
        if outside and not job.state.has_nodes:
            # It is never shown as waiting while its pods run, whoever let them.
            job.state, job.is_placed, job.started_at, job.reason = State.RUNNING, True, job.started_at or now, ""
        elif job.state.has_nodes and not (outside or job.nodes or job.workload.lasts):
            # The pods that ran outside the queue are gone.
            self._requeue(job)
        try:
            if problem:
                raise Refusal(problem)
            check_marks(job)
            check_priority(job, self.snapshot.has_priority_class)
            job.asked = request_for(job, queue.settings if queue else Settings(), bool(queue and queue.has_taints))
            if queue:
                check_placement(job, queue.settings, self.snapshot.has_claim)
        except Exception as exc:
            self._refuse(job, exc)
            return
        if job.state is State.REFUSED:
            job.state, job.reason = State.HELD, ""
        job.priority = self._priority(job)
        if outside and self._is_outside(job):
            self._withdraw(job)
            job.waits, job.reason = [], OUTSIDE
            return
        if job.state.has_nodes and self._is_idle(job):
            self._requeue(job)
            job.reason = NO_PODS
        if job.reason == NO_PODS and job.workload.lasts:
            # What was scaled down to nothing comes anew when it wants pods again.
            job.queued_at = now
        if queue is not None:
            job.lacks = self.places.lacks(job)
            # Creation times are whole seconds: growth in the second of a job's creation may have come after that job.
            since = float(int(now) + 1) if job.state.has_nodes else job.queued_at
            if job.undersized:
                job.waits, job.undersized = waits_again(job.waits, job.undersized), []
            job.waits = waits_of(job.waits, sum(job.lacks.values()), job.demand.together, since)
        why = self._kept_out(job)
        if why or queue is None:
            self._withdraw(job)
            job.reason = growing(job, why)
            return
        if job.state.has_nodes and not job.waits:
            job.reason = OUTSIDE if outside and not job.nodes else ""
        job.is_ready = bool(job.waits)
        if self._account_of(job) is None or job.is_submitted:
            self._queue_up(job, queue)

    def _refuse(self, job: Job, exc: Exception) -> None:
        """No queue takes a job; one that has nodes keeps them."""
        self._withdraw(job)
        job.reason = self._problem(job.uid, exc)
        if not job.state.has_nodes:
            job.asked, job.state = None, State.REFUSED

    def _problem(self, uid: str, exc: Exception) -> str:
        """What is wrong with the objects of a workload. The definition of a kind may leave the form of its fields open;
        what was found of another form than theirs may be a defect of this program as well.
        """
        if isinstance(exc, (resources.Malformed, Refusal, RequestError)):
            return str(exc)[:_LONGEST_REASON]
        self._defects.append((uid, exc))
        return f"its fields are not those of a {self.snapshot.workloads[uid][0].kind.kind}: {exc!r}"[:_LONGEST_REASON]

    def _outside(self, job: Job) -> list[Object]:
        """The pods of a job that the queue does not hold, and has given no place. What they have of their nodes is
        counted as that of others (`_count_foreign`).
        """
        if not job.is_claimed:
            # Its user has suspended it: they are about to end.
            return []
        return [pod for pod in self.places.outside(job) if job.workload.kind == PODS or pod["spec"].get("nodeName")]

    def _is_outside(self, job: Job) -> bool:
        """Whether nothing of a job that is nothing but pods is left to the queue."""
        pods = self.snapshot.live_pods(job.uid)
        is_held = any(gate_index(pod) >= 0 or is_placed(pod) for pod in pods)
        return job.workload.kind == PODS and not is_held and not job.places

    def _kept_out(self, job: Job) -> str:
        """Why a job is not in the order of its queue; "" if it may be."""
        if any(text == "true" for text, _ in marks_of(job, HOLD)):
            return f"its user keeps it waiting: annotation {HOLD}"
        if job.queue not in self.queues:
            return f"there is no FluxQueue {job.queue}"
        if (found := self._queue_nodes[job.queue]).problem:
            return f"the FluxQueue {job.queue} is invalid: {found.problem}"
        if job.demand.missing:
            return job.demand.missing
        return NO_PODS if not job.demand.pods and not job.state.has_nodes else ""

    def _is_idle(self, job: Job) -> bool:
        """Whether an object without an end of its own was scaled down to nothing, and that is told."""
        has_pods = any(gate_index(pod) < 0 for pod in self.snapshot.live_pods(job.uid))
        return job.workload.lasts and not job.places and not job.leaving and not has_pods

    def _queue_up(self, job: Job, queue: ClusterQueue) -> None:
        """Put what a job waits for in front of its queue's graph, or refuse the job where that is no request."""
        try:
            if job.asked:
                self._submit(job, queue, job.asked)
        except Exception as exc:
            self._refuse(job, exc)

    def _submit(self, job: Job, queue: ClusterQueue, asked: Request) -> None:
        pods = job.wanted
        others = {name: beside(job, queue, name, job.places) for name in pods}
        numbers = pods if len(pods) > 1 else None
        sets = tuple((name, asked.sets[name], others[name]) for name in pods)
        shape = sets, numbers, asked.duration, asked.within, job.priority
        if shape != job.shape:
            for part in list(job.line):
                self._withdraw_part(job, part)
            job.shape, job.sets_in_line = shape, tuple(pods)
        # Pods that depend on each other's nodes, or on what is left of a quota, are asked for one after the other.
        is_apart = any(asked.sets[name].is_apart for name in pods)
        window = 1 if is_apart or asked.within or self._account_of(job) else WINDOW
        wanted = Counter(parts_of(job.waits, job.demand.together, window))
        for part in [*reversed(job.line)]:
            if sum(1 for one in job.line.values() if one == job.line[part]) > wanted[job.line[part]]:
                self._withdraw_part(job, part)
        for wait, number in wanted.items():
            for _ in range(number - sum(1 for one in job.line.values() if one == wait)):
                part = next(self._parts) if job.jobid in job.line else job.jobid
                request = request_of(job, asked, pods if numbers else dict.fromkeys(pods, wait.pods), others)
                queue.submit(part, request, job.priority, wait.since)
                job.line[part] = wait
                self._jobs_by_id[part] = job
                if len(job.line) > 1:
                    self._in_parts[job.uid] = job
                self.places.changed[job.queue] = None

    def _priority(self, job: Job) -> int:
        """The highest priority of its pods."""
        is_pod = job.workload.kind == PODS
        return max((self.snapshot.priority_of(one, is_pod) for one in job.demand.templates), default=0)

    def _settle(self, job: Job, now: int) -> None:
        queue = self.queues.get(job.queue)
        if queue is None:
            return
        if job.asked is None:
            job.asked = self._asked_at_start(job, queue)
        self.places.settle(job, queue, now)

    def _asked_at_start(self, job: Job, queue: ClusterQueue) -> Request | None:
        """What a job asks for that has nodes, also where its queue would refuse it now (`_wait` says why): it has been
        released by other settings, or its object was changed since. None where not even its pods make sense: what it
        has is counted by these then.
        """
        spec = (self.snapshot.fluxjobs.get(job.uid) or {}).get("spec") or {}
        for started_with in (None, float(spec.get("duration") or 0)):
            with suppress(Exception):
                return request_for(job, queue.settings, queue.has_taints, started_with)
        return None

    def _leave_lost_nodes(self, uid: str, now: int) -> None:
        self._stranded.pop(uid, None)
        job = self.jobs.get(uid)
        queue = self.queues.get(job.queue) if job else None
        if job and queue and job.state.has_nodes and not self.places.leave_lost_nodes(job, queue, now):
            self._stranded[uid] = None
            job.reason = job.reason or STRANDED

    # --- quotas and the order

    def _account_of(self, job: Job) -> Account | None:
        """The account of a job's namespace, None where it has no quota."""
        queue = self.queues.get(job.queue)
        return queue.accounts.get(job.item["metadata"]["namespace"]) if queue else None

    def _account(self, job: Job) -> None:
        """Tell the account of a job's namespace what it has and asks for; without one, it is in the order at once."""
        account, queue = self._account_of(job), self.queues.get(job.queue)
        if account is None:
            # A few parts less in front of the graph than there may be are not filled up one by one.
            if queue and job.is_ready and len(job.line) <= WINDOW // 2:
                self._queue_up(job, queue)
            return
        if job.state.has_nodes:
            outside = (resources.amounts_of(pod["spec"], pod.get("status")) for pod in self.places.outside(job))
            account.run(job.jobid, resources.total([job.holds, *outside]))
        # What waits beside what runs is entered by the negative id.
        waiting, other = (-job.jobid, 0) if job.state.has_nodes else (job.jobid, -job.jobid)
        if job.is_ready and job.waits:
            account.wait(waiting, (-job.priority, job.waits[0].since, waiting), job.needs)
        else:
            account.forget(waiting)
        account.forget(other)

    def _keep_quota(self, account: Account) -> None:
        """Have those jobs of a namespace in the order that its quota has room for."""
        for jobid, is_within in account.review():
            job = self._jobs_by_id[abs(jobid)]
            if is_within and not job.is_submitted:
                job.excess = ""
                self._queue_up(job, self.queues[job.queue])
                self._account(job)
            elif not is_within:
                self._keep_out(job, account.excess(jobid))
            self._touched[job.uid] = None

    def _keep_out(self, job: Job, excess: str) -> None:
        for part in list(job.line):
            self._withdraw_part(job, part)
        job.is_reserved, job.position, job.estimate = False, 0, 0
        job.reason, job.excess = growing(job, excess), excess

    # --- decisions

    def _serve(self, name: str, now: float) -> bool:
        """Have a queue start what can start, which makes room in quotas or takes it; returns whether there is more."""
        accounts = self.queues[name].accounts
        for _ in range(_ROUNDS):
            for account in accounts.values():
                if account.has_changed:
                    self._keep_quota(account)
                    self.places.changed[name] = None
            goes_on = self._schedule(name, now)
            if not goes_on and not any(account.has_changed for account in accounts.values()):
                return False
        return True

    def _schedule(self, name: str, now: float) -> bool:
        """Have a queue decide; returns whether one that has started waits for more."""
        queue, goes_on = self.queues[name], False
        decided: dict[str, Job] = {}
        for decision, given in queue.schedule(int(now)):
            job = self._jobs_by_id.get(decision.jobid)
            self.places.changed[name] = None
            if job is None or isinstance(decision, Planned):
                continue
            if isinstance(decision, Started):
                self._start(job, queue, decision.jobid, given, now)
                goes_on = goes_on or job.is_ready
            elif isinstance(decision, Refused):
                self._leave_line(job, decision.jobid)
                job.is_ready, job.position, job.estimate = False, 0, 0
                asked = job.asked
                if asked:
                    request = request_of(job, asked, job.wanted, {})
                    why = while_down(queue.scheduler, request, decision.failure)
                    if not why:
                        why = never(queue.scheduler, jobspec_of(job, asked), request, decision.failure)
                        why = f"no node could ever serve it as nodes are now: {why}"
                    job.reason = growing(job, why + queue.taken_by_others())
            decided[job.uid] = job
        # Several parts of a job may have started: who has its places, and what it asks for next, follows from all of
        # them.
        for job in decided.values():
            if job.state.has_nodes:
                self._settle(job, int(now))
            if job.avoided:
                # It may have been given a node again to which its pod was not bound in time.
                self._leave_lost_nodes(job.uid, int(now))
            self._account(job)
            self._touched[job.uid] = None
        return goes_on

    def _start(self, job: Job, queue: ClusterQueue, part: int, given: list[list[str]], now: float) -> None:
        """A job gets the nodes that it has asked for by a part of what it waits for, those of each set."""
        wait = job.line[part]
        self._leave_line(job, part)
        job.waits = started(job.waits, wait)
        job.is_ready = bool(job.waits)
        if not job.state.has_nodes:
            job.state, job.nodes, job.sets, job.freed, job.started_at = State.RELEASED, [], [], {}, now
            job.is_placed, job.unbound = True, ""
        job.position, job.estimate, job.reason = 0, 0, ""
        for own, names in zip(job.sets_in_line, given, strict=True):
            self.places.add(job, queue, own, names, int(now), wait.since)
        if account := self._account_of(job):
            # The account knows what waits beside what runs by this id. The job's next part has the same id, and often
            # asks for the same amounts, but the quota has to let that part in, too.
            account.forget(-job.jobid)


def _settings_of(item: Object) -> Settings:
    """The settings of a FluxQueue; the defaults for one that does not make sense, which has no nodes (`divided`)."""
    try:
        return settings_of(item)
    except WrongQueueError:
        return Settings()


def _natural(name: str) -> list[tuple[int, str]]:
    """Orders names with numbers in them as people do: node-2 before node-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
