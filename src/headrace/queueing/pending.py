"""The jobs that wait, in order, and by what they ask for: most of them are alike, and what fails for one fails for all.

A job's place in line is its priority (highest first), then its arrival.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from headrace.graph.request import JobRequest, Request
from headrace.queueing.failed_searches import FOR_EVER
from headrace.queueing.sorted_list import SortedList

Place = tuple[int, float, int]


class PendingJob(NamedTuple):
    """A waiting job: `place` is (-priority, arrival, id), `length` how long it runs at most (seconds)."""

    place: Place
    request: JobRequest
    shape: str
    length: int


class PendingJobs:
    """Waiting jobs: `entries` by id, `order` all places, `shapes` and `lengths` places and lengths by shape, sorted."""

    def __init__(self) -> None:
        self.entries: dict[int, PendingJob] = {}
        self.order: SortedList[Place] = SortedList()
        self.shapes: dict[str, SortedList[Place]] = {}
        self.lengths: dict[str, SortedList[int]] = {}
        self._arrivals = 0

    def add(self, jobid: int, request: JobRequest, priority: int, arrival: float | None = None) -> int:
        """Put a job behind those of its priority that arrived earlier, by default all; returns how many are before."""
        self._arrivals += 1
        place = (-priority, self._arrivals if arrival is None else arrival, jobid)
        return self._insert(PendingJob(place, request, shape_of(request), request.duration or FOR_EVER))

    def remove(self, jobid: int) -> int:
        """Take a job out; returns how many were before it. Raises KeyError."""
        entry = self.entries.pop(jobid)
        places = self.shapes[entry.shape]
        places.remove(entry.place)
        self.lengths[entry.shape].remove(entry.length)
        if not places:
            del self.shapes[entry.shape], self.lengths[entry.shape]
        return self.order.remove(entry.place)

    def move(self, jobid: int, priority: int) -> tuple[int, int]:
        """Give a job another priority; returns how many were before it and are now. Raises KeyError."""
        entry = self.entries[jobid]
        return self.remove(jobid), self._insert(entry._replace(place=(-priority, *entry.place[1:])))

    def _insert(self, entry: PendingJob) -> int:
        self.entries[entry.place[2]] = entry
        places = self.shapes.get(entry.shape)
        if places is None:
            places = self.shapes[entry.shape] = SortedList()
            self.lengths[entry.shape] = SortedList()
        places.add(entry.place)
        self.lengths[entry.shape].add(entry.length)
        return self.order.add(entry.place)

    def before(self, place: Place) -> int:
        """How many jobs are before a place."""
        return self.order.before(place)

    def alike(self, count: int) -> list[int]:
        """The first jobs, `count` at most, as long as they ask for the same as the first."""
        ids = [jobid for _, _, jobid in self.order.first(count)]
        if len(self.shapes) == 1:
            (lengths,) = self.lengths.values()
            if lengths[0] == lengths[len(lengths) - 1]:
                return ids
        for i, jobid in enumerate(ids):
            entry, first = self.entries[jobid], self.entries[ids[0]]
            if (entry.shape, entry.length) != (first.shape, first.length):
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
