"""Computes the fair share of associations from the tables of banks and associations, and stores it."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.sched.accounting.tree import Bank, Node, User, fair_share, tree
from headrace.storage.database import Database

# Digits of a fair share after the point.
_DIGITS = 6


def read_tree(database: Database) -> Node:
    """The root of the tree of active banks and users. Raises ValueError for tables that are no tree."""
    banks = database.rows("SELECT bank, parent_bank, shares, active FROM bank_table ORDER BY rowid")
    users = database.rows("SELECT username, bank, shares, job_usage, active FROM association_table ORDER BY rowid")
    return tree(
        [Bank(bank, parent or "", shares, active == 1) for bank, parent, shares, active in banks],
        [User(user, bank, shares, usage, active == 1) for user, bank, shares, usage, active in users],
    )


def update(database: Database, running: Mapping[tuple[str, str], float] | None = None) -> int:
    """Store the fair share of all active associations; returns how many have changed.

    `running` is usage that is not booked yet, by user and bank. The caller has begun a transaction. Raises ValueError
    for a table that is no tree.
    """
    banks = database.rows("SELECT bank, parent_bank, shares, active FROM bank_table ORDER BY rowid")
    found = database.rows(
        "SELECT username, bank, shares, job_usage, active, fairshare FROM association_table ORDER BY rowid"
    )
    if not banks:
        return 0
    extra = running or {}
    users = [
        User(user, bank, shares, usage + extra.get((user, bank), 0.0), active == 1)
        for user, bank, shares, usage, active, _ in found
    ]
    before = {(user, bank): fairshare for user, bank, _, _, _, fairshare in found}
    changed = []
    for standing in fair_share(
        [Bank(bank, parent or "", shares, active == 1) for bank, parent, shares, active in banks], users
    ):
        value = round(standing.fairshare, _DIGITS)
        if before[standing.username, standing.bank] != value:
            changed.append({"user": standing.username, "bank": standing.bank, "value": value})
    database.execute_many(
        "UPDATE association_table SET fairshare = :value WHERE username = :user AND bank = :bank", changed
    )
    return len(changed)
