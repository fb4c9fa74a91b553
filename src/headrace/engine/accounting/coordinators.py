"""Coordinators of banks: users who may change what is below their bank. flux-accounting has none.

A coordinator may add, edit and delete the users of the bank and of all banks below it, and the banks below it. What
concerns other banks, too, stays with the owner: user ids, default banks, and deletion of rows by force.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.engine.accounting import banks
from headrace.engine.accounting.database import insert
from headrace.engine.accounting.dialect import has_table
from headrace.engine.accounting.requests import IntegrityError, Payload, listing, select, text
from headrace.sched.accounting import rows
from headrace.sched.accounting.rows import UNKNOWN_USER
from headrace.storage.database import Database

TABLE = "headrace_coordinator"
_COLUMNS = ("username", "bank")


def add_coordinator(database: Database, payload: Payload) -> str:
    user, bank = rows.value("association_table", "username", payload["username"]), text(payload, "bank")
    banks.need_bank(database, bank)
    if not insert(database, TABLE, {"username": user, "bank": bank}, or_ignore=True):
        raise IntegrityError(f"{user} is a coordinator of bank {bank} already")
    return ""


def delete_coordinator(database: Database, payload: Payload) -> str:
    row = {"username": text(payload, "username"), "bank": text(payload, "bank")}
    if not database.execute(f"DELETE FROM {TABLE} WHERE username = :username AND bank = :bank", row):
        raise ValueError(f"{row['username']} is not a coordinator of bank {row['bank']}")
    return ""


def list_coordinators(database: Database, payload: Payload) -> str:
    found = select(database, TABLE, _COLUMNS) if has_table(database, TABLE) else []
    return listing(payload, _COLUMNS, found)


def may(database: Database, user: str, name: str, payload: Payload) -> bool:
    """True if a user who is a coordinator may call a method that is not open."""
    rule = _RULES.get(name)
    if rule is None:
        return False
    own = banks_of(database, user)
    return bool(own) and rule(database, own, payload)


def banks_of(database: Database, user: str) -> set[str]:
    """The banks of which a user is a coordinator, without those below them."""
    if not user or not has_table(database, TABLE):
        return set()
    return {str(bank) for (bank,) in database.rows(f"SELECT bank FROM {TABLE} WHERE username = :user", {"user": user})}


def _within(database: Database, own: set[str], bank: object, below: bool = False) -> bool:
    """True for a bank of a coordinator, or below one; with `below`, not for the coordinator's own banks."""
    if not isinstance(bank, str):
        return False
    return any(bank in banks.subtree(database, each)[below:] for each in own)


def _may_add_user(database: Database, own: set[str], payload: Payload) -> bool:
    return payload.get("userid") in (None, UNKNOWN_USER) and _within(database, own, payload.get("bank"))


def _may_edit_user(database: Database, own: set[str], payload: Payload) -> bool:
    concerns_others = any(payload.get(key) is not None for key in ("userid", "default_bank", "fairshare"))
    return not concerns_others and _within(database, own, payload.get("bank"))


def _may_delete_user(database: Database, own: set[str], payload: Payload) -> bool:
    return not payload.get("force") and _within(database, own, payload.get("bank"))


def _may_add_bank(database: Database, own: set[str], payload: Payload) -> bool:
    return _within(database, own, payload.get("parent_bank"))


def _may_edit_bank(database: Database, own: set[str], payload: Payload) -> bool:
    parent = payload.get("parent_bank")
    moves_within = parent is None or _within(database, own, parent)
    return moves_within and _within(database, own, payload.get("bank"), below=True)


def _may_delete_bank(database: Database, own: set[str], payload: Payload) -> bool:
    return not payload.get("force") and _within(database, own, payload.get("bank"), below=True)


_RULES: dict[str, Callable[[Database, set[str], Payload], bool]] = {
    "add_user": _may_add_user,
    "edit_user": _may_edit_user,
    "delete_user": _may_delete_user,
    "add_bank": _may_add_bank,
    "edit_bank": _may_edit_bank,
    "delete_bank": _may_delete_bank,
}
