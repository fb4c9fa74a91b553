"""Streams of a log, cut anywhere, add up to each line once."""

from __future__ import annotations

import pytest

from headrace.k8s.client.log_lines import Lines

# (stamp, line): some at the same moment, one without a text, one in another zone, and one with a carriage return.
WRITTEN = [
    (b"2026-01-01T00:00:01.000000001Z", b"one"),
    (b"2026-01-01T00:00:02.500000000Z", b"two"),
    (b"2026-01-01T00:00:02.500000000Z", b"two"),
    (b"2026-01-01T00:00:02.500000000Z", b""),
    (b"2026-01-01T00:00:02.750000000Z", b"10 %\r20 %"),
    (b"2026-01-01T02:00:03.000000000+02:00", b"2026-01-01T00:00:09Z is a text"),
]
STREAM = b"".join(b"%s %s\n" % one for one in WRITTEN)
TEXT = b"".join(line + b"\n" for _, line in WRITTEN)


def stream_since(since: str) -> bytes:
    """What a kubelet sends: `since` and the stamps count whole seconds of the same zone here."""
    places = [place for place, (stamp, _) in enumerate(WRITTEN) if stamp[:19].decode() == since[:19]]
    return b"".join(b"%s %s\n" % one for one in WRITTEN[places[0] if places else 0 :])


def test_stamps_are_taken_off() -> None:
    assert Lines().new_of(STREAM) == TEXT
    lines = Lines()
    assert b"".join(lines.new_of(STREAM[n : n + 1]) for n in range(len(STREAM))) == TEXT
    assert lines.since == "2026-01-01T02:00:03+02:00"


@pytest.mark.parametrize("second_cut", [0, 7, 40, 75])
def test_after_a_cut_at_any_byte_each_line_is_there_once(second_cut: int) -> None:
    for cut in range(len(STREAM) + 1):
        lines = Lines()
        found = lines.new_of(STREAM[:cut])
        assert TEXT.startswith(found)
        lines.restart()
        found += lines.new_of(stream_since(lines.since)[:second_cut])
        lines.restart()
        found += lines.new_of(stream_since(lines.since))
        assert found == TEXT, cut


def test_a_line_is_passed_on_as_far_as_it_has_come() -> None:
    lines = Lines()
    assert lines.new_of(b"2026-01-01T00:00:01Z 10 %\r") == b"10 %\r"
    assert lines.new_of(b"20 %") == b"20 %"


def test_what_has_no_stamp_is_passed_on_as_it_is() -> None:
    lines = Lines()
    told = b"2026-01-01T00:00:01Z one\nunable to retrieve container logs\n12\n"
    assert lines.new_of(told) == b"one\nunable to retrieve container logs\n12\n"
    lines.restart()
    assert lines.new_of(b"2026-01-01T00:00:01Z one\nno\n") == b"no\n"


def test_lines_that_the_kubelet_no_longer_has_are_not_taken_for_new_ones() -> None:
    """Its log was rotated: of the last second only the last line is left."""
    lines = Lines()
    lines.new_of(b"2026-01-01T00:00:01.1Z one\n2026-01-01T00:00:01.2Z two\n")
    lines.restart()
    assert lines.new_of(b"2026-01-01T00:00:01.2Z two\n2026-01-01T00:00:01.3Z three\n") == b"three\n"
