"""What is told of all jobs to programs that watch an instance."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.engine.modules.job_list.stats import Passed, demand
from headrace.formats.spec.job_state import CANCELED, CLEANUP, COMPLETED, DEPEND, INACTIVE, NEW, RUN, SCHED


def job(state: int, **more: Any) -> Any:
    found = {
        "t_submit": 100.0,
        "t_run": None,
        "t_cleanup": None,
        "nnodes": None,
        "ncores": None,
        "ntasks": 1,
        "result": None,
        **more,
    }
    return SimpleNamespace(state=state, **found)


def counts(passed: Passed) -> tuple[int, float, int, float]:
    return passed.wait.cumulative()[-1], passed.wait.sum, passed.run.cumulative()[-1], passed.run.sum


def test_each_start_and_each_end_is_counted_once() -> None:
    passed = Passed()
    passed.move(job(SCHED), DEPEND)
    assert counts(passed) == (0, 0, 0, 0)
    passed.move(job(RUN, t_run=130.0), SCHED)
    passed.move(job(CLEANUP, t_run=130.0, t_cleanup=190.0), RUN)
    assert counts(passed) == (1, 30, 0, 0)
    passed.move(job(INACTIVE, t_run=130.0, t_cleanup=190.0), CLEANUP)
    assert counts(passed) == (1, 30, 1, 60)
    # A job that came and went in one batch of events, and one that was cancelled before it began.
    passed.move(job(INACTIVE, t_run=101.0, t_cleanup=103.0, result=COMPLETED), NEW)
    passed.move(job(INACTIVE, t_cleanup=190.0, result=CANCELED), SCHED)
    assert counts(passed) == (2, 31, 2, 62)
    assert passed.as_object()["results"] == {"completed": 1, "failed": 1, "canceled": 1, "timeout": 0}


def test_demand_is_that_of_jobs_that_could_start() -> None:
    waiting = [job(SCHED, nnodes=3), job(SCHED, nnodes=1), job(SCHED, ncores=4), job(SCHED, ncores=4), job(SCHED)]
    others = [job(RUN, nnodes=7), job(DEPEND, nnodes=9)]
    assert demand([*waiting, *others]) == {"nodes": 4, "cores": [[1, 1], [4, 2]]}
