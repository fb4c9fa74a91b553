"""Made up jobs, for trying policies out where no trace is at hand: a seed gives the same lines everywhere.

The shape is that of published logs: mostly small jobs whose sizes are powers of two, lengths over several orders of
magnitude, limits that are round numbers well above what is used, a few users with most of the jobs, and as much work as
keeps the machine about full.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from headrace.formats.spec import swf

# Of what the machine could do while jobs arrive.
_LOAD = 0.95
_USERS = 20
_SHORTEST, _LONGEST = 10, 86_400
# Minutes, as people write them.
_LIMITS = (5, 10, 15, 30, 60, 120, 240, 480, 720, 1440)


def synthetic(count: int, seed: int, processors: int) -> Iterator[str]:
    """The lines of a trace of `count` jobs for a machine of so many processors, in Standard Workload Format."""
    rng = random.Random(seed)
    yield swf.encode_header("Version", "2.2")
    yield swf.encode_header("Computer", f"synthetic, seed {seed}")
    yield swf.encode_header("MaxJobs", count)
    yield swf.encode_header("MaxProcs", processors)
    sizes = [_size(rng, processors) for _ in range(count)]
    runs = [int(min(_LONGEST, max(_SHORTEST, rng.lognormvariate(6.5, 1.5)))) for _ in range(count)]
    span = sum(size * run for size, run in zip(sizes, runs, strict=True)) / (_LOAD * processors)
    arrivals = sorted(rng.random() * span for _ in range(count))
    for i in range(count):
        user = int(_USERS * rng.random() ** 3)
        limit = rng.choice([60 * minutes for minutes in _LIMITS if 60 * minutes >= runs[i]][:4])
        yield swf.encode(
            swf.Record(job=i + 1, submit=int(arrivals[i]), run=runs[i], processors=sizes[i], limit=limit, user=user)
        )


def _size(rng: random.Random, processors: int) -> int:
    """Up to half of the machine: whole-machine jobs would hide everything else behind the wait for it to be empty."""
    exponent = min(rng.expovariate(0.5), max(0, processors.bit_length() - 2))
    return 2 ** int(exponent) if rng.random() < 0.75 else int(2**exponent)
