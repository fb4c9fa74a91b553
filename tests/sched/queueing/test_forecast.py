"""Estimates of starts from sums of cores and GPUs."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable
from math import inf

from headrace.sched.queueing.forecast import STEP, Place, Supply, Waiting, forecast, text

NOW = 100.0


def job(id: int, cores: int, length: float = inf, ahead: int = 0, gpus: int = 0, pool: str = "", start: float = 0.0):
    return Waiting(id, ahead, pool, cores, gpus, length, start)


def starts(waiting: Iterable[Waiting], **pools: tuple[int, int, list[tuple[float, int, int]]]) -> dict[int, float]:
    """When each job starts; `pools` are free cores and GPUs and the ends of what is held."""

    def supply(name: Hashable) -> Generator[None, None, Supply]:
        yield STEP
        return Supply(*pools[str(name) or "all"])

    return {step[0]: step[1].start for step in forecast(waiting, supply, NOW) if step is not None}


def test_jobs_start_in_order_when_enough_has_ended() -> None:
    waiting = [job(1, 2, 50), job(2, 1, 10), job(3, 3, 10), job(4, 1)]
    assert starts(waiting, all=(0, 0, [(120, 1, 0), (110, 1, 0), (130, 1, 0)])) == {1: 120, 2: 130, 3: 170, 4: 180}


def test_cores_and_gpus_must_both_be_there() -> None:
    assert starts([job(1, 1, 5, gpus=2)], all=(4, 1, [(150, 0, 1), (120, 4, 0)])) == {1: 150}


def test_nobody_knows_a_start_behind_jobs_without_a_limit() -> None:
    found = starts([job(1, 2), job(2, 1, 5), job(3, 1, 5)], all=(0, 0, [(120, 2, 0), (inf, 2, 0)]))
    assert found == {1: 120, 2: inf, 3: inf}


def test_nothing_is_said_of_a_job_for_which_the_sum_would_do_but_the_next_counts_on_it() -> None:
    assert starts([job(1, 2, 60), job(2, 1, 5)], all=(2, 0, [])) == {1: inf, 2: 160}


def test_a_promised_start_holds_back_those_behind_it() -> None:
    assert starts([job(1, 1, 5, start=300), job(2, 1, 5)], all=(2, 0, [])) == {1: 300, 2: 300}


def test_jobs_of_other_nodes_do_not_wait_for_each_other_and_a_job_of_neither_has_no_estimate() -> None:
    waiting = [job(1, 1, 5, pool="a"), job(2, 1, 5, pool="b"), job(3, 0, 5, pool="a")]
    assert starts(waiting, a=(0, 0, [(200, 1, 0)]), b=(0, 0, [(150, 1, 0)])) == {1: 200, 2: 150, 3: inf}


def test_the_jobs_before_a_job_are_passed_on_and_counting_a_supply_is_a_step_of_its_own() -> None:
    def supply(_pool: Hashable) -> Generator[None, None, Supply]:
        yield STEP
        return Supply(0, 0, [(NOW + 1, 1, 0)])

    assert list(forecast([job(7, 1, ahead=3)], supply, NOW)) == [STEP, (7, Place(3, NOW + 1))]


def test_what_is_short_comes_before_who_is_ahead() -> None:
    assert text("short", 0) == "short"
    assert text("short", 2) == "short; behind 2 jobs"
    assert text("", 1) == "behind 1 job"
    assert text("", 0) == "about to be scheduled"
