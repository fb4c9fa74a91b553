"""Fair Tree: ranks the associations of a tree of banks by their shares and their usage.

A child's level among its siblings is its part of the shares divided by its part of the usage. The tree is walked depth
first, best level first, and an association's fair share is its rank divided by the number of associations. So a user
of a bank that has used little is ahead of every user of a bank that has used much, and the numbers themselves do not
matter. The algorithm is that of Slurm's priority plugin and of flux-accounting, except that usages are not cut to whole
numbers. The cost is O(n log n), and the depth of the tree is not limited.

The module reads no tables. A caller passes rows of `bank_table` and `association_table`, or a tree with usages of its
own. Errors are ValueErrors that name the row, the column and the value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import groupby
from math import inf
from operator import add, itemgetter
from typing import NamedTuple

from msgspec import Struct

# A usage below this counts as none.
_NO_USAGE = 1e-9
# Numbers beyond this are refused, so that sums and ratios stay finite.
_MOST = 1e200
# Levels are equal if they differ by less than this, relative to the larger one, or absolutely for levels below 1.
_EPSILON = 2.0**-52


class Bank(Struct, frozen=True):
    """A row of `bank_table`. The root's parent is empty. An inactive bank is left out with everything below it."""

    name: str
    parent: str
    shares: float
    active: bool = True


class User(Struct, frozen=True):
    """A row of `association_table`: a user in a bank. Inactive ones are left out."""

    name: str
    bank: str
    shares: float
    usage: float
    active: bool = True


class Node(Struct, frozen=True):
    """A bank, or a user (`is_user`), with the usage that decides its level.

    `bank` is the bank that a user is in, and a bank's own name.
    """

    name: str
    bank: str
    shares: float
    usage: float
    children: Sequence[Node] = ()
    is_user: bool = False


class Standing(NamedTuple):
    """An association and its fair share: 1 for the first, 1/associations for the last."""

    username: str
    bank: str
    shares: float
    usage: float
    fairshare: float


def fair_share(banks: Iterable[Bank], users: Iterable[User]) -> list[Standing]:
    """The active associations in the order of their ranks; equal ones in the order of their rows.

    Raises ValueError: see `tree`.
    """
    return standings(tree(banks, users))


def tree(banks: Iterable[Bank], users: Iterable[User]) -> Node:
    """The root of the tree of active banks and users, each bank with the sum of its users' usages.

    Raises ValueError for no root or two roots, a cycle of banks, an unknown parent or bank, a name that occurs twice, a
    bank that has users and banks, and shares or usages that are negative or too large.
    """
    rows = list(banks)
    below = _sub_banks(rows)
    root = below[""][0]
    ordered = [root] if root.active else []
    # The list grows while it is walked: parents come before their banks.
    for bank in ordered:
        ordered += (child for child in below[bank.name] if child.active)
    members = _members(rows, users)
    nodes: dict[str, Node] = {}
    for bank in reversed(ordered):
        children: list[Node] = [nodes[child.name] for child in below[bank.name] if child.active]
        if children and bank.name in members:
            user = members[bank.name][0].name
            raise ValueError(
                f'association_table: user "{user}": bank "{bank.name}" has the bank "{children[0].name}", '
                "so it cannot have users"
            )
        children = children or members.get(bank.name, [])
        nodes[bank.name] = Node(bank.name, bank.name, bank.shares, total(node.usage for node in children), children)
    return nodes[root.name] if root.active else Node(root.name, root.name, root.shares, 0.0)


def standings(root: Node) -> list[Standing]:
    """The users below a node in the order of their ranks; equal ones in the order of the tree.

    Users are ahead of banks of the same level. Banks of the same level are walked as one, with the levels that their
    children have in their own banks. Users of the same level share the best rank.
    """
    count = _count_users(root)
    found: list[Standing] = []
    waiting = [[root]]
    while waiting:
        run = waiting.pop()
        if run[0].is_user:
            value = (count - len(found)) / count
            found += (Standing(node.name, node.bank, node.shares, node.usage, value) for node in run)
        else:
            placed = [pair for bank in run for pair in zip(levels(bank.children), bank.children, strict=True)]
            waiting += reversed(_runs(placed))
    return found


def levels(siblings: Sequence[Node]) -> list[float]:
    """The level of each sibling. Without usage it is above all numbers, without shares it is 0."""
    shares = total(node.shares for node in siblings)
    usage = total(node.usage for node in siblings)
    return [_level(node, shares, usage) for node in siblings]


def total(values: Iterable[float]) -> float:
    """The sum from left to right.

    Whether two levels are equal may depend on the last digit of a sum. With rows in the order of their names, sums are
    those of flux-accounting.
    """
    return reduce(add, values, 0.0)


def check_numbers(row: str, shares: float, usage: float) -> None:
    """Raise ValueError, with the row's name, for shares or usage that are negative, not a number or too large."""
    for column, value in (("shares", shares), ("job_usage", usage)):
        if not 0 <= value <= _MOST:
            raise ValueError(f"{row}: {column}: must be a number from 0 to {_MOST:g}, not {value!r}")


def _level(node: Node, shares: float, usage: float) -> float:
    if not node.shares:
        return 0.0
    if node.usage < _NO_USAGE:
        return inf
    return (node.shares / shares) / (node.usage / usage)


def _runs(placed: list[tuple[float, Node]]) -> list[list[Node]]:
    """Nodes with their levels as runs, best first: users of equal levels, or banks of equal levels."""
    placed.sort(key=itemgetter(0), reverse=True)
    runs = []
    for alike in _equal(placed):
        if len(alike) == 1:
            runs.append([alike[0][1]])
            continue
        for kind in (True, False):
            runs += ([node for _, node in run] for run in _equal([pair for pair in alike if pair[1].is_user is kind]))
    return runs


def _equal(placed: Sequence[tuple[float, Node]]) -> list[list[tuple[float, Node]]]:
    """Split a list that is sorted by level wherever two adjacent levels differ."""
    runs: list[list[tuple[float, Node]]] = []
    before = 0.0
    for pair in placed:
        level = pair[0]
        if runs and (level == before or before - level < _EPSILON * max(before, 1.0)):
            runs[-1].append(pair)
        else:
            runs.append([pair])
        before = level
    return runs


def _count_users(root: Node) -> int:
    count = 0
    waiting = [root]
    while waiting:
        node = waiting.pop()
        count += node.is_user
        waiting += node.children
    return count


def _sub_banks(banks: Sequence[Bank]) -> dict[str, list[Bank]]:
    """The banks by their parents, in the order of the rows. The root is the only one without a parent."""
    below: defaultdict[str, list[Bank]] = defaultdict(list)
    by_name: dict[str, Bank] = {}
    for bank in banks:
        if not bank.name or bank.name in by_name:
            raise ValueError(f'bank_table: bank: "{bank.name}" must be a name that occurs once')
        by_name[bank.name] = bank
        check_numbers(f'bank_table: bank "{bank.name}"', bank.shares, 0.0)
        below[bank.parent].append(bank)
    for parent in below.keys() - by_name.keys() - {""}:
        raise ValueError(f'bank_table: bank "{below[parent][0].name}": parent_bank "{parent}" does not exist')
    _check_cycles(banks, by_name)
    if len(below[""]) != 1:
        roots = ", ".join(f'"{bank.name}"' for bank in below[""]) or "none"
        raise ValueError(f'bank_table: parent_bank: exactly one bank must have the parent_bank "", not {roots}')
    return below


def _check_cycles(banks: Sequence[Bank], by_name: dict[str, Bank]) -> None:
    """Raise ValueError for a bank that is below itself."""
    sound = {""}
    for bank in banks:
        path: dict[str, None] = {}
        name = bank.name
        while name not in sound:
            if name in path:
                cycle = [*path][[*path].index(name) :]
                raise ValueError(f'bank_table: bank "{name}": parent_bank: a cycle: {" in ".join([*cycle, name])}')
            path[name] = None
            name = by_name[name].parent
        sound.update(path)


def _members(banks: Sequence[Bank], users: Iterable[User]) -> dict[str, list[Node]]:
    """The active users by their banks, in the order of the rows."""
    known = {bank.name for bank in banks}
    active = [user for user in users if user.active]
    seen = set()
    for user in active:
        row = f'association_table: user "{user.name}" of bank "{user.bank}"'
        if user.bank not in known:
            raise ValueError(f"{row}: bank: does not exist")
        if (user.name, user.bank) in seen:
            raise ValueError(f"{row}: occurs twice")
        seen.add((user.name, user.bank))
        check_numbers(row, user.shares, user.usage)
    active.sort(key=lambda user: user.bank)
    return {
        bank: [Node(user.name, bank, user.shares, user.usage, is_user=True) for user in found]
        for bank, found in groupby(active, key=lambda user: user.bank)
    }
