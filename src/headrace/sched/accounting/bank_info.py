"""The listing of `flux account bank-info`: shares and usage of banks and users, as parts of the whole tree's.

A node's normalized shares are its part of the shares of its siblings of the same kind, times those of its parent. Its
normalized usage is its part of the root's usage.
"""

from __future__ import annotations

import math
from typing import Dict, Iterator, List, Mapping, NamedTuple, Sequence

from headrace.sched.accounting.tables import BankLine, UserLine


class Node(NamedTuple):
    """A bank or a user in the tree; `fairshare` is NaN for a bank below the root."""

    name: str
    depth: int
    is_user: bool
    shares: int
    normalized_shares: float
    usage: float
    normalized_usage: float
    fairshare: float


class Tree:
    """All banks and users by their place in the tree."""

    def __init__(
        self, root: BankLine, banks: Mapping[str, Sequence[BankLine]], users: Mapping[str, Sequence[UserLine]]
    ) -> None:
        self._banks = banks
        self._users = users
        self._total = root.usage
        self.nodes: List[Node] = []
        self.parents: List[int] = []
        self.children: Dict[int, List[int]] = {}
        self._add(-1, Node(root.bank, 0, False, root.shares, 1.0, root.usage, 1.0, math.inf))
        waiting = [0]
        while waiting:
            waiting += self._add_children(waiting.pop())

    def _add(self, parent: int, node: Node) -> int:
        self.nodes.append(node)
        self.parents.append(parent)
        index = len(self.nodes) - 1
        if parent >= 0:
            self.children.setdefault(parent, []).append(index)
        return index

    def _add_children(self, parent: int) -> List[int]:
        """Add the banks and users below a bank, by name; returns the places of the banks."""
        above = self.nodes[parent]
        banks, users = self._banks.get(above.name, ()), self._users.get(above.name, ())
        of_banks, of_users = sum(each.shares for each in banks), sum(each.shares for each in users)
        found = [(each.bank, False, each.shares, of_banks, each.usage, math.nan) for each in banks]
        found += [(each.username, True, each.shares, of_users, each.usage, each.fairshare) for each in users]
        added = []
        for name, is_user, shares, total, usage, fairshare in sorted(found, key=lambda one: (one[0], one[1])):
            part = shares / total * above.normalized_shares if total > 0 else 0.0
            used = usage / self._total if self._total > 0 else 0.0
            node = Node(name, above.depth + 1, is_user, shares, part, usage, used, fairshare)
            index = self._add(parent, node)
            if not is_user:
                added.append(index)
        return added

    def named(self, name: str, is_user: bool) -> List[int]:
        """The places of a user, or of a bank. Raises ValueError if there are none."""
        found = [index for index, node in enumerate(self.nodes) if node.name == name and node.is_user == is_user]
        if not found:
            raise ValueError(f'Could not find "{name}"')
        return found

    def path(self, index: int) -> List[Node]:
        """The nodes from the root to a place."""
        found = []
        while index >= 0:
            found.append(self.nodes[index])
            index = self.parents[index]
        return found[::-1]

    def below(self, index: int, exclude: str, with_users: bool) -> Iterator[Node]:
        """A place and everything below it, without the bank `exclude`, depth first."""
        waiting = [index]
        while waiting:
            place = waiting.pop()
            yield self.nodes[place]
            for child in reversed(self.children.get(place, [])):
                node = self.nodes[child]
                if node.name != exclude and (with_users or not node.is_user):
                    waiting.append(child)


def listing(nodes: Sequence[Node], default_bank: str, verbose: bool, parsable: bool, header: bool) -> str:
    """A line for each node; the user's default bank has an asterisk."""
    lines = [_header(verbose, parsable)] if header else []
    return "\n".join([*lines, *(_line(node, default_bank, verbose, parsable) for node in nodes)])


_SHORT = ("Name", "Shares", "Norm_Shares", "Norm_Usage", "Norm_FS")
_LONG = ("Name", "Shares", "Norm_Shares", "Usage", "Norm_Usage", "Norm_FS", "Type")


def _header(verbose: bool, parsable: bool) -> str:
    if parsable:
        return "|".join(_LONG if verbose else _SHORT)
    head = f"{'Name':20} {'Shares':>10} {'Norm Shares':>12}"
    if verbose:
        return f"{head} {'Usage':>13} {'Norm Usage':>12} {'Level FS':>10} {'Type':>5}"
    return f"{head} {'Norm Usage':>12} {'Level FS':>10}"


def _line(node: Node, default_bank: str, verbose: bool, parsable: bool) -> str:
    mark = "*" if not node.is_user and node.name == default_bank else ""
    name = " " * (node.depth + node.is_user) + node.name + mark
    level = "--" if math.isnan(node.fairshare) else f"{node.fairshare:.3f}"
    kind = "User" if node.is_user else "Bank"
    shares, usage = f"{node.normalized_shares:.6f}", f"{node.normalized_usage:.6f}"
    if parsable and verbose:
        return f"{name}|{node.shares}|{shares}|{node.usage:.1f}|{usage}|{node.fairshare:.6f}|{kind}"
    if parsable:
        return f"{name}|{node.shares}|{shares}|{usage}|{level}"
    line = f"{name:20} {node.shares:10d} {shares:>12}"
    if verbose:
        return f"{line} {node.usage:13.1f} {usage:>12} {level:>10} {kind:>5}"
    return f"{line} {usage:>12} {level:>10}"
