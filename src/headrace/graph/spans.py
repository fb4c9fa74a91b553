"""What a job added to the planners of a graph; removing the same spans undoes it exactly."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.graph.planner import Planner


class Spans(NamedTuple):
    """What a job added to planners: `units`, vertices of size 1 that it has exclusively; `users`, vertices that it
    shares; and other amounts, each with the map of planners and the key in it.

    Where a key has no planner yet, the job's own planner for that amount is stored: one object for all such keys, which
    `common` has by amount. These are parallel lists, not a list of tuples, since the garbage collector visits every
    object that lives as long as its job.
    """

    units: list[int]
    users: list[int]
    maps: list[Any]
    keys: list[Any]
    amounts: list[int]
    common: dict[int, Planner]

    def hold(self, planners: dict[Any, Planner], key: int | str, start: int, end: int, amount: int) -> None:
        """Add an amount that is in use in [start, end)."""
        self.maps.append(planners)
        self.keys.append(key)
        self.amounts.append(amount)
        own = self.common.get(amount)
        if own is None:
            own = self.common[amount] = Planner(start, end, amount)
            own.common = True
        hold(planners, key, own, start, end, amount)


def hold(planners: dict[Any, Planner], key: int | str, own: Planner, start: int, end: int, amount: int) -> None:
    """Add an amount that is in use in [start, end). `own` is a planner with just that use, stored if there is
    none yet.
    """
    plan = planners.get(key)
    if plan is None:
        planners[key] = own
        return
    if plan.common:
        plan = planners[key] = plan.copy()
    plan.add(start, end, amount)
