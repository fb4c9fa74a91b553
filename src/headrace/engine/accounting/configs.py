"""Methods about the settings in the database: how usage decays, what it counts, and options of the policy."""

from __future__ import annotations

import math
import time

from headrace.engine.accounting import named_rows
from headrace.engine.accounting.database import period
from headrace.engine.accounting.requests import IntegrityError, Payload, text
from headrace.sched.accounting import rows
from headrace.storage.database import Database

TABLE = "config_table"

_PERIODS = ("priority_usage_reset_period", "priority_decay_half_life")
_WEIGHTS = ("node_weight", "core_weight", "gpu_weight")
# More periods than this are a mistake: each association has a row for each of them.
_MOST_PERIODS = 10000


def view_config(database: Database, payload: Payload) -> str:
    return named_rows.view_row(database, payload, TABLE, "key")


def list_configs(database: Database, payload: Payload) -> str:
    return named_rows.list_rows(database, payload, TABLE)


def configuration(database: Database) -> dict[str, str]:
    """All settings."""
    return {str(key): str(value) for key, value in database.rows(f"SELECT key, value FROM {TABLE}")}


def add_config(database: Database, payload: Payload) -> str:
    key, value = _pair(text(payload, "key_value_string"))
    if database.rows(f"SELECT 1 FROM {TABLE} WHERE key = :key", {"key": key}):
        raise IntegrityError(f"UNIQUE constraint failed: {TABLE}.key")
    values = {"key": rows.value(TABLE, "key", key), "value": rows.value(TABLE, "value", value)}
    database.execute(f"INSERT INTO {TABLE} (key, value) VALUES (:key, :value)", values)
    return ""


def _pair(given: str) -> tuple[str, str]:
    if given.count("=") != 1:
        raise ValueError('key-value string must contain exactly one "="')
    key, _, value = given.partition("=")
    return key, value


def edit_config(database: Database, payload: Payload) -> str:
    """Change settings. Another half-life, reset period or decay factor empties all periods of usage."""
    given = payload["key_value_strings"]
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise ValueError("key_value_strings: must be a list of KEY=VALUE")
    new_periods = False
    for key, value in map(_pair, given):
        values = {"key": key, "value": rows.value(TABLE, "value", _checked(key, value))}
        if not database.execute(f"UPDATE {TABLE} SET value = :value WHERE key = :key", values):
            raise ValueError(named_rows.not_found(TABLE, "key", key))
        new_periods = new_periods or key in (*_PERIODS, "decay_factor")
    if new_periods:
        _empty_periods(database)
    return ""


def _checked(key: str, value: str) -> str:
    """The value of a setting as it is stored. Raises ValueError."""
    if key in _PERIODS:
        return str(period(value))
    if key == "deny_unknown_queues" and value.lower() not in ("true", "false"):
        raise ValueError(f"{key} must be 'true' or 'false'")
    if key in _WEIGHTS or key == "decay_factor":
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if key == "decay_factor" and not 0.0 <= number <= 1.0:
            raise ValueError(f"{key} must be a floating-point value between 0 and 1")
        if not 0.0 <= number <= 1e15:
            raise ValueError(f"{TABLE}: {key}: {value!r} is not a number from 0 to 1e15")
    return value


def _empty_periods(database: Database) -> None:
    """Give each association the periods of the new settings, without usage, and begin the first one now."""
    config = configuration(database)
    for key in _PERIODS:
        if key not in config:
            raise ValueError(named_rows.not_found(TABLE, "key", key))
    reset, half_life = (float(config[key]) for key in _PERIODS)
    count = math.ceil(reset / half_life)
    if count > _MOST_PERIODS:
        raise ValueError(f"{TABLE}: {_PERIODS[0]}: {reset} s are {count} periods, more than {_MOST_PERIODS}")

    usage = "job_usage_per_association_table"
    associations = database.rows(f"SELECT DISTINCT username, userid, bank FROM {usage}")
    database.execute(f"DELETE FROM {usage}")
    for username, userid, bank in associations:
        for number in range(count):
            database.execute(
                f"INSERT INTO {usage} (username, userid, bank, period, value)"
                " VALUES (:username, :userid, :bank, :period, 0.0)",
                {"username": username, "userid": userid, "bank": bank, "period": number},
            )
    now = time.time()
    database.execute("UPDATE job_usage_factor_table SET last_job_timestamp = 0")
    database.execute(
        "UPDATE t_half_life_period_table SET end_half_life_period = :end WHERE cluster = 'cluster'",
        {"end": now + half_life},
    )
    database.execute(
        f"INSERT INTO {TABLE} (key, value) VALUES ('reconfigure_time', :now)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        {"now": str(now)},
    )


def delete_config(database: Database, payload: Payload) -> str:
    key = text(payload, "key")
    if key in rows.DEFAULT_CONFIG:
        raise ValueError(f"key-value pair is not allowed to be removed from {TABLE}")
    if not database.execute(f"DELETE FROM {TABLE} WHERE key = :key", {"key": key}):
        raise ValueError(named_rows.not_found(TABLE, "key", key))
    return ""
