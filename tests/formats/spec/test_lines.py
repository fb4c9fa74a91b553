"""Lines of byte streams: the same lines, however the stream is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec.lines import LineReader


@given(parts=st.lists(st.binary(max_size=6).map(lambda data: data.replace(b"\x00", b"\n")), max_size=8))
def test_lines_are_the_same_however_the_stream_is_cut(parts: list[bytes]) -> None:
    reader = LineReader()
    lines = [line for part in parts for line in reader.feed(part)]
    assert [*lines, reader.take_rest()] == b"".join(parts).split(b"\n")
    assert reader.rest == b""


def test_a_line_beyond_the_limit_is_cut() -> None:
    reader = LineReader(4)
    assert reader.feed(b"abcd") == []
    assert reader.feed(b"e") == [b"abcde"]
    assert reader.feed(b"f\nghijk") == [b"f", b"ghijk"]
    assert reader.feed(b"\n") == [b""]
