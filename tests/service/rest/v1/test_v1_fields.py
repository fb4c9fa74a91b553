from __future__ import annotations

from typing import Any

import pytest

from headrace.service.rest.v1.fields import BadFields, Field, count, integer, openapi, pick, switch, text


@pytest.mark.parametrize(
    ("read", "value", "found"),
    [
        *((integer, value, 3) for value in (3, "3", 3.0, "3.0", " 3 ", "+3")),
        (integer, -1, -1),
        (integer, (1 << 63) - 1, (1 << 63) - 1),
        (count, "0", 0),
        *((switch, value, True) for value in (True, 1, "true", "True", "1", "on", "yes")),
        *((switch, value, False) for value in (False, 0, "false", "0", "off", "No")),
        (text, 5, "5"),
    ],
)
def test_a_value_is_read_as_clients_write_it(read: Any, value: Any, found: Any) -> None:
    assert (read(value), type(read(value))) == (found, type(found))


@pytest.mark.parametrize(
    ("read", "values"),
    [
        (integer, ["x", "1.5", 1.5, True, None, [], {}, float("nan"), float("inf"), 1e300, 1 << 63, "9" * 30, "1_0"]),
        (count, ["-1", -1, "x"]),
        (switch, ["x", 2, "", None, [], 1.5]),
        (text, [True, None, [], {}]),
    ],
)
def test_what_has_another_kind_is_refused(read: Any, values: Any) -> None:
    for value in values:
        with pytest.raises(ValueError, match=r"^must be"):
            read(value)


FIELDS = (Field("details", switch, "boolean", "D", ("detail",)), Field("limit", count, "integer", "L"))


def test_an_older_name_an_empty_text_and_an_unknown_field() -> None:
    assert pick({"detail": "1", "limit": "", "other": object()}, FIELDS) == {"details": True}
    assert pick({"detail": "1", "details": "0"}, FIELDS) == {"details": False}


def test_all_that_is_wrong_is_told_by_the_names_that_were_used() -> None:
    with pytest.raises(BadFields) as caught:
        pick({"detail": "x", "limit": "x"}, FIELDS)
    assert [name for name, _ in caught.value.problems] == ["detail", "limit"]


def test_openapi_has_each_field() -> None:
    (first, _) = openapi(FIELDS)["parameters"]
    assert (first["name"], first["schema"], first["in"]) == ("details", {"type": "boolean"}, "query")
