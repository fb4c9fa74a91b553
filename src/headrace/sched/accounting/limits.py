"""The limits of associations and queues, as a table: a row for each limit, with the headroom that it leaves.

A limit acts at up to three moments. At DEPEND a job that has no headroom gets a dependency with the limit's name, as in
flux-accounting (`HOLD_LIMITS`). Several jobs that are looked at there before any of them starts can exceed a limit
together, so a job needs headroom again when it enters SCHED (`ENTRY_LIMITS`) and when it starts (`START_LIMITS`,
`STRICT_LIMITS`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headrace.sched.accounting.associations import Counts, Job
from headrace.sched.accounting.values import UNLIMITED, AssociationRow, QueueRow, Request


class Limit(NamedTuple):
    """A limit.

    `side` says what is counted: the jobs of an association ("association"), those of an association in a queue
    ("queue"), or those of all users in a queue ("total"). `headroom(maxima, used, request)` is what would be left with
    the job: below 0 the limit holds it. `maxima` is the row of the association or queue, `used` has the counts.
    """

    name: str
    side: str
    headroom: Callable[[Any, Any, Any], int]


# The order is that in which flux-accounting adds the dependencies.
HOLD_LIMITS = (
    Limit("max-run-jobs-queue", "queue", lambda most, used, job: most.max_running_jobs - used.run_jobs - 1),
    Limit("max-sched-jobs-queue-limit", "queue", lambda most, used, job: most.max_sched_jobs - used.sched_jobs - 1),
    Limit(
        "max-sched-nodes-queue-limit",
        "queue",
        lambda most, used, job: most.max_sched_nodes_per_assoc - used.sched_nodes - job.nodes,
    ),
    Limit(
        "max-sched-cores-queue-limit",
        "queue",
        lambda most, used, job: most.max_sched_cores_per_assoc - used.sched_cores - job.cores,
    ),
    Limit(
        "max-resources-queue",
        "queue",
        lambda most, used, job: most.max_nodes_per_assoc - used.run_nodes - used.sched_nodes - job.nodes,
    ),
    Limit(
        "max-running-jobs-user-limit",
        "association",
        lambda most, used, job: most.max_running_jobs - used.run_jobs - 1,
    ),
    Limit(
        "max-sched-jobs-user-limit",
        "association",
        lambda most, used, job: most.max_sched_jobs - used.sched_jobs - 1,
    ),
    Limit(
        "max-resources-user-limit",
        "association",
        lambda most, used, job: min(
            most.max_nodes - used.run_nodes - job.nodes, most.max_cores - used.run_cores - job.cores
        ),
    ),
)
BY_NAME = {limit.name: limit for limit in HOLD_LIMITS}

ENTRY_LIMITS = tuple(
    BY_NAME[name]
    for name in (
        "max-sched-jobs-queue-limit",
        "max-sched-nodes-queue-limit",
        "max-sched-cores-queue-limit",
        "max-resources-queue",
        "max-sched-jobs-user-limit",
    )
)

START_LIMITS = (
    BY_NAME["max-run-jobs-queue"],
    # A job that starts is among those in SCHED, so here only the nodes of running jobs count.
    Limit(
        "max-resources-queue",
        "queue",
        lambda most, used, job: most.max_nodes_per_assoc - used.run_nodes - job.nodes,
    ),
    BY_NAME["max-running-jobs-user-limit"],
    BY_NAME["max-resources-user-limit"],
)

# The limits of all users together, which flux-accounting stores and does not enforce.
STRICT_LIMITS = (
    Limit("max-nodes-queue-limit", "total", lambda most, used, job: most.max_nodes - used.run_nodes - job.nodes),
    Limit("max-cores-queue-limit", "total", lambda most, used, job: most.max_cores - used.run_cores - job.cores),
)


_NOTHING_USED, _NOTHING_ASKED = Counts(), Request(0, 0, nodes=0, cores=0)


def effective(limits: Sequence[Limit], row: AssociationRow, queue: QueueRow | None) -> tuple[Limit, ...]:
    """Those of `limits` that limit something, for an association in a queue."""
    found = []
    for limit in limits:
        maxima = row if limit.side == "association" else queue
        if maxima is not None and limit.headroom(maxima, _NOTHING_USED, _NOTHING_ASKED) < UNLIMITED - 1:
            found.append(limit)
    return tuple(found)


def has_headroom(limit: Limit, job: Job) -> bool:
    """Whether a limit leaves headroom for a job. A queue that the tables do not have has no limits."""
    side, association = limit.side, job.association
    if side == "association":
        return limit.headroom(association.row, association.used, job.request) >= 0
    row = job.queue.row
    if row is None:
        return True
    if side == "total":
        return limit.headroom(row, job.queue.used, job.request) >= 0
    return not association.is_known or limit.headroom(row, job.used_in_queue, job.request) >= 0
