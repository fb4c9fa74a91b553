"""Values of a configuration as JSON has them."""

from __future__ import annotations

import datetime

import pytest

from headrace.formats.spec.config_values import as_json


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
