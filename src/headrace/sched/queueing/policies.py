"""Queue policies: how many pending jobs have reservations, and whether others may start first.

`POLICIES` has one line for each policy, named as Fluxion names it.
"""

from __future__ import annotations

from typing import NamedTuple


class QueuePolicy(NamedTuple):
    """A queue policy.

    `reservations` is how many of the first pending jobs have one, None for all. `backfill`: other jobs may start before
    them. `keeps`: reservations beyond that number are kept as long as no job before them has to wait for them;
    otherwise only the first jobs ever have one.
    """

    name: str
    reservations: int | None
    backfill: bool
    keeps: bool = False


_TABLE = (
    # First come, first served: no job starts before the first pending job.
    QueuePolicy("fcfs", reservations=0, backfill=False),
    # The first pending job has a reservation, and jobs that do not delay it may start before it.
    QueuePolicy("easy", reservations=1, backfill=True),
    # The first pending jobs, 64 by default, have reservations.
    QueuePolicy("hybrid", reservations=64, backfill=True, keeps=True),
    # Every pending job has a reservation, which no job behind it in the queue ever delays.
    QueuePolicy("conservative", reservations=None, backfill=True, keeps=True),
)
POLICIES = {policy.name: policy for policy in _TABLE}


def by_name(name: str) -> QueuePolicy:
    """The policy with this name. Raises ValueError with a list of the names."""
    try:
        return POLICIES[name]
    except KeyError:
        raise ValueError(f"queue policy {name!r}: must be one of {', '.join(POLICIES)}") from None
