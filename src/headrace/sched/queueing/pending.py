"""The pending jobs of a queue, in order of priority and arrival, and grouped by shape of request.

Most jobs of a queue have one of a few shapes, and a shape that does not fit for one job fits for none, so the scheduler
works shape by shape.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from headrace.sched.graph.request import JobRequest, Request
from headrace.sched.queueing.failed_searches import FOR_EVER
from headrace.sched.queueing.sorted_list import SortedList

Position = tuple[int, float, int]
# Seconds for which a job without a time limit may be planned. With a planned end, jobs that wait for its resources can
# get a reservation, and are not overtaken without end.
UNLIMITED = 10 * 365 * 24 * 3600


class PendingJob(NamedTuple):
    """A pending job.

    Its `position` in the queue is (-priority, arrival, id). Its time limit `length` is in seconds (FOR_EVER without
    one). `shape` is the text that `shape_of` makes of its request.
    """

    position: Position
    request: JobRequest
    shape: str
    length: int


class PendingJobs:
    """The pending jobs of a queue.

    `by_id` has each job, `order` the positions of all. By shape, `by_shape` has the positions and `lengths` the time
    limits. All lists are sorted.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, PendingJob] = {}
        self.order: SortedList[Position] = SortedList()
        self.by_shape: dict[str, SortedList[Position]] = {}
        self.lengths: dict[str, SortedList[int]] = {}
        self._arrivals = 0

    def add(self, jobid: int, request: JobRequest, priority: int, arrival: float | None = None) -> int:
        """Add a job behind earlier arrivals of its priority (by default all); returns how many precede it."""
        self._arrivals += 1
        position = (-priority, self._arrivals if arrival is None else arrival, jobid)
        return self._insert(PendingJob(position, request, shape_of(request), request.duration or FOR_EVER))

    def remove(self, jobid: int) -> int:
        """Remove a job; returns how many preceded it. Raises KeyError."""
        job = self.by_id.pop(jobid)
        positions = self.by_shape[job.shape]
        positions.remove(job.position)
        self.lengths[job.shape].remove(job.length)
        if not positions:
            del self.by_shape[job.shape], self.lengths[job.shape]
        return self.order.remove(job.position)

    def move(self, jobid: int, priority: int) -> tuple[int, int]:
        """Change a job's priority; returns how many jobs preceded it before and after. Raises KeyError."""
        job = self.by_id[jobid]
        return self.remove(jobid), self._insert(job._replace(position=(-priority, *job.position[1:])))

    def move_all(self, priorities: Mapping[int, int]) -> int:
        """Change the priorities of many jobs; returns how many jobs at the front keep their places. Raises KeyError.

        The lists are sorted anew, which takes about as long as `move` for a 64th of all jobs.
        """
        by_id, before = self.by_id, self.order
        for jobid, priority in priorities.items():
            (_, arrival, _), request, shape, length = by_id[jobid]
            by_id[jobid] = PendingJob((-priority, arrival, jobid), request, shape, length)
        self.order = SortedList(sorted(job.position for job in by_id.values()))
        positions: dict[str, list[Position]] = {shape: [] for shape in self.by_shape}
        for position in self.order:
            positions[by_id[position[2]].shape].append(position)
        self.by_shape = {shape: SortedList(found) for shape, found in positions.items()}
        same = 0
        for old, new in zip(before, self.order, strict=True):
            if old[2] != new[2]:
                break
            same += 1
        return same

    def _insert(self, job: PendingJob) -> int:
        self.by_id[job.position[2]] = job
        positions = self.by_shape.get(job.shape)
        if positions is None:
            positions = self.by_shape[job.shape] = SortedList()
            self.lengths[job.shape] = SortedList()
        positions.add(job.position)
        self.lengths[job.shape].add(job.length)
        return self.order.add(job.position)

    def count_before(self, position: Position) -> int:
        """How many jobs precede a position."""
        return self.order.count_before(position)

    def alike(self, count: int) -> list[int]:
        """The ids of the first jobs, `count` at most, up to the first job whose shape or time limit differs."""
        ids = [jobid for _, _, jobid in self.order.first(count)]
        if len(self.by_shape) == 1:
            (lengths,) = self.lengths.values()
            if lengths[0] == lengths[len(lengths) - 1]:
                return ids
        for i, jobid in enumerate(ids):
            job, first = self.by_id[jobid], self.by_id[ids[0]]
            if (job.shape, job.length) != (first.shape, first.length):
                return ids[:i]
        return ids


def shape_of(request: JobRequest) -> str:
    """A text that is equal for two requests if and only if they differ in nothing but their duration."""
    if request.shape is None:
        parts = [[[_shape(r) for r in one.resources], one.constraint, one.is_apart] for one in request.sets]
        shape = [parts, request.within] if parts else [[_shape(r) for r in request.resources], request.constraint]
        request.shape = json.dumps(shape, sort_keys=True)
    return request.shape


def _shape(request: Request) -> list[object]:
    count = request.count
    return [
        request.type,
        count.low,
        count.high,
        count.operator,
        count.operand,
        count.ids and count.ids.encode(),
        request.exclusive,
        # JGF contains the labels of a job's resources, but not those of slots.
        "" if request.is_slot else request.label,
        [_shape(r) for r in request.with_],
    ]
