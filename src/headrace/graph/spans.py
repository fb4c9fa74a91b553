"""What a job added to the planners of a graph, so that taking the same away undoes it exactly."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.graph.planner import Planner


class Spans(NamedTuple):
    """What a job added to planners: vertices of one unit that it has for itself (`units`) and that it shares (`users`),
    and other amounts, each to the planner of a key in a map.

    Where nobody else has used anything the job's own planner for that amount stands, of `common`. Flat lists, not
    tuples, as each object that lives as long as its job costs the garbage collector time.
    """

    units: list[int]
    users: list[int]
    maps: list[Any]
    keys: list[Any]
    amounts: list[int]
    common: dict[int, Planner]

    def hold(self, planners: dict[Any, Planner], key: int | str, start: int, end: int, amount: int) -> None:
        """An amount is in use in [start, end)."""
        self.maps.append(planners)
        self.keys.append(key)
        self.amounts.append(amount)
        own = self.common.get(amount)
        if own is None:
            own = self.common[amount] = Planner(start, end, amount)
            own.common = True
        hold(planners, key, own, start, end, amount)


def hold(planners: dict[Any, Planner], key: int | str, own: Planner, start: int, end: int, amount: int) -> None:
    """`own` is the planner that says just that an amount is in use in [start, end), to stand for it where it can."""
    plan = planners.get(key)
    if plan is None:
        planners[key] = own
        return
    if plan.common:
        plan = planners[key] = plan.copy()
    plan.add(start, end, amount)
