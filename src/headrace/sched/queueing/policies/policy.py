"""A queue policy: how many pending jobs have a reservation, and whether jobs behind them may start first."""

from __future__ import annotations

from typing import NamedTuple


class QueuePolicy(NamedTuple):
    """`reservations`: how many of the first pending jobs have one, None for all. `backfill`: others may start first.

    `keeps`: reservations beyond that number are kept while no job that precedes theirs has to wait for them; otherwise
    only the first jobs ever have one.
    """

    name: str
    reservations: int | None
    backfill: bool
    keeps: bool = False
