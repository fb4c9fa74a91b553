"""The closest candidates, against trying every run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.graph.slots import run_of_places, run_of_scores


def closest(scores: list[int], count: int) -> int:
    """Where the run of `count` rising scores begins that differ least, the first of equals."""
    starts = range(len(scores) - count + 1)
    return min(starts, key=lambda i: (scores[i + count - 1] - scores[i], i))


@given(
    gaps=st.lists(st.sampled_from([0, 1, 1, 1, 3]), min_size=1, max_size=40), bits=st.integers(0), count=st.integers(1)
)
def test_places_are_those_of_the_closest_scores(gaps: list[int], bits: int, count: int) -> None:
    scores = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    dense = all(gap == 1 for gap in gaps[1:])
    places = [i for i in range(len(gaps)) if bits >> i & 1]
    bits = sum(1 << i for i in places)
    count = count % (len(places) + 2) + 1
    found = run_of_places(bits, count, scores, dense)
    if len(places) <= count:
        assert found == places[:count]
    else:
        first = closest([scores[place] for place in places], count)
        assert found == places[first : first + count]


@given(bits=st.integers(0, 2**40), count=st.integers(1, 12))
def test_places_of_dense_scores_are_found_as_without_knowing_it(bits: int, count: int) -> None:
    scores = list(range(41))
    assert run_of_places(bits, count, scores, True) == run_of_places(bits, count, scores, False)


@given(counts=st.dictionaries(st.integers(0, 60), st.integers(1, 4), max_size=15), count=st.integers(1, 12))
def test_scores_are_those_of_the_closest_candidates(counts: dict[int, int], count: int) -> None:
    scores = [score for score in sorted(counts) for _ in range(counts[score])]
    found = run_of_scores(sorted(counts.items()), count)
    if len(scores) < count:
        assert found is None
    else:
        first = closest(scores, count)
        assert found == (scores[first], scores[first + count - 1])
