"""Metrics of a simulation: waits of jobs, utilisation of the machine, fairness among users.

They are numbers for a table (`measure`), and series for charts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum
from typing import NamedTuple

from headrace.formats.plots.spread import Spread, by_size, spread
from headrace.sched.graph.request import total_needs
from headrace.sched.queueing.simulate import Run, Simulation

# A job shorter than these seconds counts as this long in its slowdown (Feitelson and others' bounded slowdown).
BOUND = 10


class Metrics(NamedTuple):
    """The metrics of a simulation.

    `makespan` and `wait` are in seconds. `utilisation` is, by resource type, the share in use from the first submission
    to the end of the last job.

    `fairness` is Jain's index over the users' mean slowdowns: 1 if all are slowed down alike, 1/users if only one is
    slowed down. `backfilled` jobs started while a job before them in the queue still waited. `cut` jobs ended at their
    time limit.
    """

    jobs: int
    ran: int
    never: int
    cut: int
    backfilled: int
    makespan: int
    utilisation: dict[str, float]
    wait: Spread
    slowdown: Spread
    fairness: float


def measure(simulation: Simulation) -> Metrics:
    """The metrics of a simulation."""
    runs = simulation.runs
    makespan = simulation.last - simulation.first
    return Metrics(
        jobs=len(runs) + len(simulation.never),
        ran=len(runs),
        never=len(simulation.never),
        cut=sum(run.end - run.start < run.job.runtime for run in runs),
        backfilled=sum(run.backfilled for run in runs),
        makespan=makespan,
        utilisation={
            kind: used / (simulation.have[kind] * makespan) if makespan and simulation.have[kind] else 0.0
            for kind, used in simulation.used.items()
        },
        wait=spread(run.start - run.job.submit for run in runs),
        slowdown=spread(slowdown(run) for run in runs),
        fairness=fairness(runs),
    )


def slowdown(run: Run) -> float:
    """The job's turnaround time divided by its runtime, at least 1; short runtimes count as BOUND."""
    length = run.end - run.start
    return max(1.0, (run.end - run.job.submit) / max(length, BOUND))


def fairness(runs: Iterable[Run]) -> float:
    """Jain's index over users' mean slowdowns; 1 without runs."""
    by_user: dict[str, list[float]] = {}
    for run in runs:
        by_user.setdefault(run.job.user, []).append(slowdown(run))
    means = [fsum(found) / len(found) for found in by_user.values()]
    squares = fsum(mean * mean for mean in means)
    return fsum(means) ** 2 / (len(means) * squares) if squares else 1.0


def cores_of(run: Run, cores_per_node: int) -> int:
    """The cores that a job requests; for a request without cores, those of its nodes."""
    needs = total_needs(run.job.request.resources)
    return needs.get("core") or needs.get("node", 1) * cores_per_node


def used_over_time(simulation: Simulation, cores_per_node: int, bins: int = 240) -> list[tuple[float, float]]:
    """The mean number of cores requested by running jobs, in `bins` equal parts of the time.

    Each item has the middle of the part (seconds since the first submission) and the cores.
    """
    span = simulation.last - simulation.first
    if span <= 0:
        return []
    changes: list[tuple[float, int]] = []
    for run in simulation.runs:
        cores = cores_of(run, cores_per_node)
        changes += [(run.start, cores), (run.end, -cores)]
    changes.sort()
    found = []
    now, cores, at = float(simulation.first), 0, 0
    for number in range(bins):
        end = simulation.first + span * (number + 1) / bins
        begin, area = now, 0.0
        while at < len(changes) and changes[at][0] <= end:
            when, change = changes[at]
            area += cores * (when - now)
            now, cores, at = when, cores + change, at + 1
        area += cores * (end - now)
        now = end
        found.append(((begin + end) / 2 - simulation.first, area / (end - begin)))
    return found


def waits_by_size(runs: Sequence[Run], cores_per_node: int) -> list[tuple[str, list[float]]]:
    """Seconds from submission to start, by the cores that jobs asked for: 1, 2 to 3, 4 to 7, and so on."""
    return by_size((cores_of(run, cores_per_node), float(run.start - run.job.submit)) for run in runs)
