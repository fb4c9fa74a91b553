from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.modules.content.cache import BlobCache


def test_the_least_recently_used_goes_first() -> None:
    cache = BlobCache(target=4, old=0)
    for at, name in enumerate((b"a", b"b")):
        cache.put(name, name * 2, at)
    assert cache.get(b"a", 3) == b"aa"
    cache.put(b"c", b"cc", 4)
    assert cache.purge(4) is None
    assert (cache.get(b"a", 5), cache.get(b"b", 5), cache.get(b"c", 5)) == (b"aa", None, b"cc")


def test_purge_says_when_more_can_be_forgotten() -> None:
    cache = BlobCache(target=0, old=10)
    cache.put(b"a", b"a", 100)
    assert cache.purge(103) == 7
    cache.get(b"a", 105)
    assert cache.purge(110) == 5
    assert cache.purge(115) is None
    assert len(cache) == 0


@given(steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=40), target=st.integers(0, 20))
def test_the_size_is_that_of_what_is_held(steps: list[tuple[int, int]], target: int) -> None:
    cache = BlobCache(target, 3)
    held: dict[bytes, bytes] = {}
    for now, (name, length) in enumerate(steps):
        digest = bytes([name])
        blob = held.setdefault(digest, bytes(length))
        cache.put(digest, blob, now)
        cache.purge(now)
        held = {key: found for key, found in held.items() if cache.get(key, now) is not None}
        assert cache.size == sum(map(len, held.values()))
        assert len(cache) == len(held)
    wait = cache.purge(len(steps) + 3)
    assert wait is None and cache.size <= target
