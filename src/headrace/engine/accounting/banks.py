"""Methods about banks: add, edit, delete, view and list, and the usage of banks, which is that of their users."""

from __future__ import annotations

import os
import pwd
from collections.abc import Collection, Mapping, Sequence
from math import fsum
from typing import Any

from headrace.engine.accounting import users
from headrace.engine.accounting.database import insert
from headrace.engine.accounting.dialect import has_table
from headrace.engine.accounting.requests import (
    IntegrityError,
    Payload,
    chosen_columns,
    listing,
    optional,
    select,
    text,
    timestamp,
)
from headrace.sched.accounting import bank_info, rows, tables
from headrace.sched.accounting.rows import Value
from headrace.sched.accounting.tables import BankLine, UserLine
from headrace.storage.database import Database

TABLE = "bank_table"


def add_bank(database: Database, payload: Payload) -> str:
    bank = str(rows.value(TABLE, "bank", payload["bank"]))
    shares = rows.value(TABLE, "shares", payload["shares"])
    parent = optional(payload, "parent_bank")
    existing = database.rows(f"SELECT parent_bank, active FROM {TABLE} WHERE bank = :bank", {"bank": bank})
    if not parent and database.rows(f"SELECT 1 FROM {TABLE} WHERE parent_bank = ''"):
        raise ValueError(f"{TABLE} already has a root bank")
    if parent:
        _need_parent(database, parent)
    if existing and (existing[0][0] != parent or existing[0][1] == 1):
        raise IntegrityError(f"bank {bank} already exists in {TABLE}")
    if existing:
        database.execute(f"UPDATE {TABLE} SET active = 1 WHERE bank = :bank", {"bank": bank})
        return ""
    row: dict[str, Value] = {"bank": bank, "parent_bank": parent, "shares": shares}
    if payload.get("priority") is not None:
        row["priority"] = rows.value(TABLE, "priority", payload["priority"])
    if payload.get("ignore_older_than") is not None:
        row["ignore_older_than"] = _ignored(payload)
    insert(database, TABLE, row)
    return ""


def _ignored(payload: Payload) -> Value:
    return rows.value(TABLE, "ignore_older_than", timestamp(payload["ignore_older_than"]))


def _need_parent(database: Database, parent: str) -> None:
    """Raise ValueError unless banks can be added to a bank: one that exists and has no users."""
    if not _exists(database, parent):
        raise ValueError(f"parent bank {parent} not found in bank table")
    if database.rows("SELECT 1 FROM association_table WHERE bank = :bank", {"bank": parent}):
        raise ValueError("banks cannot be added to a bank that currently has associations in it")


def _exists(database: Database, bank: str) -> bool:
    return bool(database.rows(f"SELECT 1 FROM {TABLE} WHERE bank = :bank", {"bank": bank}))


def need_bank(database: Database, bank: str) -> None:
    """Raise ValueError unless a bank exists."""
    if not _exists(database, bank):
        raise ValueError(f"bank {bank} not found in {TABLE}")


def view_bank(database: Database, payload: Payload) -> str:
    bank, tree, parsable = text(payload, "bank"), bool(payload.get("tree")), bool(payload.get("parsable"))
    if tree and payload.get("fields"):
        raise ValueError("--tree option does not support custom formatting")
    if parsable and not tree:
        raise ValueError("-P/--parsable can only be passed with -t/--tree")
    columns = chosen_columns(payload, TABLE)
    found = select(database, TABLE, columns, "bank = :bank", {"bank": bank})
    missing = f"bank {bank} not found in {TABLE}"
    if not found or payload.get("format"):
        return listing(payload, columns, found, missing)
    shown = (
        "1 = 1" + " AND job_usage > 0" * bool(payload.get("concise")) + " AND active = 1" * bool(payload.get("active"))
    )
    if tree:
        root = _bank_lines(database, "bank = :bank", {"bank": bank})[""][0]
        banks = _bank_lines(database, "parent_bank <> ''", by_parent=True)
        return tables.as_tree(root, banks, _user_lines(database, shown), parsable)
    if not payload.get("users"):
        return listing({"json": True}, columns, found)
    below = ("username", "active", "default_bank", "shares", "job_usage", "fairshare")
    members = select(database, users.TABLE, below, f"bank = :bank AND {shown}", {"bank": bank})
    part = tables.as_table(below, members) if members else f"no users under {bank}"
    return f"{tables.as_table(columns, found)}\n\n{part}"


def _bank_lines(
    database: Database, where: str, values: dict[str, Any] | None = None, by_parent: bool = False
) -> dict[str, list[BankLine]]:
    """Banks by their parent, or all of them under ""."""
    found: dict[str, list[BankLine]] = {}
    for parent, *cells in select(
        database, TABLE, ["parent_bank", "bank", "active", "shares", "job_usage"], where, values
    ):
        found.setdefault(parent if by_parent else "", []).append(BankLine(*cells))
    return found


def _user_lines(database: Database, where: str = "") -> dict[str, list[UserLine]]:
    """Users by their bank."""
    found: dict[str, list[UserLine]] = {}
    columns = ["bank", "username", "active", "shares", "job_usage", "fairshare"]
    for bank, *cells in select(database, users.TABLE, columns, where):
        found.setdefault(bank, []).append(UserLine(*cells))
    return found


def list_banks(database: Database, payload: Payload) -> str:
    columns = chosen_columns(payload, TABLE)
    return listing(payload, columns, select(database, TABLE, columns, "" if payload.get("inactive") else "active = 1"))


def edit_bank(database: Database, payload: Payload) -> str:
    bank = text(payload, "bank")
    need_bank(database, bank)
    changes: dict[str, Value] = {}
    if payload.get("shares") is not None:
        changes["shares"] = _positive(payload["shares"])
    if payload.get("parent_bank") is not None:
        changes["parent_bank"] = _new_parent(database, bank, text(payload, "parent_bank"))
    if payload.get("priority") is not None:
        changes["priority"] = rows.value(TABLE, "priority", payload["priority"])
    if payload.get("ignore_older_than") is not None:
        changes["ignore_older_than"] = _ignored(payload)
    for column, value in changes.items():
        database.execute(f"UPDATE {TABLE} SET {column} = :value WHERE bank = :bank", {"value": value, "bank": bank})
    if "parent_bank" in changes:
        sum_usage(database)
    return ""


def _positive(given: Any) -> Value:
    try:
        shares = int(given)
    except (TypeError, ValueError):
        shares = 1
    if shares <= 0:
        raise ValueError("new shares amount must be > 0")
    return rows.value(TABLE, "shares", given)


def _new_parent(database: Database, bank: str, parent: str) -> str:
    """Check a bank's new parent: the root keeps none, and no bank is below itself. Raises ValueError."""
    parents = _parents(database)
    if parents[bank] == parent:
        return parent
    if not parent:
        raise ValueError(f"{TABLE} already has a root bank")
    _need_parent(database, parent)
    if not parents[bank]:
        raise ValueError(f"{TABLE}: parent_bank: {bank} is the root bank, which has no parent")
    above, seen = parent, set()
    while above and above not in seen:
        if above == bank:
            raise ValueError(f"{TABLE}: parent_bank: {parent} is below {bank}, the banks would form a circle")
        seen.add(above)
        above = parents.get(above, "")
    return parent


def _parents(database: Database) -> dict[str, str]:
    found = database.rows(f"SELECT bank, parent_bank FROM {TABLE} ORDER BY rowid")
    return {str(bank): str(parent or "") for bank, parent in found}


def subtree(database: Database, bank: str) -> list[str]:
    """A bank and all banks below it, parents first."""
    return _parents_first(bank, _children(_parents(database)))


def _children(parents: Mapping[str, str]) -> dict[str, list[str]]:
    """The banks below each bank; those without a parent are below ""."""
    below: dict[str, list[str]] = {}
    for bank, parent in parents.items():
        below.setdefault(parent, []).append(bank)
    return below


def _parents_first(top: str, below: Mapping[str, Sequence[str]]) -> list[str]:
    """A bank and all banks below it, parents first, each once."""
    found, seen = [top], {top}
    for each in found:
        new = [child for child in below.get(each, ()) if child not in seen]
        seen.update(new)
        found += new
    return found


def delete_bank(database: Database, payload: Payload) -> str:
    bank, force = text(payload, "bank"), bool(payload.get("force"))
    need_bank(database, bank)
    for each in subtree(database, bank):
        if force:
            database.execute(f"DELETE FROM {TABLE} WHERE bank = :bank", {"bank": each})
        else:
            database.execute(f"UPDATE {TABLE} SET active = 0 WHERE bank = :bank", {"bank": each})
        for (user,) in database.rows("SELECT username FROM association_table WHERE bank = :bank", {"bank": each}):
            users.remove(database, str(user), each, force)
        if force and has_table(database, "headrace_coordinator"):
            database.execute("DELETE FROM headrace_coordinator WHERE bank = :bank", {"bank": each})
    if force:
        sum_usage(database)
    return ""


def sum_usage(database: Database, changed: Collection[str] | None = None) -> None:
    """Set the usage of banks: the sum of their users' usages and of the banks directly below them.

    With `changed`, only for these banks and those above them.
    """
    if changed is not None and not changed:
        return
    found = database.rows(f"SELECT bank, parent_bank, job_usage FROM {TABLE} ORDER BY rowid")
    parents = {str(bank): str(parent or "") for bank, parent, _ in found}
    before = {str(bank): float(usage) for bank, _, usage in found}
    below = _children(parents)
    concerned = set(parents) if changed is None else _with_those_above(changed, parents)
    named = {} if changed is None else {f"bank{at}": bank for at, bank in enumerate(concerned)}
    where = f" WHERE bank IN ({', '.join(f':{name}' for name in named)})" if named else ""
    sums = database.rows(f"SELECT bank, sum(job_usage) FROM association_table{where} GROUP BY bank", named)
    of_users = {str(bank): float(usage) for bank, usage in sums}
    usage = dict(before)
    for bank in reversed(_parents_first("", below)[1:]):
        if bank in concerned:
            usage[bank] = fsum([of_users.get(bank, 0.0), *(usage[child] for child in below.get(bank, ()))])
    database.execute_many(
        f"UPDATE {TABLE} SET job_usage = :usage WHERE bank = :bank",
        [{"bank": bank, "usage": usage[bank]} for bank in before if usage[bank] != before[bank]],
    )


def _with_those_above(banks: Collection[str], parents: Mapping[str, str]) -> set[str]:
    """Banks and all banks above them."""
    found: set[str] = set()
    for each in banks:
        bank = each
        while bank in parents and bank not in found:
            found.add(bank)
            bank = parents[bank]
    return found


def check_tree(database: Database) -> None:
    """Check that banks form one tree, with associations in its leaves. Raises ValueError.

    The methods keep it so; this is for rows that were added without them.
    """
    parents = _parents(database)
    if twice := database.rows(f"SELECT bank FROM {TABLE} GROUP BY bank HAVING count(*) > 1"):
        raise ValueError(f"{TABLE}: bank: {twice[0][0]!r} occurs more than once")
    for bank, parent in parents.items():
        if parent and parent not in parents:
            raise ValueError(f"{TABLE}: parent_bank: {parent!r}, the parent of {bank}, is not in the table")
    roots = [bank for bank, parent in parents.items() if not parent]
    if len(roots) > 1:
        raise ValueError(f"{TABLE}: parent_bank: {roots[0]} and {roots[1]} have no parent, there can be one root bank")
    below = set(subtree(database, roots[0])) if roots else set()
    if lost := [bank for bank in parents if bank not in below]:
        raise ValueError(f"{TABLE}: parent_bank: {lost[0]} is below itself")
    inner = set(parents.values())
    for bank, user in database.rows("SELECT bank, min(username) FROM association_table GROUP BY bank"):
        if bank not in parents:
            raise ValueError(f"association_table: bank: {bank!r}, of user {user}, is not in {TABLE}")
        if bank in inner:
            raise ValueError(f"association_table: bank: {bank!r}, of user {user}, has banks below it")


def show_bank_info(database: Database, payload: Payload) -> str:
    """Answer `bank-info`: the way from a bank or user to the root, or what is below a bank."""
    tree, without_users, to_root, user, exclude = (
        optional(payload, key) for key in ("tree", "tree_no_users", "to_root", "user", "exclude")
    )
    below = tree or without_users
    if not (below or to_root or user):
        user = pwd.getpwuid(os.getuid()).pw_name
    defaults = database.rows("SELECT default_bank FROM association_table WHERE username = :user", {"user": user})
    root = _bank_lines(database, "parent_bank = ''").get("")
    if not root:
        raise ValueError(f"No root bank found in {TABLE}")
    banks = _bank_lines(database, "parent_bank <> ''", by_parent=True)
    whole = bank_info.Tree(root[0], banks, _user_lines(database))
    found: list[bank_info.Node] = []
    for place in whole.named(user or below or to_root, bool(user)):
        if below:
            found += whole.below(place, exclude, bool(tree))
        elif not exclude or all(node.name != exclude for node in whole.path(place)[1:]):
            found += whole.path(place)
    verbose, parsable = bool(payload.get("verbose")), bool(payload.get("parsable"))
    default_bank = str(defaults[0][0]) if defaults else ""
    return bank_info.listing(found, default_bank, verbose, parsable, not payload.get("noheader"))
