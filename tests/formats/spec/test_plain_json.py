"""Both ways through JSON give what package json gives, or its error."""

from __future__ import annotations

import datetime
import json
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.spec import plain_json
from headrace.formats.spec.plain_json import as_json, kind_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_a_value_is_written_and_read_as_by_package_json(value: object) -> None:
    assert plain_json.dumps(value) == json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    assert plain_json.dumps(value, (", ", ": "), ensure_ascii=True) == json.dumps(value)
    assert plain_json.loads(json.dumps(value)) == value


@given(st.text(alphabet='{}[]",:0123456789.eE+-truefalsn \t\n\\u', max_size=12))
def test_any_text_is_read_or_refused_as_by_package_json(text: str) -> None:
    try:
        expected = json.loads(text)
    except ValueError as exc:
        with pytest.raises(type(exc)) as caught:
            plain_json.loads(text)
        assert str(caught.value) == str(exc)
    else:
        assert repr(plain_json.loads(text)) == repr(expected)


@pytest.mark.parametrize("text", ["NaN", '{"a": [1, -Infinity]}', "Infinity"])
def test_constants_are_read_only_where_they_are_wanted(text: str) -> None:
    assert repr(plain_json.loads(text)) == repr(json.loads(text))
    with pytest.raises(ValueError, match="is not JSON"):
        plain_json.loads(text, constants=False)


def test_constants_are_written_only_where_they_are_wanted() -> None:
    assert plain_json.dumps([math.inf, math.nan]) == "[Infinity,NaN]"
    with pytest.raises(ValueError, match="not JSON compliant"):
        plain_json.dumps([math.inf], constants=False)


@pytest.mark.parametrize("value", [{1, 2}, {(1, 2): 3}, b"bytes"])
def test_what_has_no_form_is_refused_in_the_words_of_package_json(value: object) -> None:
    with pytest.raises(TypeError) as expected:
        json.dumps(value)
    with pytest.raises(TypeError) as caught:
        plain_json.dumps(value)
    assert str(caught.value) == str(expected.value)


def test_depth_without_end_is_refused_both_ways() -> None:
    with pytest.raises(RecursionError):
        plain_json.loads("[" * 200_000)
    ring: list[object] = []
    ring.append(ring)
    with pytest.raises(ValueError, match="Circular"):
        plain_json.dumps(ring)


def test_package_json_is_not_imported_for_what_is_plain() -> None:
    code = (
        f"import sys; sys.path[:0] = {sys.path}; from headrace.formats.spec import plain_json as p;"
        " p.loads(p.dumps({'a': [1]})); print({'json', 're'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_dates_and_times_become_text_and_the_rest_stays() -> None:
    moment = datetime.datetime(1979, 5, 27, 7, 32, tzinfo=datetime.timezone.utc)
    given = {"a": {"day": moment.date()}, "b": [moment.time(), [moment]], "c": [1, 2.5, "x", True, {}]}
    assert as_json(given) == {
        "a": {"day": "1979-05-27"},
        "b": ["07:32:00", ["1979-05-27T07:32:00+00:00"]],
        "c": [1, 2.5, "x", True, {}],
    }


@pytest.mark.parametrize(
    ("table", "key"), [({"a": {"b": float("inf")}}, "a.b"), ({"a": [{"b": float("nan")}]}, "a[0].b")]
)
def test_a_number_that_json_has_not_is_refused_with_its_key(table: dict[str, object], key: str) -> None:
    with pytest.raises(ValueError, match="must be a finite number") as refused:
        as_json(table)
    assert str(refused.value).startswith(f"{key}: ")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "missing or null"),
        ({}, "an object"),
        ([], "an array"),
        ("", "a string"),
        (True, "a boolean"),
        (1, "a number"),
        (0.5, "a number"),
        (b"", "bytes"),
    ],
)
def test_a_value_is_named_as_json_names_it(value: Any, kind: str) -> None:
    assert kind_of(value) == kind
