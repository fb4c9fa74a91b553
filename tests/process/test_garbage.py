"""Reference cycles are looked for rarely, and found all the same."""

from __future__ import annotations

import gc
import weakref

from headrace.process.garbage import collect_rarely


class Knot:
    def __init__(self) -> None:
        self.itself = self


def test_a_cycle_is_found_in_the_end() -> None:
    before = gc.get_threshold()
    gc.collect()
    try:
        collect_rarely()
        knot = weakref.ref(Knot())
        kept = [[] for _ in range(1_000)]
        assert knot() is not None
        kept += [[] for _ in range(50_000)]
        assert knot() is None
    finally:
        gc.set_threshold(*before)
