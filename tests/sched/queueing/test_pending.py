"""Waiting jobs stand by priority, then by arrival, and those that ask for the same are known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.graph import parse_jobspec
from headrace.sched.queueing.failed_searches import FOR_EVER
from headrace.sched.queueing.pending import PendingJobs, shape_of


def cores(count: int, duration: int, constraint: Any = None) -> Any:
    slot = {"type": "slot", "count": 1, "label": "t", "with": [{"type": "core", "count": count}]}
    system = {"duration": duration, **({"constraints": constraint} if constraint else {})}
    return parse_jobspec({"resources": [slot], "attributes": {"system": system}})


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 5), st.booleans()), max_size=20))
def test_it_is_what_sorting_would_make_of_it(steps: list[tuple[int, int, int, bool]]) -> None:
    waiting, kept = PendingJobs(), {}
    for jobid, (priority, count, duration, moved) in enumerate(steps):
        if jobid == len(steps) // 2:
            changes = {one: kept[one][0] + 1 for one in kept if one % 2}
            order = [one for _, _, one in waiting.order]
            same = waiting.move_all(changes)
            moved_order = [one for _, _, one in waiting.order]
            assert order[:same] == moved_order[:same] and (order == moved_order or order[same] != moved_order[same])
            kept.update({one: (priority, *kept[one][1:]) for one, priority in changes.items()})
        waiting.add(jobid, cores(count, duration), priority)
        kept[jobid] = (priority, count, duration or FOR_EVER)
        if moved and jobid - 1 in kept:
            waiting.move(jobid - 1, 2)
            kept[jobid - 1] = (2, *kept[jobid - 1][1:])
        elif moved:
            del kept[jobid]
            waiting.remove(jobid)
    wanted = sorted(kept, key=lambda jobid: (-kept[jobid][0], jobid))
    assert [jobid for _, _, jobid in waiting.order] == wanted
    assert waiting.by_id.keys() == kept.keys()
    for count in {count for _, count, _ in kept.values()}:
        shape = shape_of(cores(count, 1))
        assert [jobid for _, _, jobid in waiting.by_shape[shape]] == [j for j in wanted if kept[j][1] == count]
        assert list(waiting.lengths[shape]) == sorted(length for _, c, length in kept.values() if c == count)
    assert len(waiting.by_shape) == len(waiting.lengths) == len({count for _, count, _ in kept.values()})


def test_positions_are_told_as_numbers_of_those_before() -> None:
    waiting = PendingJobs()
    assert [waiting.add(jobid, cores(1, 10), 16) for jobid in range(3)] == [0, 1, 2]
    assert waiting.move(2, 20) == (2, 0)
    assert waiting.count_before(waiting.by_id[1].position) == 2
    assert waiting.remove(0) == 1
    with pytest.raises(KeyError):
        waiting.remove(0)


def test_jobs_are_alike_in_all_but_who_asks() -> None:
    waiting = PendingJobs()
    for jobid, request in enumerate([cores(1, 10), cores(1, 10), cores(1, 11), cores(1, 10)]):
        waiting.add(jobid, request, 16)
    assert waiting.alike(4) == [0, 1]
    assert waiting.alike(1) == [0]
    assert PendingJobs().alike(3) == []
    waiting.remove(2)
    assert waiting.alike(4) == [0, 1, 3]
    waiting.add(4, cores(2, 10), 17)
    assert waiting.alike(4) == [4]
    assert shape_of(cores(1, 10)) == shape_of(cores(1, 20)) != shape_of(cores(2, 10))
    assert shape_of(cores(1, 10)) != shape_of(cores(1, 10, {"properties": ["fast"]}))


def test_a_label_of_what_a_job_gets_makes_another_request_and_that_of_a_slot_does_not() -> None:
    def shape(slot: str, core: str) -> str:
        inside = [{"type": "core", "count": 1, **({"label": core} if core else {})}]
        return shape_of(parse_jobspec({"resources": [{"type": "slot", "count": 1, "label": slot, "with": inside}]}))

    assert shape("a", "") == shape("b", "")
    assert len({shape("a", ""), shape("a", "x"), shape("a", "y")}) == 3
