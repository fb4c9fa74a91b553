"""Reference cycles are looked for rarely, and found all the same; freed memory goes back to the kernel."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

from headrace.engine.process.garbage import collect_rarely, shrink

# Frees much with a block behind it that stays, so that glibc keeps the rest by itself.
_PEAK = """
import os
from headrace.engine.process.garbage import give_memory_back
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")
before = resident()
blocks = [bytes(100_000) for _ in range(1000)]
last = blocks.pop()
blocks.clear()
give_memory_back()
print(resident() - before)
"""


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


def test_what_was_freed_goes_back_to_the_kernel() -> None:
    done = subprocess.run([sys.executable, "-c", _PEAK], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 10 << 20


# Frees all but a few of many small objects, which leaves CPython's own lists of freed tuples.
_SMALL = """
import os
from headrace.engine.process.garbage import give_memory_back
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")
give_memory_back()
before = resident()
rows = [tuple(range(number, number + 5)) for number in range(1000, 301_000)]
peak = resident()
rows.clear()
give_memory_back()
print(resident() - before, peak - before)
"""


def test_small_objects_that_were_freed_hold_no_memory() -> None:
    done = subprocess.run([sys.executable, "-c", _SMALL], capture_output=True, text=True, check=True)
    left, peak = map(int, done.stdout.split())
    assert left < peak / 10


def test_a_table_that_lost_most_of_its_entries_loses_their_room() -> None:
    table = {number: str(number) for number in range(100_000)}
    size = sys.getsizeof(table)
    assert not shrink(table)
    for number in range(10, 100_000):
        del table[number]
    assert sys.getsizeof(table) == size
    assert shrink(table)
    assert sys.getsizeof(table) < size / 1000
    assert list(table.items()) == [(number, str(number)) for number in range(10)]
    assert not shrink(table)
