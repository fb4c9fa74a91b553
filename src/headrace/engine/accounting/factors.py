"""Methods about the factors of a job's priority and their weights."""

from __future__ import annotations

from headrace.engine.accounting import named_rows
from headrace.engine.accounting.requests import Payload, text
from headrace.sched.accounting import rows
from headrace.storage.database import Database

TABLE = "priority_factor_weight_table"
_KIND = "factor"


def view_factor(database: Database, payload: Payload) -> str:
    return named_rows.view_row(database, payload, TABLE, _KIND)


def list_factors(database: Database, payload: Payload) -> str:
    return named_rows.list_rows(database, payload, TABLE)


def edit_factor(database: Database, payload: Payload) -> str:
    factor = text(payload, "factor")
    if factor not in rows.FACTORS:
        known = ",".join(rows.FACTORS)
        raise ValueError(f"{named_rows.not_found(TABLE, _KIND, factor)}; available factors are {known}")
    _set(database, factor, rows.value(TABLE, "weight", payload["weight"]))
    return ""


def reset_factors(database: Database, _payload: Payload) -> str:
    for factor, weight in rows.DEFAULT_WEIGHTS.items():
        _set(database, factor, weight)
    return ""


def _set(database: Database, factor: str, weight: rows.Value) -> None:
    database.execute(
        f"INSERT INTO {TABLE} (factor, weight) VALUES (:factor, :weight)"
        " ON CONFLICT (factor) DO UPDATE SET weight = excluded.weight",
        {"factor": factor, "weight": weight},
    )
