"""Experiments in one readable line."""

from __future__ import annotations

from headrace.experiments.plan import plan
from headrace.experiments.values import Budget, Cell, Experiment, Job, Plan, Repeats, Result, Run, Target, Until

NO_LIMIT = Budget()


def experiment(
    *cells: Cell, budget: Budget = NO_LIMIT, prices: dict[str, float] | None = None
) -> tuple[Experiment, Plan]:
    """An experiment of these cells, and its plan."""
    names = dict.fromkeys(cell.target for cell in cells)
    targets = tuple(Target(name=name, prices=prices or {}) for name in names)
    made = Experiment(name="test", targets=targets, cells=cells, budget=budget)
    return made, plan(made)


def cell(
    id: str = "a",
    runs: int = 3,
    *,
    size: int = 1,
    target: str = "local",
    timeout: float = 0.0,
    until: float = 0.0,
    **repeats: int,
) -> Cell:
    """A cell that runs `runs` times; with `until`, until the interval of the metric "loop" has this relative width."""
    wanted = Until(metric="loop", relative_ci=until) if until else None
    job = Job(name="job", command="true", timeout=timeout)
    return Cell(
        id=id,
        job=job,
        target=target,
        size=size,
        repeats=Repeats(**{"least": runs, "most": runs, "until": wanted, **repeats}),
    )


def result(run: Run, position: int = 0, loop: float | None = None, **others: object) -> Result:
    metrics = {} if loop is None else {"loop": loop}
    fields = {"job": "job", "target": "local", "size": 1, "machine": "", "parameters": {}, "state": "completed"}
    return Result(
        cell=run.cell, number=run.number, warmup=run.warmup, position=position, metrics=metrics, **{**fields, **others}
    )  # type: ignore[arg-type]
