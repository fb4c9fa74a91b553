"""A table of results that is bounded by the bytes of its keys."""

from __future__ import annotations

from headrace.engine.modules.sched.common.kept import MOST_BYTES, MOST_ENTRIES, Kept


def test_results_are_kept_until_they_are_too_large_or_too_many() -> None:
    kept: Kept[int] = Kept()
    third = MOST_BYTES // 3
    for key in "abc":
        kept.put(key, third, 7)
    assert [kept.get(key) for key in "abc"] == [7, 7, 7]
    kept.put("d", third, 7)
    assert [kept.get(key) for key in "abcd"] == [None, None, None, 7]
    kept.put("large", MOST_BYTES + 1, 7)
    assert kept.get("large") is None
    for number in range(MOST_ENTRIES + 1):
        kept.put(number, 0, number)
    assert (kept.get(0), kept.get(MOST_ENTRIES)) == (None, MOST_ENTRIES)
