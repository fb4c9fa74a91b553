"""Fair Tree against a naive one, its rules one by one, and the rows that it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sizes
from headrace.sched.accounting.tree import Bank, Node, User, fair_share, standings, tree

# Random trees


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[Bank], list[User]]:
    """Banks and users with small numbers, so that many levels are equal; some of them are inactive."""
    count = draw(st.integers(1, 9))
    banks = [Bank("b0", "", 1)]
    for i in range(1, count):
        parent = draw(st.integers(0, i - 1))
        banks.append(Bank(f"b{i}", f"b{parent}", draw(st.integers(0, 3)), draw(st.integers(0, 9)) > 0))
    parents = {bank.parent for bank in banks}
    leaves = [bank.name for bank in banks if bank.name not in parents]
    # Sums of these are exact in any order; the second is too small to count.
    usages = st.sampled_from([0.0, 2.0**-34, 0.25, 0.5, 1.0, 2.0, 3.0])
    users = [
        User(f"u{i}", draw(st.sampled_from(leaves)), draw(st.integers(0, 3)), draw(usages), draw(st.integers(0, 9)) > 0)
        for i in range(draw(st.integers(0, 14)))
    ]
    return draw(st.permutations(banks)), users


def naive(banks: list[Bank], users: list[User]) -> dict[tuple[str, str], float]:
    """The fair share by user and bank, as the rules read, without a thought for cost."""

    def usage(name: str) -> float:
        own = sum(user.usage for user in users if user.bank == name and user.active)
        return own + sum(usage(bank.name) for bank in banks if bank.parent == name and bank.active)

    def children(name: str) -> list[tuple[float, Bank | User]]:
        found: list[tuple[Bank | User, float]] = [
            (user, user.usage) for user in users if user.bank == name and user.active
        ]
        found += [(bank, usage(bank.name)) for bank in banks if bank.parent == name and bank.active]
        shares, used = sum(each.shares for each, _ in found), sum(amount for _, amount in found)
        placed: list[tuple[float, Bank | User]] = []
        for each, amount in found:
            if each.shares == 0:
                placed.append((-1.0, each))
            elif amount < 1e-9:
                placed.append((1e30, each))
            else:
                placed.append((each.shares / shares / (amount / used), each))
        return placed

    def walk(siblings: list[tuple[float, Bank | User]]) -> Iterator[list[User]]:
        while siblings:
            alike = [max(level for level, _ in siblings)]
            while more := [one for one, _ in siblings if one not in alike and any(same(one, other) for other in alike)]:
                alike += more
            first = [pair for pair in siblings if pair[0] in alike]
            siblings = [pair for pair in siblings if pair[0] not in alike]
            tied = [each for _, each in first if isinstance(each, User)]
            if tied:
                yield tied
            yield from walk([pair for _, each in first if isinstance(each, Bank) for pair in children(each.name)])

    def same(a: float, b: float) -> bool:
        return abs(a - b) < 2**-52 * max(abs(a), abs(b), 1.0)

    root = next(bank for bank in banks if not bank.parent)
    groups = list(walk(children(root.name)))
    count = sum(map(len, groups))
    found: dict[tuple[str, str], float] = {}
    for group in groups:
        rank = count - len(found)
        found.update({(user.name, user.bank): rank / count for user in group})
    return found


@pytest.mark.soak
@settings(max_examples=sizes.size("trees"))
@given(trees())
def test_random_trees_are_ranked_as_the_naive_algorithm_ranks_them(rows: tuple[list[Bank], list[User]]) -> None:
    banks, users = rows
    found = fair_share(banks, users)
    assert {(one.username, one.bank): one.fairshare for one in found} == naive(banks, users)
    assert [one.fairshare for one in found] == sorted((one.fairshare for one in found), reverse=True)


@given(trees(), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_no_fair_share(rows: tuple[list[Bank], list[User]], random: Any) -> None:
    banks, users = rows
    found = set(fair_share(banks, users))
    random.shuffle(users)
    assert set(fair_share(banks, users)) == found


# The rules

ROOT = Bank("root", "", 1)
PAIR = [ROOT, Bank("A", "root", 3), Bank("B", "root", 1)]


def shares(banks: list[Bank], *users: User) -> dict[str, float]:
    return {one.username: one.fairshare for one in fair_share(banks, users)}


def test_users_of_the_bank_that_has_used_less_of_its_shares_come_first() -> None:
    found = shares(PAIR, User("a", "A", 1, 290.0), User("b", "B", 1, 11.0), User("b2", "B", 9, 89.0))
    assert found == {"a": 1.0, "b2": pytest.approx(2 / 3), "b": pytest.approx(1 / 3)}


def test_users_of_equal_banks_are_compared_by_the_levels_in_their_own_banks() -> None:
    banks = [ROOT, Bank("A", "root", 1), Bank("B", "root", 1)]
    users = [User("a", "A", 1, 10.0), User("a2", "A", 1, 30.0), User("b", "B", 1, 10.0), User("b2", "B", 2, 30.0)]
    assert [(one.username, one.fairshare) for one in fair_share(banks, users)] == [
        ("a", 1.0),
        ("b", 0.75),
        ("b2", 0.5),
        ("a2", 0.25),
    ]


def test_equal_banks_below_equal_banks_are_walked_as_one_too() -> None:
    banks = [ROOT, *(Bank(name, "root", 1) for name in "AB"), Bank("AA", "A", 1), Bank("BB", "B", 1)]
    found = shares(banks, *(User(f"{name}{i}", name, 1, float(i)) for name in ("AA", "BB") for i in (1, 2)))
    assert found == {"AA1": 1.0, "BB1": 1.0, "AA2": 0.5, "BB2": 0.5}


def test_small_usages_are_not_cut_to_whole_numbers() -> None:
    assert shares(PAIR[:2], *(User(name, "A", 1, usage) for name, usage in (("a", 0.7), ("b", 0.2), ("c", 0.4)))) == {
        "b": 1.0,
        "c": pytest.approx(2 / 3),
        "a": pytest.approx(1 / 3),
    }


def test_sums_are_taken_from_left_to_right_as_in_flux_accounting() -> None:
    usages = {"a": (3, 3.3), "b": (2, 2.2), "c": (0, 3.3), "d": (1, 0.3)}
    found = shares(PAIR[:2], *(User(name, "A", own, usage) for name, (own, usage) in usages.items()))
    # 3 of 6 to 3.3 of 9.100000000000001, and 2 of 6 to 2.2; with the exact sum, 9.1, they differ in the last digits.
    assert found == {"d": 1.0, "a": 0.75, "b": 0.75, "c": 0.25}


def test_without_usage_a_user_is_first_and_without_shares_last() -> None:
    users = [User("none", "A", 1, 9e-10), User("little", "A", 1, 1e-8), User("no-shares", "A", 0, 0.0)]
    users.append(User("much", "A", 1, 1e12))
    assert list(shares(PAIR[:2], *users)) == ["none", "little", "much", "no-shares"]


def test_users_are_ahead_of_banks_of_the_same_level() -> None:
    bank = Node("A", "A", 1, 5.0, [Node("a", "A", 1, 5.0, is_user=True)])
    user = Node("u", "root", 1, 5.0, is_user=True)
    assert [one.username for one in standings(Node("root", "root", 1, 10.0, [bank, user]))] == ["u", "a"]


def test_inactive_users_and_banks_count_for_nothing() -> None:
    banks = [*PAIR, Bank("C", "root", 9, active=False), Bank("CC", "C", 1)]
    users = [User("a", "A", 1, 3.0), User("b", "B", 1, 1.0), User("gone", "A", 1, 50.0, False), User("c", "CC", 1, 1.0)]
    assert shares(banks, *users) == {"a": 1.0, "b": 1.0}
    root = tree(banks, users)
    assert (root.usage, {bank.name: bank.usage for bank in root.children}) == (4.0, {"A": 3.0, "B": 1.0})
    assert fair_share([Bank("root", "", 1, active=False)], []) == []


def test_a_chain_of_banks_may_be_long() -> None:
    banks = [ROOT, *(Bank(f"b{i}", f"b{i - 1}" if i else "root", 1) for i in range(3000))]
    assert shares(banks, User("u", "b2999", 1, 1.0)) == {"u": 1.0}


# What is refused


@pytest.mark.parametrize(
    ("banks", "users", "message"),
    [
        ([], [], 'bank_table: parent_bank: exactly one bank must have the parent_bank "", not none'),
        ([ROOT, Bank("top", "", 1)], [], 'exactly one bank must have the parent_bank "", not "root", "top"'),
        ([ROOT, Bank("A", "B", 1)], [], 'bank_table: bank "A": parent_bank "B" does not exist'),
        ([ROOT, ROOT], [], 'bank_table: bank: "root" must be a name that occurs once'),
        ([ROOT, Bank("A", "A", 1)], [], 'bank_table: bank "A": parent_bank: a cycle: A in A'),
        ([ROOT, Bank("A", "C", 1), Bank("B", "A", 1), Bank("C", "B", 1)], [], "a cycle: A in C in B in A"),
        ([Bank("root", "", -1)], [], 'bank_table: bank "root": shares: must be a number from 0 to 1e+200, not -1'),
        (PAIR, [User("u", "root", 1, 0.0)], 'user "u": bank "root" has the bank "A", so it cannot have users'),
        (PAIR, [User("u", "X", 1, 0.0)], 'association_table: user "u" of bank "X": bank: does not exist'),
        (PAIR, [User("u", "A", 1, 0.0)] * 2, 'association_table: user "u" of bank "A": occurs twice'),
        (PAIR, [User("u", "A", -2, 0.0)], "shares: must be a number from 0 to 1e+200, not -2"),
        (PAIR, [User("u", "A", 1, float("nan"))], "job_usage: must be a number from 0 to 1e+200, not nan"),
        (PAIR, [User("u", "A", 1, 1e201)], "job_usage: must be a number from 0 to 1e+200, not 1e+201"),
    ],
)
def test_bad_rows_are_named(banks: list[Bank], users: list[User], message: str) -> None:
    with pytest.raises(ValueError) as error:
        fair_share(banks, users)
    assert message in str(error.value)
