"""Requests of the channel: what is taken, and what each refusal names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.minicluster.api.channel_messages import MessageError, State, decode, encode, parse_request, parse_state


@pytest.mark.parametrize(
    "body",
    [
        {"id": 1, "op": "watch"},
        {"id": 0, "op": "resize", "size": 2, "max_size": 4, "hosts": "c-[0-3]", "group": "g"},
        {"id": 2, "op": "reload", "config": {}},
        {"id": 3, "op": "save", "path": "/a"},
        {"id": 4, "op": "end"},
    ],
)
def test_requests_are_taken_as_they_are(body: dict[str, Any]) -> None:
    assert parse_request(encode(body)) == body


@pytest.mark.parametrize(
    ("body", "why", "id"),
    [
        ([], "not a JSON object", None),
        ({"op": "watch"}, "id: must be a whole number", None),
        ({"id": True, "op": "watch"}, "id: must be a whole number", None),
        ({"id": 1}, "op: must be one of watch", 1),
        ({"id": 1, "op": ["watch"]}, "op: must be one of watch", 1),
        ({"id": 1, "op": "watch", "x": 1}, "x: watch takes no such field", 1),
        ({"id": 1, "op": "resize"}, "size: resize needs it", 1),
        ({"id": 1, "op": "resize", "size": "2"}, "size: must be a whole number", 1),
        ({"id": 1, "op": "resize", "size": True}, "size: must be a whole number", 1),
        ({"id": 1, "op": "resize", "size": -1}, "size: must be from 0 to", 1),
        ({"id": 1, "op": "save", "path": 3}, "path: must be text", 1),
        ({"id": 1, "op": "reload", "config": []}, "config: must be an object", 1),
    ],
)
def test_a_refusal_names_the_field(body: object, why: str, id: int | None) -> None:
    with pytest.raises(MessageError, match=why) as caught:
        parse_request(json.dumps(body).encode())
    assert caught.value.id == id


@given(st.binary())
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    for read in (decode, parse_request):
        try:
            assert isinstance(read(data), dict)
        except MessageError:
            pass


def test_a_state_has_the_fields_that_the_operator_knows() -> None:
    said = {"state": "running", "brokers_up": 3, "jobs": {"run": 1}, "idle_since": None, "later": [1]}
    assert parse_state(said) == State(state="running", brokers_up=3, jobs={"run": 1})
    assert parse_state({}) == State()


@pytest.mark.parametrize(
    "said",
    [
        {"state": "lost"},
        {"brokers_up": -1},
        {"brokers_up": 1 << 60},
        {"jobs": {"nosuch": 1}},
        {"jobs": {"run": "1"}},
        {"silent": "x" * 20_000},
        {"silent": ["a"]},
        {"idle_since": 1e300},
        {"saved": 1},
    ],
)
def test_what_is_no_state_is_refused_with_its_field(said: dict[str, Any]) -> None:
    with pytest.raises(MessageError, match=f"`\\$.{next(iter(said))}"):
        parse_state(said)
