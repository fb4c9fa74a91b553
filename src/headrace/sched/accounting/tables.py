"""Rows of the accounting database as text: tables, JSON, format strings, and trees of banks.

Scripts of sites read these listings, so their columns and separators are those of flux-accounting.
"""

from __future__ import annotations

import json
import string
from typing import Any, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from headrace.sched.accounting.values import UNLIMITED

# The widest column that a format string may ask for. Everybody may list, so a width is a request for memory.
_WIDEST = 1000

Row = Sequence[Any]


def as_table(columns: Sequence[str], rows: Iterable[Row]) -> str:
    """Columns as wide as their longest value, with a rule below their names."""
    lines = [[str(_shown(name, each)) for name, each in zip(columns, row)] for row in rows]
    widths = [max(len(name), *(len(line[at]) for line in lines)) for at, name in enumerate(columns)]
    text = [" | ".join(each.ljust(width) for each, width in zip(line, widths)) for line in [columns, *lines]]
    return "\n".join([text[0], "-+-".join("-" * width for width in widths), *text[1:]])


def _shown(column: str, value: Any) -> Any:
    if column == "active":
        return "true" if value == 1 else "false"
    return _limit(value)


def _limit(value: Any) -> Any:
    return "unlimited" if value == UNLIMITED else value


def as_json(columns: Sequence[str], rows: Iterable[Row]) -> str:
    """A list of objects."""
    return json.dumps([dict(zip(columns, map(_limit, row))) for row in rows], indent=2)


def as_lines(columns: Sequence[str], rows: Iterable[Row], form: str) -> str:
    """A line with the names of columns and one for each row, each by a format string. Raises ValueError.

    A field is the name of a column: attributes and items of values, which `str.format` allows, are refused.
    """
    _check(columns, form)
    try:
        lines = [form.format(**dict(zip(columns, columns)))]
        lines += [form.format(**dict(zip(columns, row))) for row in rows]
    except (ValueError, TypeError) as exc:
        raise ValueError(f"Invalid format string {form!r}: {exc}") from None
    return "\n".join(lines)


def _check(columns: Sequence[str], form: str) -> None:
    try:
        fields = list(string.Formatter().parse(form))
    except ValueError as exc:
        raise ValueError(f"Invalid format string {form!r}: {exc}") from None
    for _, name, spec, _ in fields:
        if name is not None and name not in columns:
            raise ValueError(f"Invalid column name in format string: {name}.\nAvailable columns: {','.join(columns)}")
        for number in "".join(each if each.isdigit() else " " for each in spec or "").split():
            if int(number) > _WIDEST:
                raise ValueError(f"Invalid format string {form!r}: a column is at most {_WIDEST} wide")
        if spec and "{" in spec:
            raise ValueError(f"Invalid format string {form!r}: a field has another field in it")


class BankLine(NamedTuple):
    """A bank in a tree."""

    bank: str
    active: int
    shares: int
    usage: float


class UserLine(NamedTuple):
    """A user below a bank in a tree."""

    username: str
    active: int
    shares: int
    usage: float
    fairshare: float


_TREE = ("Bank", "Username", "Active", "RawShares", "RawUsage", "Fairshare")
_WIDTH = 20


def as_tree(
    root: BankLine,
    banks: Mapping[str, Sequence[BankLine]],
    users: Mapping[str, Sequence[UserLine]],
    parsable: bool,
) -> str:
    """A bank and everything below it, one space further in for each level; `parsable` separates columns by `|`.

    `banks` has the banks below each bank, `users` its users. The usage of the root is rounded to two digits.
    """
    lines = [_tree_line(0, _TREE, parsable)]
    top = root._replace(usage=round(root.usage, 2))
    waiting: List[Tuple[int, BankLine]] = [(0, top)]
    while waiting:
        depth, bank = waiting.pop()
        lines.append(_tree_line(depth, (bank.bank, "", _shown("active", bank.active), *bank[2:]), parsable))
        below = banks.get(bank.bank, ())
        waiting += [(depth + 1, each) for each in reversed(below)]
        for user in () if below else users.get(bank.bank, ()):
            cells = (bank.bank, user.username, _shown("active", user.active), *user[2:])
            lines.append(_tree_line(depth + 1, cells, parsable))
    return "\n".join(lines) + "\n"


def _tree_line(depth: int, cells: Row, parsable: bool) -> str:
    if parsable:
        return " " * depth + "|".join(map(str, cells))
    bank, username, *rest = map(str, cells)
    padded = [username.rjust(_WIDTH - depth), *(each.rjust(_WIDTH) for each in rest)]
    return " " * depth + bank.ljust(_WIDTH) + "".join(padded)
