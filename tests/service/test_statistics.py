"""Statistics of jobs over time, from jobs that a test makes up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec.job_state import COMPLETED, FAILED, INACTIVE, RUN, SCHED
from headrace.service.statistics import statistics


def job(submit: float, run: float | None = None, end: float | None = None, **more: Any) -> dict[str, Any]:
    state = INACTIVE if end else RUN if run else SCHED
    found = {"state": state, "t_submit": submit, "t_run": run, "t_cleanup": end, "t_inactive": end, "ncores": 1}
    return {**found, "nnodes": 1, **({"result": COMPLETED} if end else {}), **more}


def test_jobs_are_counted_where_they_came_started_and_ended() -> None:
    jobs = [job(0, 10, 25), job(5, 15, 35, result=FAILED, ncores=4), job(20), job(1, 30)]
    found = statistics(jobs, 0, 40, 10, 40)
    bins = found["bins"]
    assert [row["t"] for row in bins] == [0, 10, 20, 30]
    assert [row["submitted"] for row in bins] == [3, 0, 1, 0]
    assert [row["started"] for row in bins] == [0, 2, 0, 1]
    assert [row["ended"] for row in bins] == [0, 0, 1, 1]
    assert ([row["completed"] for row in bins], [row["failed"] for row in bins]) == ([0, 0, 1, 0], [0, 0, 0, 1])
    # Seconds of cores in a bin, by its length.
    assert [row["cores"] for row in bins] == [0, (10 + 20) / 10, (5 + 40) / 10, (20 + 10) / 10]
    assert [row["pending"] for row in bins] == [(10 + 5 + 9) / 10, (5 + 10) / 10, 2, 1]
    assert found["waits"] == [
        {"queue": "", "size": 1, "count": 2, "median": 10, "p90": 29, "max": 29},
        {"queue": "", "size": 4, "count": 1, "median": 10, "p90": 10, "max": 10},
    ]


@pytest.mark.parametrize(
    ("count", "median", "p90"), [(1, 1, 1), (2, 1, 2), (3, 2, 3), (10, 5, 9), (11, 6, 10), (100, 50, 90)]
)
def test_nine_of_ten_jobs_waited_no_longer_than_p90(count: int, median: int, p90: int) -> None:
    (waits,) = statistics([job(0, wait, 101) for wait in range(1, count + 1)], 0, 200, 10, 200)["waits"]
    assert (waits["median"], waits["p90"], waits["max"]) == (median, p90, count)


_TIMES = st.lists(st.integers(0, 100), min_size=3, max_size=3).map(sorted)


@given(st.lists(_TIMES), st.integers(0, 50), st.integers(51, 100), st.integers(1, 60))
def test_what_was_used_is_the_sum_over_the_bins(times: list[list[int]], begin: int, end: int, width: int) -> None:
    jobs = [job(submit, run or None, stop or 0.5) for submit, run, stop in times]
    found = statistics(jobs, begin, end, width, 100)
    used = sum(row["cores"] * min(width, end - row["t"]) for row in found["bins"])
    expected = sum(
        max(0, min(one["t_cleanup"], end) - max(one["t_run"], begin)) for one in jobs if one["t_run"] is not None
    )
    assert abs(used - expected) < 1e-3
    assert len(found["bins"]) == -(-(end - begin) // width)


_MOMENTS = st.floats(1, 2e9)


@given(_MOMENTS, st.floats(1, 1e8), st.integers(1, 1000))
def test_any_span_has_as_many_bins_as_it_was_parted_into(begin: float, length: float, number: int) -> None:
    end = begin + length
    width = (end - begin) / number
    found = statistics([job(begin, begin, end)], begin, end, width, end)
    assert len(found["bins"]) == number
    assert all(abs(row["cores"] - 1) < 1e-3 for row in found["bins"])
