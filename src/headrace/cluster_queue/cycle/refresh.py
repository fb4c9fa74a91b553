"""Positions, reasons and estimates of the jobs that wait. Very many may wait, so each look is at some of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import inf
from typing import NamedTuple

from headrace.sched.queueing.pending import Position
from headrace.sched.queueing.reasons import Explainer

from ..model import fluxjobs
from ..model.cluster_queue import ClusterQueue
from ..model.entry import Job, growing
from ..names import DURATION
from .assign import Places
from .report import BEHIND, STATUS_INTERVAL

# Seconds between two looks; and how many statuses are written in a second, all together, in which nothing else than a
# position or an estimate has changed.
LOOK_INTERVAL = 2.0
STATUS_RATE = 50.0
# How many jobs of a queue each look is at, from the first on, and how many of those behind them, in turn.
_HEAD = 100
_SLICE = 400
_UNLIMITED = (
    "; its duration is not known, so it is never started ahead of a reservation: give one by activeDeadlineSeconds or "
    f"the annotation {DURATION}"
)


class _Tour(NamedTuple):
    """The jobs of a queue that are still to be looked at, each with its estimated start (0: not known)."""

    queue: ClusterQueue
    rest: Iterator[tuple[Job, float]]


class Refresh:
    """`at` is the time of the next look (seconds since the epoch). `first_estimates` has by queue the earliest
    estimated start of its waiting jobs: when that time comes and none has started, a job runs beyond its duration.

    `jobs` are those that wait or run by id, the ids of their parts included, and `in_parts` those that stand in front
    of a graph with several parts, by uid.
    """

    def __init__(
        self,
        now: float,
        queues: Mapping[str, ClusterQueue],
        places: Places,
        jobs: Mapping[int, Job],
        in_parts: Mapping[str, Job],
    ) -> None:
        self.at = self._credited_at = now
        self.first_estimates: dict[str, float] = {}
        self._credit = STATUS_RATE
        self._queues = queues
        self._places = places
        self._jobs = jobs
        self._in_parts = in_parts
        self._explainer = Explainer()
        self._tours: dict[str, _Tour] = {}
        # By queue the positions of all parts of jobs but the first of each, while they do not change.
        self._further_parts: dict[str, list[Position]] = {}

    @property
    def is_due(self) -> bool:
        """Whether there is something to look at."""
        return bool(self._places.changed or self._tours)

    def forget_positions(self) -> None:
        """Jobs may have come and gone."""
        self._further_parts.clear()

    def look(self, now: float) -> Iterator[Job]:
        """Bring some of those who wait up to date; returns those of which something is to be written."""
        self._credit = min(self._credit + (now - self._credited_at) * STATUS_RATE, STATUS_RATE)
        self._credited_at, self.at = now, now + LOOK_INTERVAL
        changed, self._places.changed = self._places.changed, {}
        for name in [*changed, *(name for name in self._tours if name not in changed)]:
            tour = self._tours.pop(name, None)
            queue = self._queues.get(name)
            if queue is None:
                continue
            line = self._line(queue, int(now))
            yield from self._bring_up_to_date(islice(line, _HEAD), name, queue, now)
            if tour is None or tour.queue is not queue:
                tour = _Tour(queue, line)
            elif name in changed:
                # Jobs that this tour has passed may have other positions by now: another tour follows.
                self._places.changed[name] = None
            yield from self._go_on(tour, name, now)
            yield from self._look_at_quotas(name, queue, now)

    def _go_on(self, tour: _Tour, name: str, now: float) -> Iterator[Job]:
        """A tour stops where no more statuses may be written now, so that all jobs have theirs written in turn."""
        for _ in range(_SLICE):
            if self._credit < 1:
                break
            one = next(tour.rest, None)
            if one is None:
                return
            yield from self._bring_up_to_date([one], name, tour.queue, now)
        self._tours[name] = tour

    def _line(self, queue: ClusterQueue, now: int) -> Iterator[tuple[Job, float]]:
        """The jobs of a queue in order, each once, with the start that sums of resources let expect (0: none)."""
        seen: set[str] = set()
        for jobid, start in queue.expected_starts(now):
            job = self._jobs.get(jobid)
            if job is not None and job.uid not in seen:
                if len(job.line) > 1:
                    seen.add(job.uid)
                yield job, start

    def _bring_up_to_date(
        self, line: Iterable[tuple[Job, float]], name: str, queue: ClusterQueue, now: float
    ) -> Iterator[Job]:
        for job, expected in line:
            before = job.reason
            self.line_up(job, int(now), expected)
            if job.estimate:
                self.first_estimates[name] = min(self.first_estimates.get(name, inf), job.estimate)
            if job.reason != before:
                job.is_due = True
            elif fluxjobs.place_of(job) == job.told_place:
                continue
            elif now - job.told_at >= STATUS_INTERVAL and self._credit >= 1:
                self._credit -= 1
                job.is_due = True
            else:
                self._places.changed[name] = None
                continue
            yield job

    def _look_at_quotas(self, name: str, queue: ClusterQueue, now: float) -> Iterator[Job]:
        """Bring the amounts up to date by which jobs are over quotas, as slowly as positions."""
        for account in queue.accounts.values():
            for jobid in account.outside():
                job = self._jobs[abs(jobid)]
                if now - job.told_at < STATUS_INTERVAL or self._credit < 1:
                    self._places.changed[name] = None
                elif (excess := account.excess(jobid)) != job.excess:
                    self._credit -= 1
                    job.reason, job.excess = growing(job, excess), excess
                    yield job

    def line_up(self, job: Job, now: int, expected: float = 0) -> None:
        """Bring a job that stands in front of a graph up to date; `expected` is its start as far as sums tell."""
        queue = self._queues[job.queue]
        first = _first_part(queue, job)
        at = queue.queue.pending[first].position
        job.position = queue.queue.waiting.count_before(at) - self._count_further_parts(job.queue, at) + 1
        reserved = queue.reserved_start(first, now)
        # The expected start was worked out when the tour began, and may have passed since.
        job.is_reserved, job.estimate = reserved > 0, reserved or (expected if expected > now else 0)
        job.reason = self._why(queue, job, now)

    def explain_again(self, job: Job, now: int) -> None:
        """Something of a job in line has changed, and with that perhaps why it waits. The first one's amounts change
        all the time, and are told as often as there are looks.
        """
        if job.position > 1:
            job.reason = self._why(self._queues[job.queue], job, now)

    def _count_further_parts(self, name: str, before: Position) -> int:
        """How many parts of jobs before a position in a queue are not the first of their job."""
        found = self._further_parts.get(name)
        if found is None:
            pending = self._queues[name].queue.pending
            parts = (job.line for job in self._in_parts.values() if job.queue == name)
            found = sorted(at for line in parts for at in sorted(pending[part].position for part in line)[1:])
            self._further_parts[name] = found
        return bisect_left(found, before)

    def _why(self, queue: ClusterQueue, job: Job, now: int) -> str:
        """Why a job waits. Only the first one's reason has amounts, so that the others' rarely change."""
        if job.position == 1:
            state = queue.queue, queue.scheduler.generation, now
            why = str(self._explainer.explain(queue.queue, _first_part(queue, job), now, state)["reason_pending"])
            why += queue.taken_by_others()
        else:
            why = BEHIND
        is_kept_back = job.position > 1 and queue.queue.policy.backfill and job.asked and not job.asked.duration
        return growing(job, why + _UNLIMITED if is_kept_back else why)


def _first_part(queue: ClusterQueue, job: Job) -> int:
    """That part of what a job waits for which is the first in the order of its queue."""
    return min(job.line, key=lambda part: queue.queue.pending[part].position)
