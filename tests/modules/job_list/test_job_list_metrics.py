"""What is told of all jobs to programs that watch an instance."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.modules.job_list.metrics import Times, demand
from headrace.spec.job_state import CLEANUP, DEPEND, INACTIVE, NEW, RUN, SCHED


def job(state: int, **more: Any) -> Any:
    found = {"t_submit": 100.0, "t_run": None, "t_cleanup": None, "nnodes": None, "ncores": None, "ntasks": 1, **more}
    return SimpleNamespace(state=state, **found)


def counts(times: Times) -> tuple[int, float, int, float]:
    return times.wait.cumulative()[-1], times.wait.sum, times.run.cumulative()[-1], times.run.sum


def test_each_start_and_each_end_is_counted_once() -> None:
    times = Times()
    times.move(job(SCHED), DEPEND)
    assert counts(times) == (0, 0, 0, 0)
    times.move(job(RUN, t_run=130.0), SCHED)
    times.move(job(CLEANUP, t_run=130.0, t_cleanup=190.0), RUN)
    assert counts(times) == (1, 30, 0, 0)
    times.move(job(INACTIVE, t_run=130.0, t_cleanup=190.0), CLEANUP)
    assert counts(times) == (1, 30, 1, 60)
    # A job that came and went in one batch of events, and one that was cancelled before it began.
    times.move(job(INACTIVE, t_run=101.0, t_cleanup=103.0), NEW)
    times.move(job(INACTIVE, t_cleanup=190.0), SCHED)
    assert counts(times) == (2, 31, 2, 62)


def test_demand_is_that_of_jobs_that_could_start() -> None:
    waiting = [job(SCHED, nnodes=3), job(SCHED, nnodes=1), job(SCHED, ncores=4), job(SCHED, ncores=4), job(SCHED)]
    others = [job(RUN, nnodes=7), job(DEPEND, nnodes=9)]
    assert demand([*waiting, *others]) == {"nodes": 4, "cores": [[1, 1], [4, 2]]}
