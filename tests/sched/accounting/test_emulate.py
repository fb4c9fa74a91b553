"""Trees of banks as JSON documents: what is read, and the texts of the results."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sched.accounting import emulate
from headrace.sched.accounting.tree import Bank, User, fair_share, standings


def bank(name: str, *children: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"bank": name, "children": list(children), **keys}


def user(name: str, usage: float, shares: int = 1) -> dict[str, Any]:
    return {"username": name, "usage": usage, "shares": shares}


DOCUMENT = {"root": bank("root", bank("A", user("a", 60.125, 3), user("b", 3)), bank("B", user("c", 5)), shares=1)}


def test_results_are_a_table_json_or_lines() -> None:
    found = standings(emulate.parse(DOCUMENT))
    assert emulate.as_text(found) == (
        "Username | Bank | Shares | Usage | FairShare\n"
        "---------+------+--------+-------+----------\n"
        "c        | B    | 1      | 5     | 1.0      \n"
        "b        | A    | 1      | 3     | 0.666667 \n"
        "a        | A    | 3      | 60.12 | 0.333333 "
    )
    assert json.loads(emulate.as_text(found, as_json=True))[1] == {
        "username": "b",
        "bank": "A",
        "shares": 1,
        "usage": 3,
        "fairshare": 0.666667,
    }
    assert emulate.as_text(found, form=emulate.PARSABLE).splitlines()[2] == "a|A|3|60.125|0.333333"
    assert emulate.as_text(found, form="{fairshare:.2f} {username:>3}") == "1.00   c\n0.67   b\n0.33   a"


def test_a_bank_without_usage_has_that_of_its_children_and_another_keeps_its_own() -> None:
    root = emulate.parse(DOCUMENT)
    assert (root.usage, [child.usage for child in root.children]) == (68.125, [63.125, 5])
    first = bank("A", user("a", 1), usage=1000)
    found = standings(emulate.parse({"root": bank("root", first, bank("B", user("b", 500)))}))
    assert [one.username for one in found] == ["b", "a"]


def test_users_and_banks_may_be_siblings() -> None:
    found = standings(emulate.parse({"root": bank("root", bank("A", user("a", 5)), user("u", 5))}))
    assert [(one.username, one.bank, one.fairshare) for one in found] == [("u", "root", 1.0), ("a", "A", 0.5)]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1e6), st.integers(0, 5)), min_size=1, max_size=12))
def test_rows_have_the_fair_share_of_their_document(users: list[tuple[int, float, int]]) -> None:
    banks = [Bank("root", "", 1), *(Bank(f"b{i}", "root", i) for i in range(4))]
    rows = [User(f"u{i}", f"b{at}", shares, usage) for i, (at, usage, shares) in enumerate(users)]
    members = [[user(row.name, row.usage, int(row.shares)) for row in rows if row.bank == f"b{i}"] for i in range(4)]
    document = {"root": bank("root", *(bank(f"b{i}", *members[i], shares=i) for i in range(4)))}
    root = emulate.parse(document)
    assert set(standings(root)) == set(fair_share(banks, rows)) == set(fair_share(*emulate.rows(root)))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "JSON must contain 'root' key"),
        ({"bank": "root"}, "JSON must contain 'root' key"),
        ({"root": {"shares": 1}}, "Node must have 'username' or 'bank' key"),
        ({"root": {"bank": 7}}, 'bank "7": must be a string'),
        ({"root": bank("root", "A")}, "a child of the bank \"root\" must be an object, not 'A'"),  # type: ignore[arg-type]
        ({"root": {"bank": "root", "children": {}}}, 'bank "root": children: must be a list, not {}'),
        ({"root": bank("root", user("u", -1))}, 'username "u": job_usage: must be a number from 0'),
        ({"root": bank("root", {"username": "u", "usage": "1"})}, "username \"u\": usage: must be a number, not '1'"),
        ({"root": bank("root", shares=True)}, 'bank "root": shares: must be a number, not True'),
    ],
)
def test_bad_documents_are_named(document: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:
        emulate.parse(document)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("form", "message"),
    [("{nosuch}", "Invalid format string key: 'nosuch'"), ("{", "Invalid format string '{'"), ("{}", "'{}'")],
)
def test_bad_format_strings_are_named(form: str, message: str) -> None:
    with pytest.raises(ValueError) as error:
        emulate.as_text(standings(emulate.parse(DOCUMENT)), form=form)
    assert message in str(error.value)
