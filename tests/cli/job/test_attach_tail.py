"""Only the last lines of what was there already are shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List, Tuple

from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.job.attach_tail import Tail
from headrace.formats.spec.eventlog import Event, encode


class Broker:
    """Answers for the log of a job's output."""

    def __init__(self, log: str) -> None:
        self.log = log

    def rpc(self, topic: str, _request: Any) -> Any:
        assert topic == "job-info.lookup"
        return SimpleNamespace(get=lambda: {"guest.output": self.log})


def entries(number: int) -> str:
    return "".join(encode(Event(one + 1.0, "data", {})) for one in range(number))


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(1, 3), max_size=3), st.integers(0, 12))
def test_the_last_lines_of_the_past_are_shown_and_all_that_comes(past: List[int], later: List[int], count: int) -> None:
    tail = Tail(Broker(entries(len(past))), 1, count)  # type: ignore[arg-type]
    shown: List[Tuple[str, bytes]] = []
    said: List[Tuple[str, bytes]] = []
    for number, lines in enumerate([*past, *later]):
        texts = [b"%d.%d\n" % (number, line) for line in range(lines)]
        said += [("stdout", text) for text in texts]
        if not tail.holds("stdout", b"".join(texts)):
            shown += [("stdout", text) for text in texts]
        shown += tail.passed()
    old = sum(past)
    assert shown == said[:old][max(0, old - count) :] + said[old:]
