"""Jobs as bytes: nothing is lost, and what jobs have in common is kept once."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.jobs.pack import Packed, Submission, Texts, event_line, events_of, join_j, pack, split_j, unpack

EVENTS = [(1.5, "submit", {"userid": 0, "urgency": 16, "flags": 0, "version": 1}), (2.0, "validate", None)]


@given(st.lists(st.binary(max_size=60) | st.binary(min_size=700, max_size=1500), max_size=8))
def test_texts_come_back_whatever_came_before(texts: list[bytes]) -> None:
    table = Texts()
    codes = [table.encode(text) for text in texts]
    assert [table.decode(*code) for code in codes] == texts
    again = Texts()
    for number, text in table.fresh:
        again.restore(number, text)
    assert [again.decode(*code) for code in codes] == texts


@given(st.binary(max_size=300), st.binary(max_size=20), st.binary(max_size=20), st.binary(max_size=300))
def test_a_text_that_differs_in_one_place_is_kept_as_the_difference(
    start: bytes, one: bytes, other: bytes, end: bytes
) -> None:
    table = Texts()
    table.encode(start + one + end)
    first, second = table.encode(start + other + end)
    assert table.decode(first, second) == start + other + end
    own = len(first[3]) + (len(second[3]) if second is not None else 0)
    # A text may have the mark at which it is cut within what differs: then half of it is compared with nothing.
    assert own <= max(len(one), len(other)) + 20


def _text(argument: int, copy: int, variables: int = 60) -> bytes:
    environment = {f"VARIABLE_{number}": f"/some/path/{number}" for number in range(variables)}
    environment["FLUX_JOB_CC"] = str(copy)
    tasks = [{"command": ["/bin/true", str(argument)], "slot": "task", "count": {"per_slot": 1}}]
    system = {"cwd": "/tmp", "environment": environment, "duration": 0}
    return json.dumps({"tasks": tasks, "attributes": {"system": system}, "version": 1}).encode()


def test_jobs_that_differ_in_an_argument_and_a_variable_are_kept_as_these() -> None:
    table = Texts()
    texts = [_text(number, number * 7) for number in range(1000)]
    codes = [table.encode(text) for text in texts]
    assert [table.decode(*code) for code in codes] == texts
    # One reference for each of the two parts, and of each job the few digits that are its own.
    assert len(table.table) == 2
    assert all(len(first[3]) + len(second[3]) < 40 for first, second in codes if second is not None)


def test_users_who_submit_in_turns_keep_their_references() -> None:
    table = Texts()
    texts = [_text(number, number, variables=20 + 30 * (number % 2)) for number in range(100)]
    codes = [table.encode(text) for text in texts]
    assert [table.decode(*code) for code in codes] == texts
    assert len(table.table) <= 4


def test_references_are_bounded() -> None:
    table = Texts()
    texts = [bytes([number % 251]) * (1000 + number) for number in range(300)]
    codes = [table.encode(text) for text in texts]
    assert len(table.table) == 256
    assert [table.decode(*code) for code in codes] == texts


def test_a_record_of_one_code_still_reads() -> None:
    table = Texts()
    table.encode(b"start-one-end")
    old = msgspec.msgpack.encode([b"head", (0, 6, 4, b"another"), b"none", None])
    submission = msgspec.msgpack.decode(old, type=Submission)
    assert table.decode(submission.text, submission.environment) == b"start-another-end"


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
    for bad in ("", "a.b", "a.?.none", "a.AAA.none", "a.AA=A.none", "é.e30=.none"):
        with pytest.raises(ValueError, match="J"):
            split_j(bad)


def test_lines_are_those_of_the_recordings() -> None:
    assert event_line((1795224526.8869703, "submit", {"userid": 0, "urgency": 16})) == (
        b'{"timestamp":1795224526.8869703,"name":"submit","context":{"userid":0,"urgency":16}}\n'
    )
    assert json.loads(event_line((2.0, "validate", None))) == {"timestamp": 2.0, "name": "validate"}


@given(st.lists(st.text(max_size=8) | st.sampled_from(["\u2028", "a\u2029b", "\x85", "\x0c", "\r\n"]), max_size=5))
def test_events_come_back_whatever_text_they_have(notes: list[str]) -> None:
    events = [(1.0 + number, "exception", {"note": note}) for number, note in enumerate(notes)]
    text = b"".join(map(event_line, events)).decode("utf-8", "surrogateescape")
    assert events_of(text) == events
    assert events_of(text.removesuffix("\n")) == events


def test_a_line_that_is_no_event_is_an_error() -> None:
    for text in ("nonsense\n", "{}\n", '{"timestamp":1.0,"name":"a"}\n\n{"timestamp":2.0,"name":"b"}\n'):
        with pytest.raises(msgspec.DecodeError):
            events_of(text)


def test_equal_codes_of_waiting_jobs_are_one_object() -> None:
    table = Texts()
    codes = [table.encode(_text(number, 7)) for number in range(5)]
    # The environment is the same, and of the first part only the argument differs.
    assert len({id(environment) for _, environment in codes[1:]}) == 1
    assert len({id(first[2]) for first, _ in codes[1:]}) == 1
    assert [table.decode(*code) for code in codes] == [_text(number, 7) for number in range(5)]
