"""Order: which jobs stand in front of their queue's graph, with what they ask for, as far as quotas let them.

Very many jobs may wait, so a job's request is made when the job is put there, and an Account says whose turn it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.sched.graph.request import RequestError
from headrace.sched.queueing.pending import Position

from ..model import resources
from ..model.cluster_queue import ClusterQueue
from ..model.demand import Request
from ..model.entry import WINDOW, Entry, growing, parts_of
from ..model.quota import Account
from ..model.request import Refusal, beside, request_of
from .context import Context

# The most characters of a reason that repeats what a user has written: the store has reasons in keys, whose size
# PostgreSQL limits.
LONGEST_REASON = 1000


class Order:
    """The third step: puts jobs in front of graphs, and takes them away from there."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # By queue the positions of all parts of jobs but the first of each, while they do not change.
        self._further_parts: dict[str, list[Position]] = {}

    @contextmanager
    def contained(self, uid: str) -> Iterator[None]:
        """Keep from all others what goes wrong with one workload: what its users, or an administrator who edits its
        FluxJob, have written may be of a form that nobody has thought of. It has no part in the order until it changes.
        """
        try:
            yield
        except Exception as exc:
            self._context.defects.append((uid, exc))
            if uid in self._context.entries:
                self.withdraw(self._context.entries[uid])

    # --- what a job has in front of its graph

    def withdraw(self, entry: Entry) -> None:
        """Nothing of a job is in front of the graph any more."""
        self._withdraw_parts(entry)
        entry.is_ready, entry.excess = False, ""
        entry.position, entry.estimate, entry.is_reserved = 0, 0, False

    def forget_queue(self, entry: Entry) -> None:
        """The queue of a job, and with it all that is in front of its graph, is gone."""
        entry.is_ready = False
        for part in list(entry.line):
            self.leave(entry, part)

    def forget(self, entry: Entry) -> None:
        """A job is gone."""
        self.withdraw(entry)
        if account := self._context.account_of(entry):
            account.forget(entry.jobid)
            account.forget(-entry.jobid)

    def _withdraw_parts(self, entry: Entry) -> None:
        for part in list(entry.line):
            self._withdraw_part(entry, part)

    def _withdraw_part(self, entry: Entry, part: int) -> None:
        queue = self._context.queues.get(entry.queue)
        if queue:
            queue.withdraw(part)
            self._context.changed[entry.queue] = None
        self.leave(entry, part)

    def leave(self, entry: Entry, part: int) -> None:
        """A part of a job is in front of the graph no more."""
        del entry.line[part]
        if len(entry.line) < 2:
            self._context.in_parts.pop(entry.uid, None)
        if part != entry.jobid:
            del self._context.by_part[part]

    def refuse(self, entry: Entry, exc: Exception) -> None:
        """No queue takes a job; one that has nodes keeps them."""
        self.withdraw(entry)
        entry.refuse(self.problem(entry.uid, exc))

    def problem(self, uid: str, exc: Exception) -> str:
        """What is wrong with the objects of a workload. The definition of a kind may leave the form of its fields open;
        what was found of another form than theirs may be a defect of this program as well.
        """
        if isinstance(exc, (resources.Malformed, Refusal, RequestError)):
            return str(exc)[:LONGEST_REASON]
        self._context.defects.append((uid, exc))
        kind = self._context.snapshot.workloads[uid][0].kind.kind
        return f"its fields are not those of a {kind}: {exc!r}"[:LONGEST_REASON]

    def queue_up(self, entry: Entry, queue: ClusterQueue) -> None:
        """Put what a job waits for in front of its queue's graph, or refuse the job where that is no request."""
        try:
            if entry.request:
                self._submit(entry, queue, entry.request)
        except Exception as exc:
            self.refuse(entry, exc)

    def _submit(self, entry: Entry, queue: ClusterQueue, asked: Request) -> None:
        context, pods = self._context, entry.wanted
        others = {name: beside(entry, queue, name, entry.places) for name in pods}
        numbers = pods if len(pods) > 1 else None
        sets = tuple((name, asked.sets[name], others[name]) for name in pods)
        shape = sets, numbers, asked.duration, asked.within, entry.priority
        if shape != entry.shape:
            self._withdraw_parts(entry)
            entry.shape, entry.sets_in_line = shape, tuple(pods)
        # Pods that depend on each other's nodes, or on what is left of a quota, are asked for one after the other.
        is_apart = any(asked.sets[name].is_apart for name in pods)
        window = 1 if is_apart or asked.within or context.account_of(entry) else WINDOW
        wanted = Counter(parts_of(entry.waits, entry.demand.together, window))
        for part in [*reversed(entry.line)]:
            if sum(1 for one in entry.line.values() if one == entry.line[part]) > wanted[entry.line[part]]:
                self._withdraw_part(entry, part)
        for wait, number in wanted.items():
            for _ in range(number - sum(1 for one in entry.line.values() if one == wait)):
                part = next(context.parts) if entry.jobid in entry.line else entry.jobid
                request = request_of(entry, asked, pods if numbers else dict.fromkeys(pods, wait.pods), others)
                queue.submit(part, request, entry.priority, wait.since)
                entry.line[part] = wait
                context.by_part[part] = entry
                if len(entry.line) > 1:
                    context.in_parts[entry.uid] = entry
                context.changed[entry.queue] = None

    # --- quotas

    def account_all(self) -> None:
        """Account all jobs that were touched. By now all that jobs and others have is entered."""
        for uid in self._context.touched:
            if uid in self._context.entries:
                with self.contained(uid):
                    self.account(self._context.entries[uid])

    def account(self, entry: Entry) -> None:
        """Enter what a job has and asks for into the account of its namespace; without one, it is in the order at
        once.
        """
        account, queue = self._context.account_of(entry), self._context.queues.get(entry.queue)
        if account is None:
            # A few parts less in front of the graph than there may be are not filled up one by one.
            if queue and entry.is_ready and len(entry.line) <= WINDOW // 2:
                self.queue_up(entry, queue)
            return
        if entry.has_nodes:
            outside = (resources.amounts_of(pod["spec"], pod.get("status")) for pod in self._context.outside(entry))
            account.run(entry.jobid, resources.total([entry.holds, *outside]))
        # What waits beside what runs is entered by the negative id.
        waiting, other = (-entry.jobid, 0) if entry.has_nodes else (entry.jobid, -entry.jobid)
        if entry.is_ready and entry.waits:
            account.wait(waiting, (-entry.priority, entry.waits[0].since, waiting), entry.needs)
        else:
            account.forget(waiting)
        account.forget(other)

    def keep_quotas(self, name: str) -> None:
        """Have those jobs in a queue's order that the quotas of their namespaces have room for."""
        for account in self._context.queues[name].accounts.values():
            if account.has_changed:
                self._keep_quota(account)
                self._context.changed[name] = None

    def are_quotas_kept(self, name: str) -> bool:
        """Whether nothing has changed for quotas since."""
        return not any(account.has_changed for account in self._context.queues[name].accounts.values())

    def _keep_quota(self, account: Account) -> None:
        for jobid, is_within in account.review():
            entry = self._context.by_part[abs(jobid)]
            if is_within and not entry.is_submitted:
                entry.excess = ""
                self.queue_up(entry, self._context.queues[entry.queue])
                self.account(entry)
            elif not is_within:
                self._withdraw_parts(entry)
                entry.is_reserved, entry.position, entry.estimate = False, 0, 0
                self.exceed(entry, account.excess(jobid))
            self._context.touched[entry.uid] = None

    def exceed(self, entry: Entry, excess: str) -> None:
        """A job is over limits of its namespace's quota."""
        entry.explain(growing(entry, excess))
        entry.excess = excess

    # --- positions

    def forget_positions(self) -> None:
        """Jobs may have come and gone."""
        self._further_parts.clear()

    def locate(self, entry: Entry, queue: ClusterQueue, now: int, expected: float) -> None:
        """Bring position and estimate of a job in front of a graph up to date; `expected` is its start as far as sums
        tell.
        """
        first = first_part(queue, entry)
        at = queue.queue.pending[first].position
        entry.position = queue.queue.waiting.count_before(at) - self._count_further_parts(entry.queue, at) + 1
        reserved = queue.reserved_start(first, now)
        # The expected start was worked out when the tour began, and may have passed since.
        entry.is_reserved, entry.estimate = reserved > 0, reserved or (expected if expected > now else 0)

    def _count_further_parts(self, name: str, before: Position) -> int:
        """How many parts of jobs before a position in a queue are not the first of their job."""
        found = self._further_parts.get(name)
        if found is None:
            pending = self._context.queues[name].queue.pending
            parts = (entry.line for entry in self._context.in_parts.values() if entry.queue == name)
            found = sorted(at for line in parts for at in sorted(pending[part].position for part in line)[1:])
            self._further_parts[name] = found
        return bisect_left(found, before)


def first_part(queue: ClusterQueue, entry: Entry) -> int:
    """That part of what a job waits for which is the first in the order of its queue."""
    return min(entry.line, key=lambda part: queue.queue.pending[part].position)
