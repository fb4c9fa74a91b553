"""The jobs that wait, in order, and by what they ask for: most of them are alike, and what fails for one fails for all.

A job's position in line is its priority (highest first), then its arrival.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from headrace.graph.request import JobRequest, Request
from headrace.queueing.failed_searches import FOR_EVER
from headrace.queueing.sorted_list import SortedList

Position = tuple[int, float, int]


class PendingJob(NamedTuple):
    """A waiting job: `position` is (-priority, arrival, id), `length` how long it runs at most (seconds)."""

    position: Position
    request: JobRequest
    shape: str
    length: int


class PendingJobs:
    """Waiting jobs: `by_id` by id, `order` all positions, `by_shape` and `lengths` positions and lengths by shape, sorted."""

    def __init__(self) -> None:
        self.by_id: dict[int, PendingJob] = {}
        self.order: SortedList[Position] = SortedList()
        self.by_shape: dict[str, SortedList[Position]] = {}
        self.lengths: dict[str, SortedList[int]] = {}
        self._arrivals = 0

    def add(self, jobid: int, request: JobRequest, priority: int, arrival: float | None = None) -> int:
        """Put a job behind those of its priority that arrived earlier, by default all; returns how many are before."""
        self._arrivals += 1
        position = (-priority, self._arrivals if arrival is None else arrival, jobid)
        return self._insert(PendingJob(position, request, shape_of(request), request.duration or FOR_EVER))

    def remove(self, jobid: int) -> int:
        """Take a job out; returns how many were before it. Raises KeyError."""
        job = self.by_id.pop(jobid)
        positions = self.by_shape[job.shape]
        positions.remove(job.position)
        self.lengths[job.shape].remove(job.length)
        if not positions:
            del self.by_shape[job.shape], self.lengths[job.shape]
        return self.order.remove(job.position)

    def move(self, jobid: int, priority: int) -> tuple[int, int]:
        """Give a job another priority; returns how many were before it and are now. Raises KeyError."""
        job = self.by_id[jobid]
        return self.remove(jobid), self._insert(job._replace(position=(-priority, *job.position[1:])))

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
        """How many jobs are before a position."""
        return self.order.count_before(position)

    def alike(self, count: int) -> list[int]:
        """The first jobs, `count` at most, as long as they ask for the same as the first."""
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
    """A text that is equal for requests that differ in duration at most."""
    if request.shape is None:
        resources = [_shape(r) for r in request.resources]
        request.shape = json.dumps([resources, request.constraint], sort_keys=True)
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
        [_shape(r) for r in request.with_],
    ]
