"""Methods about projects. The project `*` is that of jobs that name none."""

from __future__ import annotations

from headrace.engine.accounting import named_rows
from headrace.engine.accounting.database import insert
from headrace.engine.accounting.requests import IntegrityError, Payload
from headrace.sched.accounting import rows
from headrace.storage.database import Database

TABLE = "project_table"
_KIND = "project"


def view_project(database: Database, payload: Payload) -> str:
    return named_rows.view_row(database, {**payload, "json": not payload.get("parsable")}, TABLE, _KIND)


def list_projects(database: Database, payload: Payload) -> str:
    return named_rows.list_rows(database, payload, TABLE)


def add_project(database: Database, payload: Payload) -> str:
    project = rows.value(TABLE, "project", payload["project"])
    if database.rows(f"SELECT 1 FROM {TABLE} WHERE project = :project", {"project": project}):
        raise IntegrityError(f"project {project} already exists in {TABLE}")
    insert(database, TABLE, {"project": project})
    return ""


def delete_project(database: Database, payload: Payload) -> str:
    if payload.get("project") == "*":
        raise ValueError(f"{TABLE}: project: '*' is the project of all associations, it cannot be deleted")
    return named_rows.delete_row(database, payload, TABLE, _KIND)
