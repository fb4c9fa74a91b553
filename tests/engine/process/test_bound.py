"""A thread that is bound while it sleeps: where functions run, and what becomes of their results and errors."""

from __future__ import annotations

import errno
import os
import signal

import pytest

from headrace.engine.process.spawn import Bound


def test_each_call_runs_on_its_processors_and_the_caller_keeps_its_own() -> None:
    bound, own = Bound(), os.sched_getaffinity(0)
    for cpu in [*sorted(own), *sorted(own)]:
        seen: list[set[int]] = []

        def look(seen: list[set[int]] = seen) -> int:
            seen.append(os.sched_getaffinity(0))
            return len(seen)

        assert bound.run(frozenset({cpu}), look) == 1
        assert seen == [{cpu}]
        assert os.sched_getaffinity(0) == own
    assert bound.run(frozenset(own), lambda: len(os.sched_getaffinity(0))) == len(own)


def test_errors_are_the_callers_and_the_next_call_runs() -> None:
    bound, own = Bound(), frozenset(os.sched_getaffinity(0))

    def fail() -> int:
        raise FileNotFoundError(errno.ENOENT, "no such program")

    with pytest.raises(FileNotFoundError, match="no such program"):
        bound.run(own, fail)
    assert bound.run(own, lambda: 7) == 7
    with pytest.raises(OSError) as failure:
        bound.run(frozenset({4000}), lambda: 8)
    assert failure.value.errno == errno.EINVAL
    assert bound.run(own, lambda: 9) == 9


def test_signals_are_left_to_the_main_thread() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    masks: list[set[int]] = []

    def look() -> int:
        masks.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        return 0

    Bound().run(frozenset(os.sched_getaffinity(0)), look)
    assert {signal.SIGCHLD, signal.SIGTERM, signal.SIGQUIT} <= masks[0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
