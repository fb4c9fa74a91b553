"""The machine's floor: how many `true` processes a second posix_spawn starts and wait collects, one after another and
with several under way."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping

from measure import Row, report

TRUE = "/bin/true"


def spawn_rate(count: int, width: int, env: Mapping[str, str] | None = None) -> float:
    """Processes a second with at most `width` alive; `env` is their environment."""
    given = env or {}
    begin = time.perf_counter()
    alive = started = ended = 0
    while ended < count:
        while alive < width and started < count:
            os.posix_spawn(TRUE, [TRUE], given)
            alive += 1
            started += 1
        os.wait()
        alive -= 1
        ended += 1
    return count / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [Row(f"bare posix_spawn, {width} at a time", spawn_rate(options.count, width), "/s") for width in (1, 2, 4)]
    report(rows, options.json)


if __name__ == "__main__":
    main()
