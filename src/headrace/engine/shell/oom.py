"""How readily the kernel kills a job's tasks when memory runs out: the shell option `oom.adjust`.

The agent sets the value on itself while it spawns tasks, as it does with CPU affinity, so that they inherit it: a task
and all its children have it from their first instruction on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_SCORE = "/proc/self/oom_score_adj"


@contextlib.contextmanager
def adjusted(value: int | None) -> Iterator[str]:
    """Processes spawned inside get the score `value` (None: the agent's own). Yields an error message, or ""."""
    if value is None:
        yield ""
        return
    try:
        with open(_SCORE, "r+", encoding="ascii") as file:
            before = file.read()
            file.seek(0)
            file.write(str(value))
    except OSError as exc:
        yield f"oom.adjust={value}: {exc.strerror}"
        return
    try:
        yield ""
    finally:
        with open(_SCORE, "w", encoding="ascii") as file:
            file.write(before)
