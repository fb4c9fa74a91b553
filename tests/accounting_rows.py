"""Rows of the accounting tables as services send them, for tests: each takes the fields that matter to the test."""

from __future__ import annotations

from typing import Any

UNLIMITED = 2147483647


def association_row(userid: int = 1, bank: str = "A", **fields: Any) -> dict[str, Any]:
    """An association without limits, whose default bank is this bank."""
    row: dict[str, Any] = {"userid": userid, "bank": bank, "def_bank": bank, "fairshare": 0.5, "active": 1}
    row |= {"max_running_jobs": UNLIMITED, "max_active_jobs": UNLIMITED, "max_sched_jobs": UNLIMITED}
    row |= {"max_nodes": UNLIMITED, "max_cores": UNLIMITED}
    row |= {"queues": "", "projects": "*", "def_project": "*"}
    return row | fields


def queue_row(queue: str = "q", **fields: Any) -> dict[str, Any]:
    """A queue without limits, of priority 0."""
    names = ("max_nodes_per_job", "max_time_per_job", "max_running_jobs", "max_nodes_per_assoc", "max_sched_jobs")
    names += ("max_sched_nodes_per_assoc", "max_sched_cores_per_assoc")
    return {"queue": queue, "min_nodes_per_job": 0, "priority": 0} | dict.fromkeys(names, UNLIMITED) | fields
