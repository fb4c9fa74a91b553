"""Reference cycles are looked for rarely, and found all the same; freed memory goes back to the kernel."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

from headrace.process.garbage import collect_rarely

# Frees much with a block behind it that stays, so that glibc keeps the rest by itself.
_PEAK = """
import os
from headrace.process.garbage import give_memory_back
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
