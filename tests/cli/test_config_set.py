"""Values of `flux config set`, and where they go."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cli.common.errors import CommandError
from headrace.cli.config import _kind_of, _parent, _value


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("a b", "string", "a b"),
        ('"1"', "string", "1"),
        ("3", "integer", 3),
        ("3", "real", 3.0),
        ("1.5", "real", 1.5),
        ("true", "boolean", True),
        ("[1, 2]", "array", [1, 2]),
        ('{"a": 1}', "object", {"a": 1}),
        ("1.5h", "fsd", "1.5h"),
    ],
)
def test_a_value_has_the_type_that_was_asked_for(text: str, kind: str, value: Any) -> None:
    assert _value(text, kind, "x") == value
    assert kind == "fsd" or _kind_of(value) == kind


@pytest.mark.parametrize(
    ("text", "kind", "named"),
    [
        ("x", "integer", "integer"),
        ("true", "integer", "integer"),
        ("1.5", "integer", "integer"),
        ("soon", "fsd", "soon is not a Flux standard duration"),
        ("1", "number", "use boolean, integer, real, string, object, array or fsd"),
    ],
)
def test_another_one_is_refused(text: str, kind: str, named: str) -> None:
    with pytest.raises(CommandError, match=named):
        _value(text, kind, "x")


def test_tables_on_the_way_are_made_and_values_are_not_taken_for_tables() -> None:
    conf: dict[str, Any] = {"a": 1}
    table, key = _parent(conf, "exec.kill.timeout")
    table[key] = 5
    assert conf == {"a": 1, "exec": {"kill": {"timeout": 5}}}
    with pytest.raises(CommandError, match="a is a value, not a table"):
        _parent(conf, "a.b")
    with pytest.raises(CommandError, match=r"KEY or TABLE\.KEY"):
        _parent(conf, "exec..b")
