"""Methods about the table `jobs`: list records, delete old ones, and add up their usage."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from headrace.engine.accounting.jobs import TABLE
from headrace.engine.accounting.requests import Payload, optional, text
from headrace.engine.accounting.usage import resources
from headrace.formats.spec import jobid
from headrace.sched.accounting.report import EndedJob
from headrace.storage.database import Database
from headrace.wire.query import QueryError, when
from headrace.wire.query.format import Format, FormatError
from headrace.wire.query.job_info import userid_of, username

_WEEK = 7 * 86400.0
# The widest column that a format string may ask for. Everybody may list, so a width is a request for memory.
_WIDEST = 1000

# The fields of a record, in the order of the default listing. Those in _SECONDS have two digits after the point.
_LISTED = (
    *("jobid", "username", "userid", "t_submit", "t_run", "t_inactive", "nnodes", "project", "bank"),
    *("requested_duration", "actual_duration", "duration_delta"),
)
_SECONDS = ("t_submit", "t_run", "t_inactive", "requested_duration", "actual_duration", "duration_delta")
_ID_FORMS = ("dec", "hex", "dothex", "kvs", "words", "emoji", "f58plain", "f58")
_FIELDS = (*_LISTED, "resources", "cluster", *(f"jobid.{form}" for form in _ID_FORMS))
_HEADINGS = dict(zip(_FIELDS, _FIELDS))

_COLUMNS = (
    *("id", "userid", "t_submit", "t_run", "t_inactive", "R", "project", "bank"),
    *("requested_duration", "actual_duration"),
)


def view_job_records(database: Database, payload: Payload) -> str:
    shown = select_records(database, payload)
    form = _format(optional(payload, "format") or _default_format(shown))
    lines = [form.header(), *(form.row(partial(_field, record)) for record in shown)]
    # The text ends with an empty line, as that of flux-accounting does.
    return "".join(f"{line}\n" for line in lines if line.strip())


def select_records(database: Database, payload: Payload) -> list[dict[str, Any]]:
    """The jobs that a request chooses; a job whose R cannot be read is left out. Raises ValueError."""
    where, values = _conditions(database, payload)
    columns = (*_COLUMNS, "cluster") if database.is_postgresql else _COLUMNS
    found = database.rows(f"SELECT {', '.join(columns)} FROM {TABLE} WHERE {where} ORDER BY rowid", values)
    return [record for row in found if (record := _record(dict(zip(columns, row))))]


def ended_jobs(database: Database, payload: Payload, names: Mapping[int, str] | None = None) -> list[EndedJob]:
    """The jobs that a request chooses, for reports; a job whose R cannot be read is left out.

    `names` are users by id, before those of accounts. Raises ValueError.
    """
    where, values = _conditions(database, payload)
    columns = "userid, bank, R, t_submit, t_run, t_inactive"
    known = names or {}
    jobs = []
    for userid, bank, r, submit, start, end in database.rows(
        f"SELECT {columns} FROM {TABLE} WHERE {where} ORDER BY rowid", values
    ):
        try:
            held = resources(r)
        except ValueError:
            continue
        user = known.get(userid)
        jobs.append(EndedJob(username(userid) if user is None else user, bank or "", *held, submit, start, end))
    return jobs


def _record(found: dict[str, Any]) -> dict[str, Any]:
    """A record from the columns of a row; without fields if R cannot be read."""
    try:
        held = resources(found["R"])
    except ValueError:
        return {}
    for key in ("requested_duration", "actual_duration"):
        found[key] = found[key] or 0.0
    return {
        **found,
        "nnodes": held.nodes,
        "username": username(found["userid"]),
        "duration_delta": found["requested_duration"] - found["actual_duration"],
        "resources": found["R"],
        "project": found["project"] or "",
        "bank": found["bank"] or "",
        "cluster": found.get("cluster", ""),
    }


def _field(record: Mapping[str, Any], name: str) -> Any:
    if name.startswith("jobid"):
        return jobid.encode(int(record["id"]), name.partition(".")[2] or "f58")
    return record[name]


def _default_format(records: Sequence[Mapping[str, Any]]) -> str:
    """A format whose columns are as wide as their longest values."""
    parts = []
    for name in _LISTED:
        digits = ".2f" if name in _SECONDS else ""
        width = max([len(name), *(len(format(_field(record, name), digits)) for record in records)])
        parts.append(f"{{{name}:<{width}{digits}}}")
    return " | ".join(parts)


def _format(text: str) -> Format:
    """A format string of fields of records. Raises ValueError."""
    try:
        form = Format(text, _HEADINGS)
    except FormatError as exc:
        raise ValueError(str(exc).replace("Error in user format: ", "")) from None
    for field in form.fields:
        numbers = "".join(each if each.isdigit() else " " for each in field.spec).split()
        if any(int(number) > _WIDEST for number in numbers):
            raise ValueError(f"Invalid format string {text!r}: a column is at most {_WIDEST} wide")
    return form


# The columns that a request compares with expressions such as `< 60`.
_COMPARED = {
    "requested_duration": "requested_duration",
    "actual_duration": "actual_duration",
    "duration_delta": "requested_duration - actual_duration",
}


def _conditions(database: Database, payload: Payload) -> tuple[str, dict[str, Any]]:
    """The condition in SQL by which a request chooses records, and its values. Raises ValueError."""
    terms = ["1 = 1"]
    values: dict[str, Any] = {}
    for column in ("project", "bank"):
        if payload.get(column) is not None:
            terms.append(f"{column} = :{column}")
            values[column] = str(payload[column])
    if user := optional(payload, "user"):
        terms.append("userid = :userid")
        values["userid"] = _userid(database, user)
    if payload.get("jobid") is not None:
        terms.append("id = :id")
        values["id"] = str(jobid.parse(str(payload["jobid"])))
    if payload.get("cluster") is not None:
        if not database.is_postgresql:
            raise ValueError("cluster: a database in SQLite has the jobs of one instance")
        terms.append("cluster = :cluster")
        values["cluster"] = text(payload, "cluster")
    for key, term in (
        ("after_start_time", "t_run >"),
        ("before_end_time", "t_inactive <"),
        ("ended_after", "t_inactive >"),
        ("started_before", "t_run <"),
    ):
        if payload.get(key) is not None:
            terms.append(f"{term} :{key}")
            values[key] = point_in_time(payload[key])
    for key, column in _COMPARED.items():
        for number, expression in enumerate(payload.get(key) or ()):
            operator, operand = _expression(expression)
            terms.append(f"{column} {operator} :{key}_{number}")
            values[f"{key}_{number}"] = operand
    return " AND ".join(terms), values


def point_in_time(given: Any) -> float:
    """Seconds since the epoch of a number or a readable time, which may be in the future. Raises ValueError."""
    try:
        return when.parse(str(given), time.time(), future=False)
    except QueryError as exc:
        raise ValueError(str(exc)) from None


def _userid(database: Database, user: str) -> int:
    """A user's id, by account or by association; -1, which no job has, for an unknown user."""
    try:
        return userid_of(user)
    except (KeyError, ValueError):
        found = database.rows("SELECT userid FROM association_table WHERE username = :user", {"user": user})
        return int(found[0][0]) if found else -1


def _expression(given: Any) -> tuple[str, float]:
    """The operator and the number of `< 60`. Raises ValueError."""
    words = str(given).split(" ")
    if len(words) != 2:
        raise ValueError("expression expects one operator and one value")
    if words[0] not in ("<", "<=", "=", ">=", ">"):
        raise ValueError("expression must start with <, <=, =, >=, or >")
    try:
        return words[0], float(words[1])
    except ValueError:
        raise ValueError("expression expects to be compared with a number") from None


def scrub_old_jobs(database: Database, payload: Payload) -> str:
    weeks = payload["num_weeks"]
    if isinstance(weeks, bool) or not isinstance(weeks, (int, float)) or not 0 <= weeks < 1e6:
        raise ValueError(f"num_weeks: {weeks!r} is not a number of weeks")
    database.execute(f"DELETE FROM {TABLE} WHERE t_inactive < :time", {"time": time.time() - weeks * _WEEK})
    return ""
