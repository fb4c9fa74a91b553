"""What a job added to the planners of a graph; removing the same spans undoes it exactly."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.sched.graph.planner import Planner


class Spans(NamedTuple):
    """What a job added to planners: `units`, vertices of which it has one unit; `users`, vertices that it
    shares; and other amounts, each with the map of planners and the key in it.

    `by_amount` has one planner for each amount. It stands in every map where this job is the only user of that amount,
    and is copied before another use is added there (`Planner.copy_on_write`). `maps`, `keys` and `amounts` are parallel
    lists, not one list of tuples: the tuples would live as long as the job, and the garbage collector would visit each
    of them.
    """

    units: list[int]
    users: list[int]
    maps: list[Any]
    keys: list[Any]
    amounts: list[int]
    by_amount: dict[int, Planner]

    def hold(self, planners: dict[Any, Planner], key: int | str, start: int, end: int, amount: int) -> None:
        """Add an amount that is in use in [start, end)."""
        self.maps.append(planners)
        self.keys.append(key)
        self.amounts.append(amount)
        own = self.by_amount.get(amount)
        if own is None:
            own = self.by_amount[amount] = Planner(start, end, amount)
            own.copy_on_write = True
        add_use(planners, key, own, start, end, amount)


def add_use(planners: dict[Any, Planner], key: int | str, own: Planner, start: int, end: int, amount: int) -> None:
    """Add an amount that is in use in [start, end) to the planner at `key`.

    `own` is a planner with just that use: it is stored where there is none yet. A stored planner that is
    `copy_on_write` is replaced by a copy first, since other keys share it.
    """
    plan = planners.get(key)
    if plan is None:
        planners[key] = own
        return
    if plan.copy_on_write:
        plan = planners[key] = plan.copy()
    plan.add(start, end, amount)
