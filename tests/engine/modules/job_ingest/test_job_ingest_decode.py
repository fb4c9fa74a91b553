"""Decoding jobspecs that are like the last: the values are those of a plain decoder, and equal parts are one object."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.modules.job_ingest.decode import NOTHING, decode, fresh, shared

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from([0.0, 1.0]) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner, max_size=3),
    max_leaves=12,
)
ENVIRONMENT = st.dictionaries(st.sampled_from("AB"), st.text("ab", max_size=2))
SYSTEM = st.fixed_dictionaries({}, optional={"environment": ENVIRONMENT, "x": JSON})


@given(SYSTEM, SYSTEM)
def test_what_two_jobspecs_have_in_common_is_kept_once_and_changes_nothing(new: Any, last: Any) -> None:
    text, before = json.dumps(new, sort_keys=True), json.dumps(last, sort_keys=True)
    kept = shared(new, last)
    assert json.dumps(kept, sort_keys=True) == text
    assert json.dumps(last, sort_keys=True) == before
    if text == before:
        assert kept is last


JOBSPEC = st.dictionaries(
    st.sampled_from(["tasks", "version", "attributes"]),
    JSON | st.dictionaries(st.sampled_from(["system", "user"]), JSON | SYSTEM),
)


@given(st.lists(JOBSPEC, max_size=5))
def test_jobspecs_come_out_as_a_plain_decoder_has_them(jobspecs: list[Any]) -> None:
    last = NOTHING
    kept = []
    for jobspec in jobspecs:
        last = decode(json.dumps(jobspec).encode(), last)
        kept.append(last.value)
    # Text tells 1 from true and from 1.0; and nothing that came later changed what had come before.
    assert [json.dumps(value, sort_keys=True) for value in kept] == [json.dumps(j, sort_keys=True) for j in jobspecs]


def _spec(argument: str, **environment: str) -> dict[str, Any]:
    system = {"duration": 0, "environment": {"PATH": "/bin", **environment}}
    return {"tasks": [{"command": ["true", argument]}], "attributes": {"system": system}, "version": 1}


def test_what_has_the_same_text_is_the_same_object() -> None:
    first = decode(json.dumps(_spec("1")).encode(), NOTHING)
    second = decode(json.dumps(_spec("2")).encode(), first)
    assert second.value["attributes"] is first.value["attributes"]
    assert second.value["tasks"] != first.value["tasks"]
    assert decode(json.dumps(_spec("2")).encode(), second) is second


def test_an_environment_that_differs_in_a_variable_shares_the_others() -> None:
    path = "/a/path" * 20
    first = decode(json.dumps(_spec("1", LONG=path, FLUX_JOB_CC="1")).encode(), NOTHING)
    second = decode(json.dumps(_spec("1", LONG=path, FLUX_JOB_CC="2")).encode(), first)
    one, other = (decoded.value["attributes"]["system"]["environment"] for decoded in (first, second))
    assert (one["FLUX_JOB_CC"], other["FLUX_JOB_CC"]) == ("1", "2")
    assert other["LONG"] is one["LONG"]


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"1", b'{"a": NaN}', b'{"a": "\xff"}', b'{"attributes": {"system": {"x": }}}']
)
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        decode(text, NOTHING)


def test_what_is_fresh_is_all_that_the_last_jobspec_had_not() -> None:
    first = decode(json.dumps(_spec("1", LONG="x")).encode(), NOTHING)
    assert list(fresh(first, NOTHING)) == [[{"command": ["true", "1"]}], 0, {"PATH": "/bin", "LONG": "x"}, 1]
    second = decode(json.dumps(_spec("2", LONG="y")).encode(), first)
    assert list(fresh(second, first)) == [[{"command": ["true", "2"]}], {"PATH": "/bin", "LONG": "y"}]
    assert list(fresh(second, second)) == []
