"""Which run begins next: the plan's order, resumption, repeats until an interval is narrow, and the budget."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.run.cells import NO_LIMIT, cell, experiment, result
from headrace.experiments.run.schedule import Schedule
from headrace.experiments.values import Budget, Cell, Result, Run


def width(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if len(values) > 1 else None


def schedule(
    *cells: Cell, done: Sequence[Result] = (), budget: Budget = NO_LIMIT, price: float | None = None
) -> Schedule:
    prices = None if price is None else {"": price}
    return Schedule(*experiment(*cells, budget=budget, prices=prices), list(done), width)


def begun(one: Schedule, target: str = "local", **others: object) -> list[tuple[str, int]]:
    """The runs that begin, one after the other, each ending before the next."""
    out = []
    while taken := one.take(target):
        out.append((taken[0].cell, taken[0].number))
        one.add(taken[0], result(taken[0], taken[1], **others))  # type: ignore[arg-type]
    return out


def test_runs_begin_in_the_order_of_the_plan_with_positions() -> None:
    one = schedule(cell("a", 2), cell("b", 1))
    assert [one.take("local") for _ in range(4)] == [
        (Run(cell="a", number=1), 0),
        (Run(cell="b", number=1), 1),
        (Run(cell="a", number=2), 2),
        None,
    ]
    assert not one.is_finished("local")


def test_runs_that_have_ended_are_not_run_again_and_positions_continue() -> None:
    done = [result(Run(cell="a", number=1), 7, state="failed")]
    one = schedule(cell("a", 2), done=done)
    assert one.take("local") == (Run(cell="a", number=2), 8)


def test_a_stopped_run_is_taken_again_first() -> None:
    one = schedule(cell("a", 3))
    (first, _), _second = one.take("local"), one.take("local")  # type: ignore[misc]
    one.give_back(first)
    taken = one.take("local")
    assert taken and taken[0] == first


def test_targets_have_their_own_runs() -> None:
    one = schedule(cell("a", 2), cell("b", 2, target="other"))
    assert begun(one, "other") == [("b", 1), ("b", 2)]
    assert one.is_finished("other") and not one.is_finished("local")


def test_a_cell_repeats_until_its_interval_is_narrow() -> None:
    narrow = schedule(cell("a", 3, most=9, until=0.1, warmup=1))
    assert len(begun(narrow, loop=5.0)) == 4
    assert narrow.needless == 6 and narrow.is_finished("local")
    wide = schedule(cell("a", 3, most=9, until=0.1))
    values = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    while taken := wide.take("local"):
        wide.add(taken[0], result(taken[0], loop=next(values)))
    assert list(values) == []


def test_failed_runs_and_warm_ups_do_not_make_an_interval_narrow() -> None:
    one = schedule(cell("a", 2, most=6, until=0.1, warmup=1))
    assert len(begun(one, loop=5.0, state="failed")) == 7


def test_whether_a_repeat_is_needed_waits_for_the_runs_before_it() -> None:
    one = schedule(cell("a", 2, most=4, until=0.1), cell("b", 4))
    taken = [one.take("local") for _ in range(6)]
    assert all(taken) and one.take("local") is None
    assert [run.cell for run, _ in taken if run.number > 2] == ["b", "b"]  # type: ignore[misc,union-attr]
    for run, position in taken:  # type: ignore[misc]
        one.add(run, result(run, position, loop=1.0))
    assert one.take("local") is None and one.is_finished("local") and one.needless == 2


def test_a_budget_stops_before_the_run_that_would_exceed_it() -> None:
    hours = schedule(cell("a", 9), budget=Budget(node_hours=1.0, line=4))
    assert len(begun(hours, node_seconds=1000.0)) == 3
    assert hours.stopped.startswith("budget (line 4): node-hours of 1 would be exceeded: 0.8333 used")
    assert hours.is_finished("local")
    cost = schedule(cell("a", 9), budget=Budget(cost=1.0), price=3.6)
    assert len(begun(cost, node_seconds=450.0)) == 2
    none = schedule(cell("a", 9), budget=Budget(cost=0.0, line=4), price=1.0)
    assert begun(none) == [] and none.stopped == "budget (line 4): cost of 0 is used up: 0"


def test_a_budget_counts_runs_that_run_by_their_time_limit() -> None:
    one = schedule(cell("a", 9, size=2, timeout=900.0), budget=Budget(node_hours=1.0))
    assert [bool(one.take("local")) for _ in range(3)] == [True, True, False]


def test_refused_cells_are_counted_by_their_reason() -> None:
    one = schedule(cell("a", 2), cell("b", 2))
    one.take("local")
    one.refuse(["a"], "too large")
    assert begun(one) == [("b", 1), ("b", 2)]
    assert one.refused == {"too large": 1}


def test_time_left_is_estimated_from_each_cell() -> None:
    one = schedule(cell("a", 3), cell("b", 2))
    assert one.seconds_left() is None
    run, position = one.take("local") or (Run(cell="", number=0), 0)
    one.add(run, result(run, position, started=10.0, ended=14.0))
    assert one.seconds_left() == 16.0
