"""A table of results that is bounded by the bytes of its keys."""

from __future__ import annotations

from headrace.engine.modules.sched.requests import MOST_BYTES, MOST_ENTRIES, BoundedCache


def test_results_are_cache_until_they_are_too_large_or_too_many() -> None:
    cache: BoundedCache[int] = BoundedCache()
    third = MOST_BYTES // 3
    for key in "abc":
        cache.put(key, third, 7)
    assert [cache.get(key) for key in "abc"] == [7, 7, 7]
    cache.put("d", third, 7)
    assert [cache.get(key) for key in "abcd"] == [None, None, None, 7]
    cache.put("large", MOST_BYTES + 1, 7)
    assert cache.get("large") is None
    for number in range(MOST_ENTRIES + 1):
        cache.put(number, 0, number)
    assert (cache.get(0), cache.get(MOST_ENTRIES)) == (None, MOST_ENTRIES)
