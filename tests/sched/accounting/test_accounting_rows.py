"""Rows of the accounting database: columns, defaults, and which values each column takes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.accounting import rows, values


def test_the_rows_of_the_policy_have_the_columns_of_the_tables() -> None:
    renamed = {"def_bank": "default_bank", "def_project": "default_project"}
    kinds = {
        "association_table": values.AssociationRow,
        "bank_table": values.BankRow,
        "project_table": values.ProjectRow,
    }
    for table, kind in kinds.items():
        assert {renamed.get(name, name) for name in kind.__struct_fields__} <= set(rows.columns(table))
    assert values.QueueRow.__struct_fields__ == rows.columns("queue_table")
    assert values.FactorRow.__struct_fields__ == rows.columns("priority_factor_weight_table")


NUMBERS = [("association_table", "shares"), ("queue_table", "max_cores"), ("association_table", "userid")]


@given(st.sampled_from(NUMBERS), st.integers())
def test_a_whole_number_is_taken_within_its_bounds_as_a_number_or_a_text(where, number: int) -> None:
    largest = rows.UNKNOWN_USER if where[1] == "userid" else rows.UNLIMITED
    for given_value in (number, str(number)):
        if 0 <= number <= largest:
            assert rows.value(*where, given_value) == number
        else:
            with pytest.raises(
                ValueError, match=f"{where[0]}: {where[1]}: .* is not a whole number from 0 to {largest}$"
            ):
                rows.value(*where, given_value)


VALUES = st.one_of(st.text(), st.none(), st.lists(st.integers(), max_size=2), st.floats(), st.binary())


@given(st.sampled_from([(table, column) for table in rows.TABLES for column in rows.columns(table)]), VALUES)
def test_any_value_is_taken_or_refused_with_table_and_column(where, given_value) -> None:
    try:
        found = rows.value(*where, given_value)
    except ValueError as exc:
        assert str(exc).startswith(f"{where[0]}: {where[1]}: ")
        assert len(str(exc)) < 250
    else:
        # What was taken is taken again, and is a value of SQLite and of JSON.
        assert rows.value(*where, found) == found
        assert isinstance(found, (int, float, str))
        assert not isinstance(found, float) or math.isfinite(found)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("association_table", "fairshare", math.nan),
        ("association_table", "job_usage", math.inf),
        ("bank_table", "priority", "-inf"),
        ("queue_table", "queue", "a b"),
        ("queue_table", "queue", "a,b"),
        ("association_table", "username", "a\nb"),
        ("association_table", "username", "a" * 256),
        ("association_table", "shares", True),
    ],
)
def test_what_no_table_may_have_is_refused(table: str, column: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{table}: {column}: "):
        rows.value(table, column, value)


def test_columns_that_can_be_reset_have_a_default() -> None:
    assert rows.default("association_table", "max_running_jobs") == 5
    assert rows.default("queue_table", "max_time_per_job") == 60
    with pytest.raises(ValueError, match="association_table: username has no default"):
        rows.default("association_table", "username")


@given(st.lists(st.from_regex(r"[a-z]{1,2}", fullmatch=True)))
def test_a_list_has_each_name_once_in_order(given_names: list[str]) -> None:
    found = rows.names(" , ".join(given_names) + ",")
    assert list(found) == list(dict.fromkeys(given_names))
