"""Listings of rows, and trees of banks."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.sched.accounting import bank_info, tables
from headrace.sched.accounting.tables import BankLine, UserLine

CELLS = st.one_of(st.integers(-9, 9), st.just(2147483647), st.text("ab |", max_size=5))
ROWS = st.lists(st.tuples(CELLS, CELLS, st.integers(0, 1)), min_size=1, max_size=4)
COLUMNS = ("name", "max_nodes", "active")


@given(ROWS)
def test_all_lines_of_a_table_are_as_long_and_have_their_separators_below_each_other(rows) -> None:
    head, rule, *lines = tables.as_table(COLUMNS, rows).split("\n")
    assert len(lines) == len(rows)
    assert {len(line) for line in [rule, *lines]} == {len(head)}
    places = [at for at, sign in enumerate(rule) if sign == "+"]
    assert len(places) == 2
    assert all(line[at - 1 : at + 2] == " | " for line in [head, *lines] for at in places)
    for line, row in zip(lines, rows):
        cells = [line[: places[0] - 1], line[places[0] + 2 : places[1] - 1], line[places[1] + 2 :]]
        shown = ["unlimited" if cell == 2147483647 else str(cell) for cell in row[:2]]
        assert [cell.rstrip() for cell in cells] == [*(each.rstrip() for each in shown), "true" if row[2] else "false"]


@given(ROWS)
def test_json_has_the_values_of_all_rows(rows) -> None:
    found = json.loads(tables.as_json(COLUMNS, rows))
    assert found == [
        {name: "unlimited" if cell == 2147483647 else cell for name, cell in zip(COLUMNS, row)} for row in rows
    ]


def test_a_format_string_prints_a_line_for_the_columns_and_each_row() -> None:
    assert (
        tables.as_lines(("a", "b"), [(1, 2), (3, 4)], "{a:>3}|{b!s:<2}|{{x}}") == "  a|b |{x}\n  1|2 |{x}\n  3|4 |{x}"
    )
    assert tables.as_lines(("a",), [(1,)], "") == "\n"


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("{x}", "Invalid column name in format string: x.\nAvailable columns: a,b"),
        ("{}", "Invalid column name in format string: .\n"),
        ("{0}", "Invalid column name in format string: 0."),
        ("{a.__class__}", "Invalid column name in format string: a.__class__."),
        ("{a[0]}", "Invalid column name in format string: a[0]."),
        ("{a:>1001}", "a column is at most 1000 wide"),
        ("{a:.99999999999}", "a column is at most 1000 wide"),
        ("{a:{b}}", "a field has another field in it"),
        ("{a", "Invalid format string '{a'"),
        ("{a:q}", "Invalid format string '{a:q}'"),
    ],
)
def test_a_format_string_names_columns_only(form: str, why: str) -> None:
    with pytest.raises(ValueError) as found:
        tables.as_lines(("a", "b"), [(1, 2)], form)
    assert why in str(found.value)


@given(st.text("{}ab:!r<>.09_ ", max_size=12))
def test_any_format_string_gives_lines_or_a_value_error(form: str) -> None:
    try:
        found = tables.as_lines(("a", "b"), [(1, 2), (3, 4)], form)
    except ValueError:
        assume(False)
    else:
        assert found.count("\n") == 2


USAGES = st.sampled_from([0.0, 0.25, 7.0, 12.3456])


@st.composite
def trees(draw):
    """Banks by parent and users by bank, below `r`."""
    count = draw(st.integers(0, 12))
    banks: dict[str, list[BankLine]] = {}
    names = ["r"]
    for number in range(count):
        parent = draw(st.sampled_from(names))
        names.append(f"b{number}")
        line = BankLine(names[-1], draw(st.integers(0, 1)), draw(st.integers(0, 5)), draw(USAGES))
        banks.setdefault(parent, []).append(line)
    users: dict[str, list[UserLine]] = {}
    for bank in names:
        if bank not in banks:
            for number in range(draw(st.integers(0, 3))):
                line = UserLine(f"u{number}", 1, draw(st.integers(0, 5)), draw(USAGES), 0.5)
                users.setdefault(bank, []).append(line)
    return BankLine("r", 1, 1, draw(USAGES)), banks, users


def walk(bank: str, banks, users, depth: int = 0):
    """The lines of a tree as (depth, bank, user), by recursion."""
    yield depth, bank, ""
    for child in banks.get(bank, []):
        yield from walk(child.bank, banks, users, depth + 1)
    for user in users.get(bank, []):
        yield depth + 1, bank, user.username


@given(trees())
def test_a_tree_has_a_line_for_each_bank_and_user_below_its_parent(tree) -> None:
    root, banks, users = tree
    lines = tables.as_tree(root, banks, users, parsable=True).splitlines()[1:]
    found = [(len(line) - len(line.lstrip()), *line.strip().split("|")[:2]) for line in lines]
    assert found == list(walk("r", banks, users))
    padded = tables.as_tree(root, banks, users, parsable=False).splitlines()[1:]
    assert [line.split()[0] for line in padded] == [bank for _, bank, _ in found]
    assert all(len(line) == (120 if user else 100) for line, (_, _, user) in zip(padded, found))


@given(trees())
def test_normalized_shares_of_siblings_are_their_parents(tree) -> None:
    root, banks, users = tree
    whole = bank_info.Tree(root, banks, users)
    assert len(whole.nodes) == len(list(walk("r", banks, users)))
    for place, node in enumerate(whole.nodes):
        children = [whole.nodes[child] for child in whole.children.get(place, [])]
        if any(child.shares for child in children):
            total = sum(child.normalized_shares for child in children)
            assert math.isclose(total, node.normalized_shares, abs_tol=1e-9)
        path = whole.path(place)
        assert [each.depth for each in path] == list(range(node.depth + 1))
        assert path[0].name == "r" and path[-1] is node
    below = list(whole.below(0, "", True))
    assert [node.name for node in below] and len(below) == len(whole.nodes)
    assert not any(node.is_user for node in whole.below(0, "", False))


def test_a_deep_tree_is_no_harm() -> None:
    depth = 5000
    banks = {f"b{number}": [BankLine(f"b{number + 1}", 1, 1, 0.0)] for number in range(depth)}
    assert tables.as_tree(BankLine("b0", 1, 1, 0.0), banks, {}, True).count("\n") == depth + 2
    assert len(bank_info.Tree(BankLine("b0", 1, 1, 0.0), banks, {}).path(depth)) == depth + 1
