from __future__ import annotations

import pytest

from headrace.formats.spec import stdio
from headrace.service.pages.job_view import Tail, steps


@pytest.mark.parametrize("most", [1, 3, 5, 6, 100])
def test_the_end_of_the_output_is_kept(most: int) -> None:
    written = [("stdout", b"ab"), ("stdout", b"c"), ("stderr", b"def"), ("stdout", b"g")]
    tail = Tail(most)
    for stream, data in written:
        tail.add(stdio.Data(stream, "0", data, False))
    tail.add(stdio.Data("stdout", "0", None, True))
    found = tail.output()
    shown = "".join(run.text for piece in found.pieces for run in piece.runs)
    # Of the output that is kept, each stream has a line.
    assert sorted(shown) == sorted("abcdefg"[-most:])
    assert (found.skipped, found.events) == (max(0, 7 - most), 5)
    if most == 100:
        assert found.pieces == [("stdout 0", "stdout", [("", "abcg")]), ("stderr 0", "stderr", [("", "def")])]


def test_events_say_what_they_mean() -> None:
    log = (
        '{"timestamp":1.0,"name":"submit","context":{"userid":5,"urgency":16,"flags":0,"version":1}}\n'
        '{"timestamp":2.5,"name":"exception","context":{"type":"cancel","severity":0,"note":"why"}}\n'
        '{"timestamp":3.0,"name":"finish","context":{"status":15}}\n{"timestamp":4.0,"name":"odd"}\n'
    )
    found = steps(log)
    assert [(step.meaning, step.after) for step in found] == [
        ("submitted", 0.0),
        ("exception", 1.5),
        ("tasks have ended", 2.0),
        ("odd", 3.0),
    ]
    assert [step.about for step in found] == [
        "userid 5, urgency 16, flags 0, version 1",
        "cancel, severity 0: why",
        "Terminated",
        "",
    ]
