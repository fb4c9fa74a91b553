"""The candidates whose scores lie closest together: the choice of the `locality` policy.

Candidates are in order of score. Of all runs of the requested length, the one with the smallest difference between its
last and first score is taken; of equal runs the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import sub

from headrace.sched.graph.bitsets import lowest_numbers, numbers


def run_of_places(bits: int, count: int, scores: Sequence[int], dense: bool) -> list[int]:
    """The places of the `count` closest members of a set, or of all if there are fewer.

    `scores` by place never fall; they are `dense` if each is one more than the one before.
    """
    if count == 1 or bits.bit_count() <= count:
        return lowest_numbers(bits, count)
    if dense:
        # Bit i stays set while the `width` members from i on have no gap.
        runs, width = bits, 1
        while width < count and runs:
            step = min(width, count - width)
            runs &= runs >> step
            width += step
        if runs:
            first = (runs & -runs).bit_length() - 1
            return list(range(first, first + count))
    places = list(numbers(bits))
    known = [scores[place] for place in places]
    spreads = list(map(sub, known[count - 1 :], known))
    first = spreads.index(min(spreads))
    return places[first : first + count]


def run_of_scores(counts: Sequence[tuple[int, int]], count: int) -> tuple[int, int] | None:
    """The first and the last score of the `count` closest candidates; None for fewer than `count` candidates.

    `counts` are pairs (score, number of candidates with it), by rising score.
    """
    best: tuple[int, int] | None = None
    end = have = 0
    for first, number in counts:
        while have < count:
            if end == len(counts):
                return best
            have += counts[end][1]
            end += 1
        last = counts[end - 1][0]
        if best is None or last - first < best[1] - best[0]:
            best = first, last
        have -= number
    return best
