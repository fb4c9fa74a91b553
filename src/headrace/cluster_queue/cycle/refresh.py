"""Positions, reasons and estimates of waiting jobs.

Very many jobs may wait, so each refresh updates only some of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf
from typing import NamedTuple

from headrace.sched.queueing.reasons import Explainer

from ..model import fluxjobs
from ..model.cluster_queue import ClusterQueue
from ..model.entry import Entry, waiting_reason
from ..names import DURATION
from .context import Context
from .order import Order, first_part

# Minimum seconds between two writes of a status in which only a position, an estimate or a count has changed.
STATUS_INTERVAL = 30.0
BEHIND = "waits for the jobs before it"
# Seconds between two refreshes.
REFRESH_INTERVAL = 2.0
# The maximum number of status writes per second, for all jobs together, in which only a position or an estimate has
# changed.
STATUS_RATE = 50.0
# A refresh updates this many jobs at the head of each queue, and in turn this many of the jobs behind them.
_HEAD = 100
_SLICE = 400
_UNLIMITED = (
    "; its duration is not known, so it never starts ahead of a reservation: set activeDeadlineSeconds or "
    f"the annotation {DURATION}"
)


class _Tour(NamedTuple):
    """The jobs of a queue that are still to be updated, each with its estimated start (0: not known)."""

    queue: ClusterQueue
    rest: Iterator[tuple[Entry, float]]


class Refresh:
    """Keeps positions, reasons and estimates up to date.

    `at` is the time of the next refresh (seconds since the epoch). `first_estimates` has, by queue, the earliest
    estimated start of its waiting jobs. If that time passes without a start, a running job has exceeded its duration.
    """

    def __init__(self, context: Context, order: Order, now: float) -> None:
        self.at = self._credited_at = now
        self.first_estimates: dict[str, float] = {}
        self._context = context
        self._order = order
        self._credit = STATUS_RATE
        self._explainer = Explainer()
        self._tours: dict[str, _Tour] = {}

    @property
    def is_due(self) -> bool:
        """Whether there are jobs to update."""
        return bool(self._context.changed or self._tours)

    def expire(self, now: float) -> None:
        """Mark queues as changed whose first estimate has passed: a running job has exceeded its duration."""
        for name in [name for name, at in self.first_estimates.items() if at <= now]:
            del self.first_estimates[name]
            self._context.changed[name] = None

    def refresh(self, now: float) -> Iterator[Entry]:
        """Update some of the waiting jobs; returns those whose status must be written."""
        self._credit = min(self._credit + (now - self._credited_at) * STATUS_RATE, STATUS_RATE)
        self._credited_at, self.at = now, now + REFRESH_INTERVAL
        changed, self._context.changed = self._context.changed, {}
        for name in [*changed, *(name for name in self._tours if name not in changed)]:
            tour = self._tours.pop(name, None)
            queue = self._context.queues.get(name)
            if queue is None:
                continue
            in_order = self._in_order(queue, int(now))
            yield from self._update_all(islice(in_order, _HEAD), name, queue, now)
            if tour is None or tour.queue is not queue:
                tour = _Tour(queue, in_order)
            elif name in changed:
                # Jobs that this tour has passed may have other positions by now, so another tour follows.
                self._context.changed[name] = None
            yield from self._continue_tour(tour, name, now)
            yield from self._update_quotas(name, queue, now)

    def _continue_tour(self, tour: _Tour, name: str, now: float) -> Iterator[Entry]:
        """Continue a tour; it pauses when no more status writes are allowed, so that all jobs get their turn."""
        for _ in range(_SLICE):
            if self._credit < 1:
                break
            one = next(tour.rest, None)
            if one is None:
                return
            yield from self._update_all([one], name, tour.queue, now)
        self._tours[name] = tour

    def _in_order(self, queue: ClusterQueue, now: int) -> Iterator[tuple[Entry, float]]:
        """The jobs of a queue in order, each once, with the start expected by sums of resources (0: not known)."""
        seen: set[str] = set()
        for jobid, start in queue.expected_starts(now):
            entry = self._context.by_part.get(jobid)
            if entry is not None and entry.uid not in seen:
                if len(entry.pending) > 1:
                    seen.add(entry.uid)
                yield entry, start

    def _update_all(
        self, jobs: Iterable[tuple[Entry, float]], name: str, queue: ClusterQueue, now: float
    ) -> Iterator[Entry]:
        """Update jobs of a queue; returns those whose status must be written."""
        for entry, expected in jobs:
            before = entry.status.reason
            self.update(entry, int(now), expected)
            if entry.standing.estimate:
                self.first_estimates[name] = min(self.first_estimates.get(name, inf), entry.standing.estimate)
            if entry.status.reason != before:
                pass
            elif fluxjobs.forecast_of(entry) == entry.published.forecast:
                continue
            elif now - entry.published.at >= STATUS_INTERVAL and self._credit >= 1:
                self._credit -= 1
            else:
                self._context.changed[name] = None
                continue
            yield entry

    def _update_quotas(self, name: str, queue: ClusterQueue, now: float) -> Iterator[Entry]:
        """Update the amounts by which jobs exceed quotas, at the same rate as positions."""
        for account in queue.accounts.values():
            for jobid in account.outside():
                entry = self._context.by_part[abs(jobid)]
                if now - entry.published.at < STATUS_INTERVAL or self._credit < 1:
                    self._context.changed[name] = None
                elif (excess := account.excess(jobid)) != entry.standing.excess:
                    self._credit -= 1
                    self._order.exceed(entry, excess)
                    yield entry

    def update(self, entry: Entry, now: int, expected: float = 0) -> None:
        """Update a pending job. `expected` is its start, as expected by sums of resources (0: not known)."""
        queue = self._context.queues[entry.queue]
        self._order.locate(entry, queue, now, expected)
        entry.explain(self._why(queue, entry, now))

    def update_reason(self, entry: Entry, now: int) -> None:
        """Update the reason of a pending job that has changed.

        Except for the first job of the queue, which only `refresh` updates: the amounts in its reason change all the
        time.
        """
        if entry.standing.position > 1:
            entry.explain(self._why(self._context.queues[entry.queue], entry, now))

    def _why(self, queue: ClusterQueue, entry: Entry, now: int) -> str:
        """Why a job waits. Only the first job's reason has amounts, so that other reasons rarely change."""
        if entry.standing.position == 1:
            state = queue.queue, queue.scheduler.generation, now
            why = str(self._explainer.explain(queue.queue, first_part(queue, entry), now, state)["reason_pending"])
            why += queue.taken_by_others()
        else:
            why = BEHIND
        is_kept_back = (
            entry.standing.position > 1 and queue.queue.policy.backfill and entry.request and not entry.request.duration
        )
        return waiting_reason(entry, why + _UNLIMITED if is_kept_back else why)
