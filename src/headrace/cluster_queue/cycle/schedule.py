"""Schedule: which of the pending jobs of a queue start now, and on which nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.sched.queueing.queue import Planned, Refused, Started
from headrace.sched.queueing.why import never, while_down

from ..model.cluster_queue import ClusterQueue
from ..model.entry import Entry, waiting_reason
from ..model.request import jobspec_of, request_of
from .context import Context
from .order import Order


class Start(NamedTuple):
    """The start of a part of a job, with `nodes` for each set; no nodes if no node could ever serve it."""

    entry: Entry
    part: int
    nodes: list[list[str]]


class Schedule:
    """The fourth step: lets a queue decide."""

    def __init__(self, context: Context, order: Order) -> None:
        self._context = context
        self._order = order

    def decide(self, name: str, now: int) -> Iterator[Start]:
        """The decisions of a queue about its jobs.

        A job that starts holds nothing yet: the caller must hold its slots before it takes the next decision.
        """
        queue = self._context.queues[name]
        for decision, given in queue.schedule(now):
            entry = self._context.by_part.get(decision.jobid)
            self._context.changed[name] = None
            if entry is None or isinstance(decision, Planned):
                continue
            if isinstance(decision, Refused):
                self._refuse(entry, queue, decision)
            yield Start(entry, decision.jobid, given if isinstance(decision, Started) else [])

    def _refuse(self, entry: Entry, queue: ClusterQueue, decision: Refused) -> None:
        """Refuse a part of a job that no node could serve. It is tried again when nodes change."""
        self._order.refuse_part(entry, decision.jobid)
        if entry.request is None:
            return
        request = request_of(entry, entry.request, entry.wanted, {})
        why = while_down(queue.scheduler, request, decision.failure)
        if not why:
            why = never(queue.scheduler, jobspec_of(entry, entry.request), request, decision.failure)
            why = f"no node could ever serve it as nodes are now: {why}"
        entry.explain(waiting_reason(entry, why + queue.taken_by_others()))
