"""Methods about associations, which are users in banks: add, edit, delete, view and list."""

from __future__ import annotations

import pwd
import time
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.engine.accounting.configs import configuration
from headrace.engine.accounting.database import insert
from headrace.engine.accounting.requests import (
    IntegrityError,
    Payload,
    chosen_columns,
    listing,
    optional,
    select,
    text,
)
from headrace.sched.accounting import rows
from headrace.sched.accounting.rows import UNKNOWN_USER, Value
from headrace.sched.accounting.values import UNLIMITED
from headrace.storage.database import Database

TABLE = "association_table"

# The limits of an association. "unlimited" is a value of them.
LIMITS = ("max_running_jobs", "max_active_jobs", "max_nodes", "max_cores", "max_sched_jobs")
# What an edit can change. All except the first two can be reset to their defaults by -1.
_EDITABLE = ("userid", "default_bank", "shares", "fairshare", *LIMITS, "queues", "projects", "default_project")
# The tables with an association's usage, which has its user id and bank, too.
_USAGE_TABLES = ("job_usage_factor_table", "job_usage_per_association_table")


def view_user(database: Database, payload: Payload) -> str:
    user = text(payload, "username")
    if payload.get("job_usage"):
        if payload.get("fields"):
            raise ValueError("-J/--job-usage cannot be combined with --fields")
        table, columns, order = _USAGE_TABLES[1], rows.columns(_USAGE_TABLES[1]), "bank, period"
        missing = "no results found in query"
    else:
        table, columns, order = TABLE, chosen_columns(payload, TABLE), "bank"
        missing = f"user {user} not found in {TABLE}"
    found = select(database, table, columns, "username = :user", {"user": user}, order)
    if found and payload.get("list_banks") and not payload.get("format"):
        banks = select(database, TABLE, ["bank"], "username = :user", {"user": user}, "bank")
        return "".join(f"{bank}\n" for (bank,) in banks)
    return listing({"json": not payload.get("parsable"), **payload}, columns, found, missing)


# The columns by which associations are listed. In those with lists, a part is enough.
_FILTERS = ("active", "bank", "shares", *LIMITS)
_PARTS = ("queues", "projects", "default_project")


def list_users(database: Database, payload: Payload) -> str:
    columns = chosen_columns(payload, TABLE)
    conditions: list[str] = []
    values: dict[str, Value] = {}
    for column in (*_FILTERS, *_PARTS):
        if payload.get(column) is None:
            continue
        alternatives = []
        for at, name in enumerate(str(payload[column]).split(",")):
            key = f"{column}_{at}"
            if column in _PARTS:
                values[key] = "%" + name.strip().replace("!", "!!").replace("%", "!%").replace("_", "!_") + "%"
                alternatives.append(f"lower({column}) LIKE lower(:{key}) ESCAPE '!'")
            else:
                values[key] = _limit(column, name.strip())
                alternatives.append(f"{column} = :{key}")
        conditions.append(f"({' OR '.join(alternatives)})")
    return listing(payload, columns, select(database, TABLE, columns, " AND ".join(conditions), values))


def add_user(database: Database, payload: Payload) -> str:
    user = str(rows.value(TABLE, "username", payload["username"]))
    bank = str(rows.value(TABLE, "bank", payload["bank"]))
    key = {"user": user, "bank": bank}
    found = database.rows(f"SELECT active FROM {TABLE} WHERE username = :user AND bank = :bank", key)
    if found and found[0][0] == 1:
        raise IntegrityError(f"association {user},{bank} already active in {TABLE}")
    if database.rows("SELECT 1 FROM bank_table WHERE parent_bank = :bank", {"bank": bank}):
        raise ValueError("associations cannot be added to the same parent bank as a sub-bank")
    if found:
        _change(database, "active = 1", {}, user, bank)
        return ""
    if not database.rows("SELECT 1 FROM bank_table WHERE bank = :bank", {"bank": bank}):
        raise ValueError(f"Bank {bank} does not exist in bank_table")
    row = _new_row(database, payload, user, bank)
    insert(database, TABLE, row)
    add_usage(database, user, row["userid"], bank)
    return ""


def _new_row(database: Database, payload: Payload, user: str, bank: str) -> dict[str, Value]:
    now = int(time.time())
    row: dict[str, Value] = {"creation_time": now, "mod_time": now, "username": user, "bank": bank}
    userid = payload.get("userid")
    row["userid"] = rows.value(TABLE, "userid", UNKNOWN_USER if userid is None else userid)
    if row["userid"] == UNKNOWN_USER:
        row["userid"] = _userid_of(database, user)
    defaults = database.rows(f"SELECT default_bank FROM {TABLE} WHERE username = :user", {"user": user})
    row["default_bank"] = str(defaults[0][0]) if defaults else bank
    for column in ("shares", "fairshare", *LIMITS):
        if payload.get(column) is not None:
            row[column] = _limit(column, payload[column])
    row["queues"] = _need_queues(database, optional(payload, "queues"))
    projects = optional(payload, "projects") or "*"
    row["projects"] = "*" if projects == "*" else _need_projects(database, projects)
    row["default_project"] = rows.names(str(row["projects"]))[0]
    if default := optional(payload, "default_project"):
        _need_projects(database, default)
        row["default_project"] = default
        row["projects"] = ",".join(rows.names(f"{row['projects']},{default}"))
    return row


def _userid_of(database: Database, user: str) -> int:
    """The user id of an account, else of the user's other associations, which only administrators can choose."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        found = database.rows(f"SELECT DISTINCT userid FROM {TABLE} WHERE username = :user", {"user": user})
        return int(found[0][0]) if len(found) == 1 else UNKNOWN_USER


def _limit(column: str, given: Any) -> Value:
    """A value of an association, where a limit may be "unlimited". Raises ValueError."""
    if column in LIMITS and str(given).lower() == "unlimited":
        return UNLIMITED
    return rows.value(TABLE, column, given)


def add_usage(database: Database, user: str, userid: Value, bank: str) -> None:
    """Add the rows of an association's usage, unless it has some from before it was deleted."""
    row = {"username": user, "userid": userid, "bank": bank}
    insert(database, _USAGE_TABLES[0], row, or_ignore=True)
    for period in range(_periods(database)):
        insert(database, _USAGE_TABLES[1], {**row, "period": period, "value": 0.0}, or_ignore=True)


def _periods(database: Database) -> int:
    """How many periods of usage a new association has: whole half-lives in the reset period, 4 without settings."""
    config = configuration(database)
    try:
        count = int(float(config["priority_usage_reset_period"]) / float(config["priority_decay_half_life"]))
    except (KeyError, ValueError, ZeroDivisionError, OverflowError):
        count = 0
    return count if count > 0 else 4


def _need_queues(database: Database, queues: str) -> str:
    """A list of queues, which must exist. Raises ValueError."""
    known = {row[0] for row in database.rows("SELECT queue FROM queue_table")}
    for queue in rows.names(queues):
        if queue not in known:
            raise ValueError(f"queue {queue} does not exist in queue_table")
    return ",".join(rows.names(queues))


def _need_projects(database: Database, projects: str) -> str:
    """A list of projects, which must exist, with the default project `*`. Raises ValueError."""
    known = {row[0] for row in database.rows("SELECT project FROM project_table")}
    found = rows.names(f"{projects},*")
    for project in found:
        if project not in known:
            raise ValueError(f"project {project} does not exist in project_table")
    return ",".join(found)


def delete_user(database: Database, payload: Payload) -> str:
    user, bank = text(payload, "username"), text(payload, "bank")
    _need_association(database, user, bank)
    remove(database, user, bank, bool(payload.get("force")))
    return ""


def remove(database: Database, user: str, bank: str, force: bool) -> None:
    """Deactivate an association, or delete its row with `force`.

    If the bank was the user's default bank, the oldest active one becomes the default.
    """
    key = {"user": user, "bank": bank}
    ((default,),) = database.rows(f"SELECT default_bank FROM {TABLE} WHERE username = :user AND bank = :bank", key)
    if force:
        database.execute(f"DELETE FROM {TABLE} WHERE username = :user AND bank = :bank", key)
    else:
        _change(database, "active = 0", {}, user, bank)
    if default == bank:
        others = database.rows(
            f"SELECT bank FROM {TABLE} WHERE username = :user AND active = 1 ORDER BY creation_time, bank",
            {"user": user},
        )
        if others:
            _change(database, "default_bank = :default", {"default": others[0][0]}, user)


def _need_association(database: Database, user: str, bank: str = "") -> None:
    """Raise ValueError unless a user is in a bank, or in any bank without one."""
    where = "username = :user" + (" AND bank = :bank" if bank else "")
    if not database.rows(f"SELECT 1 FROM {TABLE} WHERE {where}", {"user": user, "bank": bank}):
        raise ValueError(f"user {user} not found in {TABLE}" + (f" under bank {bank}" if bank else ""))


def _change(database: Database, setting: str, values: Mapping[str, Value], user: str = "", bank: str = "") -> None:
    """Change columns of a user's row in a bank; without a bank of all its rows; without a user of all rows."""
    where = " AND ".join(["1 = 1"] + ["username = :where_user"] * bool(user) + ["bank = :where_bank"] * bool(bank))
    keys: dict[str, Value] = {"where_user": user, "where_bank": bank, "now": int(time.time()), **values}
    database.execute(f"UPDATE {TABLE} SET {setting}, mod_time = :now WHERE {where}", keys)


def edit_user(database: Database, payload: Payload) -> str:
    user, bank = text(payload, "username"), optional(payload, "bank")
    added, removed = optional(payload, "add_queue"), optional(payload, "delete_queue")
    changes = _changes(database, payload, _EDITABLE)
    if not (changes or added or removed):
        raise ValueError("no fields provided for update")
    if "queues" in changes and (added or removed):
        raise ValueError(
            "cannot specify --queues with --add-queue or --delete-queue: replace them, or add and delete single ones"
        )
    if added and added == removed:
        raise ValueError("cannot pass queue to both --add-queue and --delete-queue")
    _need_association(database, user, bank)
    if "default_bank" in changes:
        _need_association(database, user, str(changes["default_bank"]))
    if changes:
        _change(database, ", ".join(f"{column} = :{column}" for column in changes), changes, user, bank)
    if "userid" in changes:
        for table in _USAGE_TABLES:
            where = "username = :user" + (" AND bank = :bank" if bank else "")
            keys = {"user": user, "bank": bank, "userid": changes["userid"]}
            database.execute(f"UPDATE {table} SET userid = :userid WHERE {where}", keys)
    if added or removed:
        _change_queues(database, user, bank, _need_queues(database, added), removed)
    return ""


def _change_queues(database: Database, user: str, bank: str, added: str, removed: str) -> None:
    where = "username = :user" + (" AND bank = :bank" if bank else "")
    for each, queues in select(database, TABLE, ["bank", "queues"], where, {"user": user, "bank": bank}):
        kept = [queue for queue in rows.names(f"{queues},{added}") if queue != removed]
        _change(database, "queues = :queues", {"queues": ",".join(kept)}, user, each)


def _changes(database: Database, payload: Payload, editable: Sequence[str]) -> dict[str, Value]:
    """The new values of the columns that a request names; -1 stands for the default. Raises ValueError."""
    changes: dict[str, Value] = {}
    for column in editable:
        given = payload.get(column)
        if given is None:
            continue
        if str(given) == "-1" and column == "default_bank":
            raise ValueError("default bank cannot be reset with -1; please specify a value")
        if str(given) == "-1" and column not in ("userid", "bank"):
            changes[column] = rows.default(TABLE, column)
        elif column == "queues":
            changes[column] = _need_queues(database, text(payload, column))
        elif column == "projects":
            changes[column] = _need_projects(database, text(payload, column))
        else:
            changes[column] = _limit(column, given)
    if "default_project" in changes:
        _need_projects(database, str(changes["default_project"]))
    return changes


def edit_all_users(database: Database, payload: Payload) -> str:
    changes = _changes(database, payload, ("bank", *_EDITABLE[1:]))
    if not changes:
        raise ValueError("no fields provided for update")
    for column in ("bank", "default_bank"):
        bank = changes.get(column)
        if bank is not None and not database.rows("SELECT 1 FROM bank_table WHERE bank = :bank", {"bank": bank}):
            raise ValueError(f"{TABLE}: {column}: Bank {bank} does not exist in bank_table")
    if "bank" in changes:
        _move_all(database, str(changes["bank"]))
    _change(database, ", ".join(f"{column} = :{column}" for column in changes), changes)
    return ""


def _move_all(database: Database, bank: str) -> None:
    """Check that all associations can be moved to a bank, and move their usage. Raises ValueError."""
    if database.rows("SELECT 1 FROM bank_table WHERE parent_bank = :bank", {"bank": bank}):
        raise ValueError("associations cannot be added to the same parent bank as a sub-bank")
    several = database.rows(f"SELECT username FROM {TABLE} GROUP BY username HAVING count(*) > 1 ORDER BY username")
    if several:
        raise IntegrityError(f"{TABLE}: bank: user {several[0][0]} is in several banks, which cannot become one")
    # Usage of an association that was deleted stays with its bank.
    current = f"(username, bank) IN (SELECT username, bank FROM {TABLE})"
    for table in _USAGE_TABLES:
        database.execute(
            f"DELETE FROM {table} WHERE bank = :bank AND NOT {current} AND username IN (SELECT username FROM {TABLE})",
            {"bank": bank},
        )
        database.execute(f"UPDATE {table} SET bank = :bank WHERE {current}", {"bank": bank})


def sync_userids(database: Database, _payload: Payload) -> str:
    """Set the user ids in the tables of usage to those of the associations."""
    for table in _USAGE_TABLES:
        database.execute(
            f"UPDATE {table} SET userid = (SELECT max(userid) FROM {TABLE} WHERE username = {table}.username)"
            f" WHERE EXISTS (SELECT 1 FROM {TABLE} WHERE username = {table}.username AND userid <> {table}.userid)"
        )
    return ""
