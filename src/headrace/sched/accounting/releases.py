"""Which waiting jobs have headroom after jobs started or ended, or limits were raised.

As in flux-accounting, the oldest job goes first, each of its dependencies is removed on its own, and a job that loses
its last one takes a place, so that those behind it are looked at as if it were in SCHED. A job that keeps another
dependency takes no place. Places last as long as the pass: later the counts themselves have the job.

Jobs that may start get resources in an order that only the scheduler knows: the first one may have to wait for hours.
So they take places only from jobs with the same request, which the scheduler would let wait as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace, nsmallest
from itertools import chain
from typing import TYPE_CHECKING

from headrace.formats.spec.job_state import RUN, SCHED
from headrace.sched.accounting.associations import Association, Counts, Job
from headrace.sched.accounting.limits import BY_NAME, Limit, has_headroom
from headrace.sched.accounting.values import Release, Request
from headrace.sched.accounting.waiting import ENTRY, HOLD, START, Group

if TYPE_CHECKING:
    from headrace.formats.spec.job_state import State

# How many different requests of an association a pass may let start. The scheduler gets a job of each, and most of
# them are withdrawn again when one has started.
MOST_REQUESTS = 32


class Places:
    """Places taken for the length of a pass."""

    def __init__(self) -> None:
        self._taken: list[tuple[Counts, Request, State]] = []
        self._runs: list[Counts] = []

    def take(self, job: Job, place: State) -> None:
        """Count a job at a place, beside the place that it has."""
        for counts in (job.association.used, job.used_in_queue, job.queue.used):
            counts.count(job.request, place, 1)
            self._taken.append((counts, job.request, place))

    def take_run(self, counts: Counts) -> None:
        """Count a running job, without its nodes and cores."""
        counts.run_jobs += 1
        self._runs.append(counts)

    def give_back(self) -> None:
        """Give back all places."""
        for counts, request, place in self._taken:
            counts.count(request, place, -1)
        for counts in self._runs:
            counts.run_jobs -= 1
        self._taken.clear()
        self._runs.clear()


def free(
    groups: Iterable[Group], jobs: Mapping[int, Job], limits: Mapping[int, Sequence[Limit]]
) -> tuple[list[Release], list[int]]:
    """Free the jobs that have headroom; returns the dependencies to remove, and the jobs that may enter SCHED or start.

    `limits` are those of the moments ENTRY and START.
    """
    releases: list[Release] = []
    ready: list[int] = []
    places = Places()
    starts: list[Group] = []
    entries: list[Group] = []
    holds: list[Group] = []
    for group in groups:
        if group.key.moment == START:
            starts.append(group)
        elif group.key.moment == ENTRY:
            entries.append(group)
        else:
            holds.append(group)
    _free_starts(starts, jobs, limits[START], places, ready)
    for job in _in_order(entries, jobs):
        if all(has_headroom(limit, job) for limit in limits[ENTRY]):
            job.leave()
            ready.append(job.request.id)
            places.take(job, SCHED)
    for job in _in_order(holds, jobs):
        gone = [name for name in job.holds if has_headroom(BY_NAME[name], job)]
        if not gone:
            continue
        releases.extend(Release(job.request.id, name) for name in gone)
        job.leave()
        job.holds = tuple(name for name in job.holds if name not in gone)
        if job.holds:
            job.wait(HOLD)
            continue
        places.take(job, SCHED)
        if "max-running-jobs-user-limit" in gone:
            places.take_run(job.association.used)
        if "max-run-jobs-queue" in gone:
            places.take_run(job.used_in_queue)
    places.give_back()
    return releases, ready


def _free_starts(
    groups: Iterable[Group], jobs: Mapping[int, Job], limits: Sequence[Limit], places: Places, ready: list[int]
) -> None:
    """Add the jobs that may start to `ready`. Places last only for the jobs of one group."""
    heads: dict[Association, list[tuple[tuple[int, int], Group]]] = {}
    for group in groups:
        first = group.first()
        if first is not None:
            heads.setdefault(jobs[first[1]].association, []).append((first, group))
    for _, group in chain.from_iterable(nsmallest(MOST_REQUESTS, own) for own in heads.values()):
        for job in _in_order([group], jobs):
            if all(has_headroom(limit, job) for limit in limits):
                job.leave()
                ready.append(job.request.id)
                if job.priority:
                    places.take(job, RUN)
        places.give_back()


def _in_order(groups: Iterable[Group], jobs: Mapping[int, Job]) -> Iterable[Job]:
    """The first jobs of groups, in order, as long as the caller lets each leave its group.

    Room only shrinks during a pass, so a group whose first job stays is done.
    """
    heads = []
    for group in groups:
        first = group.first()
        if first is not None:
            heads.append((first, group.key, group))
    heapify(heads)
    while heads:
        (_, jobid), key, group = heads[0]
        job = jobs[jobid]
        yield job
        first = None if job.group is group else group.first()
        if first is None:
            heappop(heads)
        else:
            heapreplace(heads, (first, key, group))
