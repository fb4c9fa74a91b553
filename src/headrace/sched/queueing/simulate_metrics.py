"""What a simulation is judged by: how long jobs waited, how well the machine was used, how evenly users were served."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, fsum
from typing import NamedTuple

from headrace.sched.queueing.simulate import Run, Simulation

# A job shorter than these seconds counts as this long in its slowdown (Feitelson and others' bounded slowdown).
BOUND = 10


class Spread(NamedTuple):
    """A distribution: its mean and percentiles, each a value that occurred (nearest rank). All 0 for no values."""

    mean: float
    median: float
    p90: float
    p99: float
    max: float


class Metrics(NamedTuple):
    """`makespan` and `wait` in seconds; `utilisation` by resource type: the share that jobs had of what there was, from
    the first submission to the end of the last job.

    `fairness` is Jain's index over the users' mean slowdowns: 1 if all are slowed down alike, 1/users if one bears it
    all. `backfilled` jobs started while a job before them in the queue still waited. `cut` jobs ended at their time
    limit.
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
    """The figures of a simulation."""
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
    """How much longer the job took than it ran, at least 1; a job shorter than BOUND counts as that long."""
    length = run.end - run.start
    return max(1.0, (run.end - run.job.submit) / max(length, BOUND))


def spread(values: Iterable[float]) -> Spread:
    """The distribution of some values."""
    ordered = sorted(values)
    if not ordered:
        return Spread(0.0, 0.0, 0.0, 0.0, 0.0)

    def rank(share: float) -> float:
        return ordered[max(0, ceil(share * len(ordered)) - 1)]

    return Spread(fsum(ordered) / len(ordered), rank(0.5), rank(0.9), rank(0.99), ordered[-1])


def fairness(runs: Iterable[Run]) -> float:
    """Jain's index over users' mean slowdowns; 1 without runs."""
    by_user: dict[str, list[float]] = {}
    for run in runs:
        by_user.setdefault(run.job.user, []).append(slowdown(run))
    means = [fsum(found) / len(found) for found in by_user.values()]
    squares = fsum(mean * mean for mean in means)
    return fsum(means) ** 2 / (len(means) * squares) if squares else 1.0
