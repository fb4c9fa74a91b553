"""Methods that write the database in other forms, and read a table: JSON for the policy, a tree, CSV files."""

from __future__ import annotations

import csv
import json
import os
from typing import Any

from headrace.engine.accounting import banks
from headrace.engine.accounting.configs import configuration
from headrace.engine.accounting.database import insert
from headrace.engine.accounting.dialect import columns, number_from_last, order, table_names
from headrace.engine.accounting.requests import Payload, optional, text
from headrace.sched.accounting import rows
from headrace.sched.accounting.values import AssociationRow, BankRow, FactorRow, ProjectRow, QueueRow
from headrace.storage.database import Database, DatabaseError


def export_json(database: Database, _payload: Payload) -> str:
    """The data of the policy `mf_priority`, as its option `config` takes it."""
    return json.dumps(policy_data(database))


_ASSOCIATION = {"def_bank": "default_bank", "def_project": "default_project"}
# The keys of a queue that the plugin of flux-accounting accepts: those that it requires.
_QUEUE_KEYS = QueueRow.__struct_fields__[: -len(QueueRow.__struct_defaults__)]


def policy_data(database: Database, all_queue_limits: bool = False) -> dict[str, Any]:
    """Rows in the form of the policy's services.

    Queues have the keys that the plugin of flux-accounting accepts; with `all_queue_limits` also `max_nodes` and
    `max_cores`.
    """
    queue_keys = QueueRow.__struct_fields__ if all_queue_limits else _QUEUE_KEYS
    config = configuration(database)
    return {
        "associations": _objects(database, "association_table", AssociationRow.__struct_fields__, _ASSOCIATION),
        "queues": _objects(database, "queue_table", queue_keys),
        "projects": _objects(database, "project_table", ProjectRow.__struct_fields__),
        "banks": _objects(database, "bank_table", BankRow.__struct_fields__),
        "config": {"deny_unknown_queues": str(config.get("deny_unknown_queues")).lower() == "true"},
        "priority_factors": _objects(database, "priority_factor_weight_table", FactorRow.__struct_fields__),
    }


def _objects(
    database: Database, table: str, keys: tuple[str, ...], columns: dict[str, str] | None = None
) -> list[dict[str, rows.Value]]:
    """A table's rows as objects whose values have the columns' types. Raises ValueError for one that has not."""
    names = [(columns or {}).get(key, key) for key in keys]
    found = database.rows(f"SELECT {', '.join(names)} FROM {table} ORDER BY rowid")
    return [dict(zip(keys, (rows.value(table, name, each) for name, each in zip(names, row)))) for row in found]


def export_db(database: Database, payload: Payload) -> str:
    """Write each table to a file TABLE.csv in a directory; or answer with the tree of banks for the emulator."""
    if payload.get("fairshare_emulate"):
        return json.dumps({"root": _tree(database)}, indent=2)
    folder = optional(payload, "directory") or "."
    for table in [*table_names(database), *([] if database.is_postgresql else ["sqlite_sequence"])]:
        named, ordered = columns(database, table), order(database) if table in rows.TABLES else ""
        with open(os.path.join(folder, f"{table}.csv"), "w", encoding="utf-8", newline="") as file:
            os.fchmod(file.fileno(), 0o600)
            writer = csv.writer(file)
            writer.writerow(named)
            writer.writerows(database.rows(f"SELECT {', '.join(named)} FROM {table}{ordered}"))
    return ""


def _tree(database: Database) -> dict[str, Any]:
    nodes: dict[str, dict[str, Any]] = {}
    parents: dict[str, str] = {}
    for bank, parent, shares, usage in database.rows(
        "SELECT bank, parent_bank, shares, job_usage FROM bank_table ORDER BY rowid"
    ):
        nodes[bank] = {"bank": bank, "shares": shares, "usage": float(usage), "children": []}
        parents[bank] = parent or ""
    for user, bank, shares, usage in database.rows(
        "SELECT username, bank, shares, job_usage FROM association_table ORDER BY rowid"
    ):
        if bank in nodes:
            nodes[bank]["children"].append({"username": user, "shares": shares, "usage": float(usage)})
    roots = [bank for bank, parent in parents.items() if not parent]
    if not roots:
        raise ValueError("No root bank found in database")
    for bank, parent in parents.items():
        if parent in nodes:
            nodes[parent]["children"].append(nodes[bank])
    found: dict[str, Any] = nodes[roots[-1]]
    return found


def pop_db(database: Database, payload: Payload) -> str:
    """Add the rows of a file TABLE.csv, whose first line names columns; an empty value stands for the default.

    `fields` are the columns to use, by default all. Raises ValueError, which names the file, the line and the value.
    """
    path = text(payload, "csv_file")
    table = os.path.basename(path).replace(".csv", "")
    if table not in table_names(database):
        raise ValueError(f'pop-db: table "{table}" does not exist in the database')
    asked = rows.names(optional(payload, "fields"))
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            head = next(reader, [])
            used = _columns(table, head, asked, database)
            for line in reader:
                _add(database, table, head, used, line)
        except (ValueError, csv.Error) as exc:
            raise ValueError(f"{path}, line {reader.line_num}: {exc}") from None
        except DatabaseError as exc:
            raise DatabaseError(f"{path}, line {reader.line_num}: {exc}") from exc.__cause__
    number_from_last(database, table)
    banks.check_tree(database)
    return ""


def _columns(table: str, head: list[str], asked: tuple[str, ...], database: Database) -> list[str]:
    known = columns(database, table)
    if unknown := [column for column in [*head, *asked] if column not in known]:
        raise ValueError(f"{table} has no column {unknown[0]!r}")
    if missing := [column for column in asked if column not in head]:
        raise ValueError(f"the file has no column {missing[0]!r}")
    return [column for column in head if not asked or column in asked]


def _add(database: Database, table: str, head: list[str], used: list[str], line: list[str]) -> None:
    if not any(line):
        return
    if len(line) != len(head):
        raise ValueError(f"{len(line)} values for {len(head)} columns")
    given = {column: value for column, value in zip(head, line) if column in used and value != ""}
    if table in rows.TABLES:
        row = {column: rows.value(table, column, value) for column, value in given.items()}
    else:
        row = dict(given)
    insert(database, table, row)
