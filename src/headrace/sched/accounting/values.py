"""Values that the multi-factor policy takes and returns: requests of jobs, and the rows of the accounting tables.

The rows have the names and types of the payloads that flux-accounting sends to its plugin, so that its programs can
fill this policy. A table is read as a whole or not at all: `read_rows` raises before anything is changed, and its error
names row and field.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

# A limit that limits nothing: the greatest number of the columns. Listings show it as `unlimited`.
UNLIMITED = 2147483647
# An integer column of the tables.
Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Request(msgspec.Struct, frozen=True):
    """What a job asks for.

    `queue`, `bank` and `project` are empty where the jobspec names none. `cores` counts the cores on all nodes; a job
    that asks for cores without nodes counts as one node. `duration` is in seconds, 0 for no limit. `shape` is equal for
    jobs that ask for the same resources under the same constraints.
    """

    id: int
    userid: int
    queue: str = ""
    bank: str = ""
    project: str = ""
    nodes: int = 1
    cores: int = 1
    duration: float = 0.0
    shape: int = 0


class Release(NamedTuple):
    """A dependency that is to be removed from a job."""

    id: int
    description: str


class JobRefusedError(Exception):
    """A job that was accepted before its association was known must end. The message is for the user."""


class AssociationRow(msgspec.Struct, frozen=True):
    """A user in a bank. `queues` and `projects` are comma lists; `active` is 0 for a disabled association."""

    userid: Integer
    bank: str
    def_bank: str
    fairshare: float
    max_running_jobs: Integer
    max_active_jobs: Integer
    queues: str
    active: Integer
    projects: str
    def_project: str
    max_nodes: Integer
    max_cores: Integer
    max_sched_jobs: Integer


class QueueRow(msgspec.Struct, frozen=True):
    """A queue. Limits are per association, but those per job, and `max_nodes` and `max_cores` of all users together.

    `max_time_per_job` is in minutes. flux-accounting does not send `max_nodes` and `max_cores`.
    """

    queue: str
    min_nodes_per_job: Integer
    max_nodes_per_job: Integer
    max_time_per_job: Integer
    priority: Integer
    max_running_jobs: Integer
    max_nodes_per_assoc: Integer
    max_sched_jobs: Integer
    max_sched_nodes_per_assoc: Integer
    max_sched_cores_per_assoc: Integer
    max_nodes: Integer = UNLIMITED
    max_cores: Integer = UNLIMITED


class ProjectRow(msgspec.Struct, frozen=True):
    """A project that jobs may be charged to."""

    project: str


class BankRow(msgspec.Struct, frozen=True):
    """A bank and its factor in the priority of its jobs."""

    bank: str
    priority: float


class FactorRow(msgspec.Struct, frozen=True):
    """The weight of a factor of the priority: fairshare, queue, bank or urgency."""

    factor: str
    weight: Integer


class Settings(msgspec.Struct, frozen=True):
    """Settings of the policy."""

    deny_unknown_queues: bool = False


Row = TypeVar("Row", AssociationRow, QueueRow, ProjectRow, BankRow, FactorRow)


def read_rows(table: str, kind: type[Row], data: Any) -> list[Row]:
    """The rows of a table's payload. Raises ValueError that names row and field: `associations[3].fairshare: …`."""
    try:
        rows = msgspec.convert(data, list[kind])  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        raise ValueError(_located(table, error)) from None
    if kind is AssociationRow:
        _check_finite(table, rows, "fairshare")
    elif kind is BankRow:
        _check_finite(table, rows, "priority")
    return rows


def read_settings(data: Any) -> Settings:
    """The settings of a payload. Raises ValueError that names the field."""
    try:
        return msgspec.convert(data, Settings)
    except msgspec.ValidationError as error:
        raise ValueError(_located("config", error)) from None


def _check_finite(table: str, rows: list[Any], field: str) -> None:
    for i, row in enumerate(rows):
        if not isfinite(getattr(row, field)):
            raise ValueError(f"{table}[{i}].{field}: {getattr(row, field)} is not a finite number")


def _located(table: str, error: msgspec.ValidationError) -> str:
    """The message of an error with the place first: msgspec writes "Expected `int`, got `str` - at `$[3].field`"."""
    text = str(error)
    what, _, path = text.partition(" - at ")
    missing = re.fullmatch(r"Object missing required field `(\w+)`", what)
    place = table + path.strip("`").removeprefix("$")
    if missing:
        return f"{place}.{missing[1]}: missing"
    return f"{place}: {what[0].lower()}{what[1:]}"
