"""Fair share of a tree of banks that is a JSON document: for plans, and for simulations without a database.

The document is that of flux-accounting's `account-fairshare-emulate`, which `flux account export-db -F` writes: an
object `root`, in it `bank` or `username`, `shares`, `usage`, and `children`, a list of the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headrace.sched.accounting import tables
from headrace.sched.accounting.tree import Bank, Node, Standing, User, check_numbers, total

_COLUMNS = ("Username", "Bank", "Shares", "Usage", "FairShare")
PARSABLE = "{username}|{bank}|{shares}|{usage}|{fairshare}"


def parse(document: Any) -> Node:
    """The tree of a document. Shares are 1 by default; a user's usage is 0, a bank's the sum of its children's.

    Raises ValueError that names the bank or user and its key.
    """
    if not isinstance(document, dict) or "root" not in document:
        raise ValueError("JSON must contain 'root' key")
    return _node(document["root"], "")


def rows(root: Node) -> tuple[list[Bank], list[User]]:
    """The banks and users of a tree as rows of tables."""
    banks = [Bank(root.name, "", root.shares)]
    users = []
    waiting = [root]
    while waiting:
        bank = waiting.pop()
        for node in bank.children:
            if node.is_user:
                users.append(User(node.name, bank.name, node.shares, node.usage))
            else:
                banks.append(Bank(node.name, bank.name, node.shares))
                waiting.append(node)
    return banks, users


def as_text(standings: Sequence[Standing], as_json: bool = False, form: str = "") -> str:
    """The standings as a table, as JSON, or a line for each by a format string. Fair shares have six decimals.

    Raises ValueError for no standings, and for a format string that is invalid.
    """
    if not standings:
        raise ValueError("no users found in input")
    found = [one._replace(fairshare=round(one.fairshare, 6)) for one in standings]
    if as_json:
        return json.dumps([one._asdict() for one in found], indent=2)
    if form:
        return "\n".join(_line(form, one) for one in found)
    return tables.as_table(_COLUMNS, [one._replace(usage=round(one.usage, 2)) for one in found])


def _line(form: str, standing: Standing) -> str:
    try:
        return form.format(**standing._asdict())
    except KeyError as exc:
        raise ValueError(f"Invalid format string key: {exc}") from None
    except (ValueError, IndexError, AttributeError, TypeError) as exc:
        raise ValueError(f"Invalid format string {form!r}: {exc}") from None


def _node(item: Any, parent: str) -> Node:
    """The node of an object below a bank, or of the root."""
    if not isinstance(item, dict):
        raise ValueError(f'a child of the bank "{parent}" must be an object, not {item!r}')
    is_user = "username" in item
    kind = "username" if is_user else "bank"
    name = item.get(kind)
    if not name:
        raise ValueError("Node must have 'username' or 'bank' key")
    row = f'{kind} "{name}"'
    if not isinstance(name, str):
        raise ValueError(f"{row}: must be a string")
    below = item.get("children", ())
    if not isinstance(below, list | tuple):
        raise ValueError(f"{row}: children: must be a list, not {below!r}")
    children = () if is_user else [_node(child, name) for child in below]
    shares = _number(item, row, "shares", 1)
    usage = _number(item, row, "usage", total(child.usage for child in children))
    check_numbers(row, shares, usage)
    return Node(name, parent if is_user else name, shares, usage, children, is_user)


def _number(item: dict[str, Any], row: str, key: str, default: float) -> float:
    value = item.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{row}: {key}: must be a number, not {value!r}")
    return value
