"""What a queue policy is: how many waiting jobs are promised a start, and whether others may pass them."""

from __future__ import annotations

from typing import NamedTuple


class QueuePolicy(NamedTuple):
    """`reservations`: how many of the first waiting jobs get one, None for all. `backfill`: jobs behind may go first.

    `keeps`: a promise is kept when others come ahead of its job; otherwise only the first jobs ever have one.
    """

    name: str
    reservations: int | None
    backfill: bool
    keeps: bool = False
