"""What is remembered not to fit is never a start that has become possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.queueing.failed_searches import FOR_EVER, FailedSearches, intersection

MISS = st.tuples(st.just("failure"), st.integers(1, 12), st.integers(1, 40))
FREED = st.tuples(st.just("freed"), st.integers(0, 40), st.integers(1, 50))
Event = tuple[str, int, int]


def known(events: list[Event], length: int, t: int) -> bool:
    """Whether a start at `t` is known not to do: a failure says so, and nothing came free in its time since."""
    for i, (what, shortest, until) in enumerate(events):
        if what == "failure" and shortest <= length and t < until:
            later = [e for e in events[i + 1 :] if e[0] == "freed"]
            if not any(s < min(t + length, FOR_EVER) and t < e for _, s, e in later if s < e):
                return True
    return False


@given(st.lists(MISS | FREED, max_size=12), st.integers(1, 15), st.integers(0, 20))
def test_ranges_are_the_starts_that_are_not_known_to_fail(events: list[Event], length: int, now: int) -> None:
    failed = FailedSearches()
    for what, a, b in events:
        if what == "failure":
            failed.add("shape", a, b)
        else:
            failed.released(a, b)
    ranges = failed.ranges("shape", length, now)
    assert all(a < b for a, b in ranges)
    assert all(x[1] <= y[0] for x, y in zip(ranges, ranges[1:], strict=False))
    for t in range(now, 60):
        inside = any(a <= t < b for a, b in ranges)
        # Looking once too often is no mistake; not looking is.
        assert inside or known(events, length, t)
    if not any(what == "freed" for what, _, _ in events):
        assert all(any(a <= t < b for a, b in ranges) != known(events, length, t) for t in range(now, 60))


def test_many_gifts_are_remembered_as_one_span() -> None:
    failed = FailedSearches()
    failed.add("shape", 5, 1000)
    for i in range(100):
        failed.released(100 + i, 110 + i)
    assert failed.ranges("shape", 5, 0) == [(96, 209), (1000, FOR_EVER)]
    failed.add("shape", 5, 1000)
    assert failed.ranges("shape", 5, 0) == [(1000, FOR_EVER)]
    assert failed.ranges("shape", 4, 0) == [(0, FOR_EVER)]


def test_forgetting_leaves_everything_open() -> None:
    failed = FailedSearches()
    failed.add("shape", 1, FOR_EVER)
    assert failed.ranges("shape", 1, 7) == []
    failed.clear()
    assert failed.ranges("shape", 1, 7) == [(7, FOR_EVER)]


def test_common_is_what_lies_in_both() -> None:
    assert intersection([(0, 5), (8, 20)], [(3, 10), (15, 30)]) == [(3, 5), (8, 10), (15, 20)]
