"""How readily the kernel kills a job's tasks when memory runs out: the shell option `oom.adjust`.

The agent takes the value itself while it starts them, as it does with processors: a task has it from its first
instruction on, and so has all that it starts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_SCORE = "/proc/self/oom_score_adj"


@contextlib.contextmanager
def adjusted(value: int | None) -> Iterator[str]:
    """What is spawned inside has the score `value` (None: ours); yields what was wrong about that, as a text."""
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
