"""Jobs as bytes: nothing is lost, and what jobs have in common is kept once."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.modules.jobs_pack import Packed, Submission, Texts, event_line, join_j, pack, split_j, unpack

EVENTS = [(1.5, "submit", {"userid": 0, "urgency": 16, "flags": 0, "version": 1}), (2.0, "validate", None)]


@given(st.lists(st.binary(max_size=60) | st.binary(min_size=700, max_size=1500), max_size=8))
def test_texts_come_back_whatever_came_before(texts: list[bytes]) -> None:
    table = Texts()
    codes = [table.encode(text) for text in texts]
    assert [table.decode(code) for code in codes] == texts
    again = Texts()
    for number, text in table.fresh:
        again.restore(number, text)
    assert [again.decode(code) for code in codes] == texts


@given(st.binary(max_size=300), st.binary(max_size=20), st.binary(max_size=20), st.binary(max_size=300))
def test_a_text_that_differs_in_one_place_is_kept_as_the_difference(
    start: bytes, one: bytes, other: bytes, end: bytes
) -> None:
    table = Texts()
    table.encode(start + one + end)
    code = table.encode(start + other + end)
    assert table.decode(code) == start + other + end
    assert len(code[3]) <= max(len(one), len(other))


def test_references_are_bounded() -> None:
    table = Texts()
    texts = [bytes([number % 251]) * (1000 + number) for number in range(300)]
    codes = [table.encode(text) for text in texts]
    assert len(table.table) == 256
    assert [table.decode(code) for code in codes] == texts


def test_a_job_is_packed_and_unpacked() -> None:
    packed = Packed(
        Submission(b"head", (0, 3, 4, b"own"), b"none", {"attributes.system.queue": "q"}),
        EVENTS,
        {"version": 1},
        {"guest.output": b"text", "guest.input": 70000},
    )
    assert unpack(pack(packed)) == packed


def test_j_is_taken_apart_and_put_together() -> None:
    j = "aGVhZA==.eyJhIjoxfQ==.none"
    assert split_j(j) == (b"aGVhZA==", b'{"a":1}', b"none")
    assert join_j(*split_j(j)) == j
    for bad in ("", "a.b", "a.?.none", "é.e30=.none"):
        with pytest.raises(ValueError, match="J"):
            split_j(bad)


def test_lines_are_those_of_the_recordings() -> None:
    assert event_line((1795224526.8869703, "submit", {"userid": 0, "urgency": 16})) == (
        b'{"timestamp":1795224526.8869703,"name":"submit","context":{"userid":0,"urgency":16}}\n'
    )
    assert json.loads(event_line((2.0, "validate", None))) == {"timestamp": 2.0, "name": "validate"}
