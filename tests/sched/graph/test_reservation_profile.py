"""A profile answers as the reservations themselves do, looked at one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.graph.reservations import Profile

NODES = 5
Span = tuple[int, int, int, int]


@st.composite
def histories(draw: st.DrawFn) -> list[Span]:
    """Reservations (start, end, touched, whole) of which none touches what another has whole at the same time."""
    made: list[Span] = []
    for start, length, touched, whole in draw(
        st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(0, 31), st.integers(0, 31)), max_size=14)
    ):
        for s, e, other, other_whole in made:
            if s < start + length and start < e:
                whole &= ~other
                touched &= ~other_whole
        made.append((start, start + length, touched | whole, whole))
    return made


def used(spans: list[Span], start: int, end: int, column: int) -> int:
    found = 0
    for span in spans:
        if span[0] < end and start < span[1]:
            found |= span[column]
    return found


@given(histories(), st.data())
def test_profile_equals_a_look_at_every_reservation(spans: list[Span], data: st.DataObject) -> None:
    profile = Profile()
    for start, end, touched, whole in spans:
        profile.add(start, end, touched, whole << NODES, whole)
    gone = set(data.draw(st.lists(st.integers(0, max(len(spans) - 1, 0)), unique=True))) if spans else set()
    for i in gone:
        start, end, touched, whole = spans[i]
        profile.remove(start, end, touched, whole << NODES, whole)
    left = [span for i, span in enumerate(spans) if i not in gone]
    assert profile.times == sorted({t for span in left for t in span[:2]})
    for start in range(-1, 31):
        for length in (1, 4, 30):
            assert profile.touched_in(start, start + length) == used(left, start, start + length, 2)
            assert profile.whole_in(start, start + length) == used(left, start, start + length, 3) << NODES
