"""Methods about projects. The project `*` is that of jobs that name none."""

from __future__ import annotations

from headrace.engine.accounting.database import insert
from headrace.engine.accounting.queues import warning
from headrace.engine.accounting.requests import IntegrityError, Payload, chosen_columns, listing, select, text
from headrace.sched.accounting import rows
from headrace.storage.database import Database

TABLE = "project_table"


def view_project(database: Database, payload: Payload) -> str:
    project = text(payload, "project")
    columns = rows.columns(TABLE)
    found = select(database, TABLE, columns, "project = :project", {"project": project})
    missing = f"project {project} not found in {TABLE}"
    return listing({**payload, "json": not payload.get("parsable")}, columns, found, missing)


def list_projects(database: Database, payload: Payload) -> str:
    columns = chosen_columns(payload, TABLE)
    return listing(payload, columns, select(database, TABLE, columns))


def add_project(database: Database, payload: Payload) -> str:
    project = rows.value(TABLE, "project", payload["project"])
    if database.rows(f"SELECT 1 FROM {TABLE} WHERE project = :project", {"project": project}):
        raise IntegrityError(f"project {project} already exists in {TABLE}")
    insert(database, TABLE, {"project": project})
    return ""


def delete_project(database: Database, payload: Payload) -> str:
    """Delete a project; the answer is a warning if associations still name it."""
    project = text(payload, "project")
    if project == "*":
        raise ValueError(f"{TABLE}: project: '*' is the project of all associations, it cannot be deleted")
    if not database.execute(f"DELETE FROM {TABLE} WHERE project = :project", {"project": project}):
        raise ValueError(f"project {project} not found in {TABLE}")
    return warning(database, "project", project)
