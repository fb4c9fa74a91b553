"""Job statistics over a span of time, in bins: submissions, starts, ends, usage and wait times.

Pure functions of job descriptions from job-list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

from headrace.formats.spec.job_state import INACTIVE
from headrace.wire.query.job_info import RESULTS

# The attributes of job-list that `statistics` needs.
ATTRIBUTES = [
    *("state", "result", "queue", "ncores", "nnodes", "ntasks", "t_submit", "t_run", "t_cleanup", "t_inactive"),
]
_COUNTS = ("submitted", "started", "ended", *(name.lower() for name in RESULTS.values()))
# Averages over a bin.
_LEVELS = ("pending", "running", "cores", "nodes")

# Rounding tolerance, as a fraction of a bin.
_TRIFLE = 1e-6


class _Bins:
    """Sums over the bins of a time span. A job's interval is added in constant time, by its two ends."""

    def __init__(self, begin: float, end: float, width: float) -> None:
        self.begin, self.end, self.width = begin, end, width
        # Rounding may make the span slightly longer than its bins. That must not add a bin.
        self.number = max(1, ceil((end - begin) / width - _TRIFLE))
        self.counts = {name: [0] * self.number for name in _COUNTS}
        # The level of a bin is the sum of all steps up to the bin, for intervals that fill it, plus the parts of
        # intervals that begin or end in it.
        self._steps = {name: [0.0] * (self.number + 1) for name in _LEVELS}
        self._parts = {name: [0.0] * self.number for name in _LEVELS}

    def count(self, name: str, when: float | None) -> None:
        if when is not None and self.begin <= when < self.end:
            self.counts[name][self._bin(when)] += 1

    def _bin(self, when: float) -> int:
        return min(self.number - 1, int((when - self.begin) / self.width))

    def add(self, name: str, begin: float, end: float, weight: float) -> None:
        """Add an interval from `begin` to `end` with a weight, such as a number of cores."""
        begin, end = max(begin, self.begin), min(end, self.end)
        if end <= begin or not weight:
            return
        first, last = self._bin(begin), self._bin(end)
        parts, steps = self._parts[name], self._steps[name]
        if first == last:
            parts[first] += (end - begin) * weight
            return
        parts[first] += (self.begin + (first + 1) * self.width - begin) * weight
        parts[last] += (end - self.begin - last * self.width) * weight
        steps[first + 1] += weight
        steps[last] -= weight

    def levels(self, name: str) -> list[float]:
        found, level = [], 0.0
        for number in range(self.number):
            level += self._steps[name][number]
            # The last bin may be shorter than the others.
            width = min(self.width, self.end - self.begin - number * self.width)
            found.append(round(level + self._parts[name][number] / width, 6))
        return found


def statistics(jobs: Iterable[Mapping[str, Any]], begin: float, end: float, width: float, now: float) -> dict[str, Any]:
    """Statistics of jobs from `begin` to `end` (seconds since the epoch), in bins of `width` seconds.

    Returns {from, to, bin, bins, waits}. Each bin is {t, submitted, started, ended, completed, failed, canceled,
    timeout, pending, running, cores, nodes}: numbers of jobs, except that the last four are averages over the bin.
    `waits` has {queue, size, count, median, p90, max} for each queue and size, of jobs that started in the span; a size
    is a number of cores, rounded up to a power of two.
    """
    bins = _Bins(begin, end, width)
    waits: dict[tuple[str, int], list[float]] = {}
    for job in jobs:
        submit, run = job["t_submit"], job.get("t_run")
        inactive = job.get("t_inactive")
        stop = job.get("t_cleanup") or inactive or now
        bins.count("submitted", submit)
        bins.count("started", run)
        if job["state"] == INACTIVE:
            bins.count("ended", inactive)
            bins.count(RESULTS[job["result"]].lower(), inactive)
        bins.add("pending", submit, run or stop, 1)
        if run:
            bins.add("running", run, stop, 1)
            bins.add("cores", run, stop, job.get("ncores") or 0)
            bins.add("nodes", run, stop, job.get("nnodes") or 0)
            if begin <= run < end:
                cores = job.get("ncores") or job.get("ntasks") or 1
                waits.setdefault((job.get("queue") or "", 1 << (cores - 1).bit_length()), []).append(run - submit)
    columns: dict[str, list[Any]] = {**bins.counts, **{name: bins.levels(name) for name in _LEVELS}}
    rows = [
        {"t": begin + number * width, **{name: values[number] for name, values in columns.items()}}
        for number in range(bins.number)
    ]
    found = [{"queue": queue, "size": size, **_spread(sorted(waits[queue, size]))} for queue, size in sorted(waits)]
    return {"from": begin, "to": end, "bin": width, "bins": rows, "waits": found}


def _spread(values: list[float]) -> dict[str, Any]:
    """Count, median, p90 and maximum of sorted values, at least one. Percentiles are by nearest rank."""

    def rank(tenths: int) -> float:
        return values[ceil(len(values) * tenths / 10) - 1]

    return {"count": len(values), "median": rank(5), "p90": rank(9), "max": values[-1]}
