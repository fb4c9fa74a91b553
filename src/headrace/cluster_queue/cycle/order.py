"""Order: puts jobs in front of their queue's graph, with their requests, as far as quotas allow.

Very many jobs may wait, so a job's request is built only when the job is put there. An Account decides which jobs are
next.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from msgspec.structs import replace

from headrace.sched.graph.request import RequestError
from headrace.sched.queueing.pending import Position

from ..model import resources
from ..model.cluster_queue import ClusterQueue
from ..model.demand import Request
from ..model.entry import (
    WINDOW,
    Backlog,
    Entry,
    Part,
    Shape,
    Standing,
    Wait,
    parts_of,
    started,
    waiting_reason,
    waits_of,
    with_undersized,
)
from ..model.quota import Account
from ..model.request import Refusal, beside, request_of
from .context import Context

# Maximum length of a reason that repeats user input. The store has reasons in keys, whose size PostgreSQL limits.
LONGEST_REASON = 1000


class Order:
    """The third step: submits jobs to the queues of their graphs, and withdraws them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # By queue, the positions of all pending parts except the first of each job, until positions change.
        self._further_parts: dict[str, list[Position]] = {}

    @contextmanager
    def contained(self, uid: str) -> Iterator[None]:
        """Contain an error to one workload.

        Users, or an administrator who edits its FluxJob, may write fields of an unexpected form. The workload leaves
        the order until it changes.
        """
        try:
            yield
        except Exception as exc:
            self._context.defects.append((uid, exc))
            if uid in self._context.entries:
                self.withdraw(self._context.entries[uid])

    # --- the backlog of a job

    def want(self, entry: Entry, lacks: dict[str, int], since: float) -> None:
        """Put the pods that a job lacks, by set, into its backlog; newly lacking pods wait from `since` on."""
        waits, undersized = entry.backlog.waits, entry.backlog.undersized
        waits = with_undersized(waits, undersized) if undersized else waits
        entry.backlog = Backlog(waits_of(waits, sum(lacks.values()), entry.demand.together, since), lacks)

    def want_nothing(self, entry: Entry) -> None:
        """Empty the backlog of a job."""
        entry.backlog = Backlog(lacks=entry.backlog.lacks)

    def want_larger(self, entry: Entry, since: float) -> None:
        """Let a pod wait again with its former time, because its slot has become too small."""
        entry.backlog = replace(entry.backlog, undersized=(*entry.backlog.undersized, since))

    # --- the pending parts of a job

    def make_ready(self, entry: Entry) -> None:
        """Let the backlog of a job into the order, as far as its namespace's quota allows."""
        entry.standing = replace(entry.standing, is_ready=bool(entry.backlog.waits))

    def take(self, entry: Entry, part: int) -> Part:
        """Remove a part of a job that has started from the pending parts and the backlog."""
        found = entry.pending[part]
        self._leave(entry, part)
        entry.backlog = replace(entry.backlog, waits=started(entry.backlog.waits, found.wait))
        entry.standing = replace(entry.standing, is_ready=bool(entry.backlog.waits), position=0, estimate=0)
        return found

    def refuse_part(self, entry: Entry, part: int) -> None:
        """Remove a part of a job that no node could serve."""
        self._leave(entry, part)
        entry.standing = replace(entry.standing, is_ready=False, position=0, estimate=0)

    def withdraw(self, entry: Entry) -> None:
        """Withdraw all pending parts of a job."""
        self._withdraw_parts(entry)
        entry.standing = Standing()

    def forget_queue(self, entry: Entry) -> None:
        """Remove the pending parts of a job whose queue is gone."""
        entry.standing = replace(entry.standing, is_ready=False)
        for part in list(entry.pending):
            self._leave(entry, part)

    def forget(self, entry: Entry) -> None:
        """Forget a job that is gone."""
        self.withdraw(entry)
        if account := self._context.account_of(entry):
            account.forget(entry.jobid)
            account.forget(-entry.jobid)

    def _withdraw_parts(self, entry: Entry) -> None:
        for part in list(entry.pending):
            self._withdraw_part(entry, part)

    def _withdraw_part(self, entry: Entry, part: int) -> None:
        queue = self._context.queues.get(entry.queue)
        if queue:
            queue.withdraw(part)
            self._context.changed[entry.queue] = None
        self._leave(entry, part)

    def _leave(self, entry: Entry, part: int) -> None:
        """Remove a part of a job from the pending parts."""
        del entry.pending[part]
        if len(entry.pending) < 2:
            self._context.in_parts.pop(entry.uid, None)
        if part != entry.jobid:
            del self._context.by_part[part]

    def refuse(self, entry: Entry, exc: Exception) -> None:
        """Refuse a job. A job with nodes keeps them."""
        self.withdraw(entry)
        entry.refuse(self.problem(entry.uid, exc))

    def problem(self, uid: str, exc: Exception) -> str:
        """A message about what is wrong with the objects of a workload.

        The definition of a kind may leave the form of its fields open. An unexpected form may also be a defect of this
        program, so it is recorded as one.
        """
        if isinstance(exc, (resources.Malformed, Refusal, RequestError)):
            return str(exc)[:LONGEST_REASON]
        self._context.defects.append((uid, exc))
        kind = self._context.snapshot.workloads[uid][0].kind.kind
        return f"not valid as {kind}: {exc!r}"[:LONGEST_REASON]

    def queue_up(self, entry: Entry, queue: ClusterQueue) -> None:
        """Submit the backlog of a job to its queue, or refuse the job if it makes no valid request."""
        try:
            if entry.request:
                self._submit(entry, queue, entry.request)
        except Exception as exc:
            self.refuse(entry, exc)

    def _submit(self, entry: Entry, queue: ClusterQueue, asked: Request) -> None:
        context, pods = self._context, entry.wanted
        others = {name: beside(entry, queue, name, entry.slots) for name in pods}
        numbers = pods if len(pods) > 1 else None
        sets = tuple((name, asked.sets[name], others[name]) for name in pods)
        shape = Shape(tuple(pods), sets, numbers, asked.duration, asked.within, entry.priority)
        if any(part.shape != shape for part in islice(entry.pending.values(), 1)):
            self._withdraw_parts(entry)
        # Pods that depend on each other's nodes, or on the rest of a quota, are asked for one after the other.
        is_apart = any(asked.sets[name].is_apart for name in pods)
        window = 1 if is_apart or asked.within or context.account_of(entry) else WINDOW
        wanted = Counter(parts_of(entry.backlog.waits, entry.demand.together, window))
        for part, (wait, _) in [*reversed(entry.pending.items())]:
            if _count(entry, wait) > wanted[wait]:
                self._withdraw_part(entry, part)
        for wait, number in wanted.items():
            for _ in range(number - _count(entry, wait)):
                part = next(context.parts) if entry.jobid in entry.pending else entry.jobid
                request = request_of(entry, asked, pods if numbers else dict.fromkeys(pods, wait.pods), others)
                queue.submit(part, request, entry.priority, wait.since)
                entry.pending[part] = Part(wait, shape)
                context.by_part[part] = entry
                if len(entry.pending) > 1:
                    context.in_parts[entry.uid] = entry
                context.changed[entry.queue] = None

    # --- quotas

    def account_all(self) -> None:
        """Account all touched jobs. By now, all current holds are entered."""
        for uid in self._context.touched:
            if uid in self._context.entries:
                with self.contained(uid):
                    self.account(self._context.entries[uid])

    def account(self, entry: Entry) -> None:
        """Enter the resources and requests of a job into the account of its namespace.

        Without an account, the job is in the order at once.
        """
        account, queue = self._context.account_of(entry), self._context.queues.get(entry.queue)
        if account is None:
            # Refill only when at most half of the window is pending, so that parts are not submitted one by one.
            if queue and entry.standing.is_ready and len(entry.pending) <= WINDOW // 2:
                self.queue_up(entry, queue)
            return
        if entry.has_nodes:
            outside = (resources.amounts_of(pod["spec"], pod.get("status")) for pod in self._context.outside(entry))
            account.run(entry.jobid, resources.total([entry.holds, *outside]))
        # The pending pods of a running job are entered under its negative id.
        waiting, other = (-entry.jobid, 0) if entry.has_nodes else (entry.jobid, -entry.jobid)
        if entry.standing.is_ready and entry.backlog.waits:
            account.wait(waiting, (-entry.priority, entry.backlog.waits[0].since, waiting), entry.needs)
        else:
            account.forget(waiting)
        account.forget(other)

    def keep_quotas(self, name: str) -> None:
        """Keep exactly those jobs in a queue's order for which their namespaces' quotas have room."""
        for account in self._context.queues[name].accounts.values():
            if account.has_changed:
                self._keep_quota(account)
                self._context.changed[name] = None

    def are_quotas_kept(self, name: str) -> bool:
        """Whether no account has changed since the last review."""
        return not any(account.has_changed for account in self._context.queues[name].accounts.values())

    def _keep_quota(self, account: Account) -> None:
        for jobid, is_within in account.review():
            entry = self._context.by_part[abs(jobid)]
            if is_within and not entry.is_submitted:
                entry.standing = replace(entry.standing, excess="")
                self.queue_up(entry, self._context.queues[entry.queue])
                self.account(entry)
            elif not is_within:
                self._withdraw_parts(entry)
                entry.standing = replace(entry.standing, is_reserved=False, position=0, estimate=0)
                self.exceed(entry, account.excess(jobid))
            self._context.touched[entry.uid] = None

    def exceed(self, entry: Entry, excess: str) -> None:
        """Record that a job exceeds limits of its namespace's quota."""
        entry.explain(waiting_reason(entry, excess))
        entry.standing = replace(entry.standing, excess=excess)

    # --- positions

    def forget_positions(self) -> None:
        """Clear the cached positions, because jobs may have been added or removed."""
        self._further_parts.clear()

    def locate(self, entry: Entry, queue: ClusterQueue, now: int, expected: float) -> None:
        """Update position and estimate of a pending job. `expected` is its start by the sums of resources."""
        first = first_part(queue, entry)
        at = queue.queue.pending[first].position
        position = queue.queue.waiting.count_before(at) - self._count_further_parts(entry.queue, at) + 1
        reserved = queue.reserved_start(first, now)
        # The expected start was computed when the tour began, and may have passed since.
        estimate = reserved or (expected if expected > now else 0)
        entry.standing = replace(entry.standing, position=position, estimate=estimate, is_reserved=reserved > 0)

    def _count_further_parts(self, name: str, before: Position) -> int:
        """The number of parts before a position in a queue that are not the first part of their job."""
        found = self._further_parts.get(name)
        if found is None:
            pending = self._context.queues[name].queue.pending
            parts = (entry.pending for entry in self._context.in_parts.values() if entry.queue == name)
            found = sorted(at for line in parts for at in sorted(pending[part].position for part in line)[1:])
            self._further_parts[name] = found
        return bisect_left(found, before)


def _count(entry: Entry, wait: Wait) -> int:
    """The number of pending parts of a job with this wait."""
    return sum(1 for part in entry.pending.values() if part.wait == wait)


def first_part(queue: ClusterQueue, entry: Entry) -> int:
    """The pending part of a job that is first in the order of its queue."""
    return min(entry.pending, key=lambda part: queue.queue.pending[part].position)
