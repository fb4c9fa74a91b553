"""The words that error messages have for JSON values."""

from typing import Any

import pytest

from headrace.formats.spec.json_kind import kind_of


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
