"""Admit: which workloads are jobs of a queue, their demand, and what keeps them out of the order."""

from __future__ import annotations

from typing import Any

from headrace.k8s.objects.kinds import PODS

from ..admission import gate_index, is_skipped
from ..crd import Settings
from ..model.demand import Demand, PodSet
from ..model.entry import Entry, State, waiting_reason
from ..model.fluxjobs import jobid_of
from ..model.request import Refusal, check_marks, check_placement, check_priority, marks_of, request_for
from ..model.snapshot import is_held, is_placed
from ..names import HOLD
from ..workloads import group
from .assign import Assign
from .binding import Binding
from .chronicle import Chronicle
from .context import Context
from .order import LONGEST_REASON, Order
from .restore import enter

Object = dict[str, Any]

OUTSIDE = (
    "it runs outside the queue: its pods have no scheduling gate, because they name their node, have a label that "
    "excludes them, or a user removed the gate"
)
NO_PODS = "it requests no pods"


class Admit:
    """The second step: updates the entries from the observed workloads."""

    def __init__(self, context: Context, order: Order, assign: Assign, binding: Binding, chronicle: Chronicle) -> None:
        self._context = context
        self._order = order
        self._assign = assign
        self._binding = binding
        self._chronicle = chronicle

    def review(self, now: float) -> None:
        """Review the touched workloads. Workloads first seen together are queued by creation time."""
        for uid in sorted(self._context.touched, key=self._age):
            with self._order.contained(uid):
                self._review(uid, now)

    def _age(self, uid: str) -> tuple[str, int, str]:
        found = self._context.snapshot.workloads.get(uid)
        if found is None:
            return "", 0, uid
        return found[1]["metadata"].get("creationTimestamp", ""), self._context.snapshot.first_versions[uid], uid

    def _review(self, uid: str, now: float) -> None:
        """Update the entry of a workload from the observed objects."""
        found, entry = self._context.snapshot.workloads.get(uid), self._context.entries.get(uid)
        if found is None:
            self._chronicle.forget(uid, now)
            if entry:
                self._drop(entry)
            return
        kind, item = found
        if kind is group.WORKLOAD_KIND:
            item = group.without_former(item, self._group_jobid(uid, entry))
        problem, demand = "", entry.demand if entry else Demand(sets=(PodSet(pods=1, templates=()),))
        try:
            demand = kind.demand(item, self._context.snapshot.made_by(uid))
        except Exception as exc:
            problem = self._order.problem(uid, exc)
        if entry is None:
            # An object with a FluxJob keeps it, even when a label is added that excludes the object from the queue.
            is_unmanaged = uid not in self._context.snapshot.fluxjobs and (is_skipped(item) or kind.is_unmanaged(item))
            if is_unmanaged or not self._waits(uid, item, demand):
                return
            entry = enter(self._context, uid, demand, now)
        entry.item, entry.demand = item, demand
        if entry.is_renewed and uid not in self._context.snapshot.fluxjobs:
            self._drop(entry)
            self._review(uid, now)
            return
        if not entry.status.is_suspended_by_user and kind.is_suspended(item) and not is_held(item):
            entry.set_suspended_by_user(True)
            if entry.has_nodes:
                if entry.status.unbound:
                    # The pods that could not be bound would get the same slots at once and keep other jobs from them.
                    entry.restart_wait(now)
                self._assign.requeue(entry)
        if demand.end and not entry.state.is_over:
            self._order.withdraw(entry)
            entry.end(State(demand.end), demand.failure[:LONGEST_REASON], now)
        if entry.leaving and (entry.state.is_over or self._context.is_published(entry)):
            self._assign.release_holds(entry)
        if entry.has_nodes or entry.slots:
            self._assign.settle(entry, int(now))
        if not entry.state.is_over:
            self._wait(entry, problem, now)
        self._binding.review(entry, self._context.queues.get(entry.queue), now)

    def _group_jobid(self, uid: str, entry: Entry | None) -> int:
        """The id of the job to which the pods of a group belong; 0 if there is none yet or that job is over."""
        if entry:
            return 0 if entry.state.is_over else entry.jobid
        flux = self._context.snapshot.fluxjobs.get(uid)
        return jobid_of(flux) if flux else 0

    def _waits(self, uid: str, item: Object, demand: Demand) -> bool:
        """Whether a workload needs a FluxJob: it has one, or it is held in a namespace with a queue."""
        if uid in self._context.snapshot.fluxjobs or demand.end:
            return uid in self._context.snapshot.fluxjobs
        labelled = self._context.snapshot.queue_of(item["metadata"]["namespace"])
        pods = self._context.snapshot.pods_of(uid)
        return bool(labelled) and (is_held(item) or any(gate_index(pod) >= 0 or is_placed(pod) for pod in pods))

    def _drop(self, entry: Entry) -> None:
        """Forget the entry of a workload that is gone."""
        self._order.forget(entry)
        self._assign.forget(entry)
        self._binding.forget(entry)
        del self._context.entries[entry.uid], self._context.by_part[entry.jobid]

    def _wait(self, entry: Entry, problem: str, now: float) -> None:
        """Put the pods of a job that have no slots into its queue, with the job's current demand.

        `problem` says what is wrong with the job's objects.
        """
        queue, outside = self._context.queues.get(entry.queue), self._context.running_outside(entry)
        if outside and not entry.has_nodes:
            # A job is never shown as waiting while its pods run, whoever removed their gates.
            self._assign.begin_without_slots(entry)
            entry.run_outside(now)
        elif entry.has_nodes and not (outside or entry.assignment.nodes or entry.workload.lasts):
            # The pods that ran outside the queue are gone.
            self._assign.requeue(entry)
        try:
            if problem:
                raise Refusal(problem)
            check_marks(entry)
            check_priority(entry, self._context.snapshot.has_priority_class)
            entry.ask(request_for(entry, queue.settings if queue else Settings(), bool(queue and queue.has_taints)))
            if queue:
                check_placement(entry, queue.settings, self._context.snapshot.has_claim)
        except Exception as exc:
            self._order.refuse(entry, exc)
            return
        entry.accept()
        entry.priority = self._priority(entry)
        if outside and self._is_outside(entry):
            self._order.withdraw(entry)
            self._order.want_nothing(entry)
            entry.explain(OUTSIDE)
            return
        if entry.has_nodes and self._is_idle(entry):
            self._assign.requeue(entry)
            entry.explain(NO_PODS)
        if entry.status.reason == NO_PODS and entry.workload.lasts:
            # A job that was scaled down to zero is queued again, as a new one, when it asks for pods.
            entry.restart_wait(now)
        if queue is not None:
            # Creation times are whole seconds, so a job created in this second may have come before the growth of this
            # job.
            since = float(int(now) + 1) if entry.has_nodes else entry.status.queued_at
            self._order.want(entry, self._context.lacks(entry), since)
        why = self._kept_out(entry)
        if why or queue is None:
            self._order.withdraw(entry)
            entry.explain(waiting_reason(entry, why))
            return
        if entry.has_nodes and not entry.backlog.waits:
            entry.explain(OUTSIDE if outside and not entry.assignment.nodes else "")
        self._order.make_ready(entry)
        if self._context.account_of(entry) is None or entry.is_submitted:
            self._order.queue_up(entry, queue)

    def _is_outside(self, entry: Entry) -> bool:
        """Whether a workload that consists only of pods has none left for the queue to start."""
        pods = self._context.snapshot.live_pods(entry.uid)
        is_held = any(gate_index(pod) >= 0 or is_placed(pod) for pod in pods)
        return entry.workload.kind == PODS and not is_held and not entry.slots

    def _kept_out(self, entry: Entry) -> str:
        """The reason why a job is not in the order of its queue; "" if it may be."""
        if any(text == "true" for text, _ in marks_of(entry, HOLD)):
            return f"its user put it on hold (annotation {HOLD})"
        if entry.queue not in self._context.queues:
            return f"there is no FluxQueue {entry.queue}"
        if (found := self._context.queue_nodes[entry.queue]).problem:
            return f"the FluxQueue {entry.queue} is invalid: {found.problem}"
        if entry.demand.missing:
            return entry.demand.missing
        return NO_PODS if not entry.demand.pods and not entry.has_nodes else ""

    def _is_idle(self, entry: Entry) -> bool:
        """Whether an object that never ends by itself was scaled down to zero, and its status says so."""
        has_pods = any(gate_index(pod) < 0 for pod in self._context.snapshot.live_pods(entry.uid))
        return entry.workload.lasts and not entry.slots and not entry.leaving and not has_pods

    def _priority(self, entry: Entry) -> int:
        """The highest priority of a job's pods."""
        is_pod = entry.workload.kind == PODS
        return max((self._context.snapshot.priority_of(one, is_pod) for one in entry.demand.templates), default=0)
