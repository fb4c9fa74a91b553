"""The state of the policy as `flux jobtap query mf_priority.so` shows it, with flux-accounting's keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.sched.accounting.associations import Association, Counts, Job
from headrace.sched.accounting.directory import Directory
from headrace.sched.accounting.values import QueueRow

# Of a queue, the answer has only the fields that flux-accounting sends.
_QUEUE_FIELDS = tuple(name for name in QueueRow.__struct_fields__ if name not in ("queue", "max_nodes", "max_cores"))


def query(directory: Directory, jobs: Iterable[Job]) -> dict[str, Any]:
    """The associations by user with their counts and held jobs, the queues, and the projects."""
    held: dict[tuple[int, str], dict[str, Any]] = {}
    for job in jobs:
        if job.holds:
            row, request = job.association.row, job.request
            held.setdefault((row.userid, row.bank), {})[str(request.id)] = {
                "nnodes": request.nodes,
                "ncores": request.cores,
                "queue": request.queue,
                "deps": list(job.holds),
            }
    users: dict[int, list[Any]] = {}
    for (userid, bank), association in sorted(directory.associations.items()):
        users.setdefault(userid, []).append(_association(directory, association, held.get((userid, bank), {})))
    rows = {name: queue.row for name, queue in sorted(directory.queues.items()) if queue.row is not None}
    return {
        "mf_priority_map": [{"userid": userid, "banks": banks} for userid, banks in users.items()],
        "queues": {
            name: {"name": name, **{field: getattr(row, field) for field in _QUEUE_FIELDS}}
            for name, row in rows.items()
        },
        "projects": list(directory.projects),
    }


def _association(directory: Directory, association: Association, held: dict[str, Any]) -> dict[str, Any]:
    row, used = association.row, association.used
    return {
        "bank_name": row.bank,
        "fairshare": row.fairshare,
        "max_run_jobs": row.max_running_jobs,
        "cur_run_jobs": used.run_jobs,
        "max_active_jobs": row.max_active_jobs,
        "cur_active_jobs": association.active_jobs,
        "queues": association.queues,
        "queue_factor": association.queue_factor,
        "bank_factor": directory.banks.get(row.bank, 0.0),
        "projects": association.projects,
        "def_project": row.def_project,
        "max_nodes": row.max_nodes,
        "max_cores": row.max_cores,
        "cur_nodes": used.run_nodes,
        "cur_cores": used.run_cores,
        "active": row.active,
        "cur_sched_jobs": used.sched_jobs,
        "max_sched_jobs": row.max_sched_jobs,
        "queue_usage": {name: _usage(name, counts) for name, counts in sorted(association.used_in_queues.items())},
        "held_jobs": held,
    }


def _usage(queue: str, counts: Counts) -> dict[str, int]:
    return {
        # As in flux-accounting, running jobs that name no queue are counted in none.
        "cur_run_jobs": counts.run_jobs if queue else 0,
        "cur_nodes": counts.run_nodes if queue else 0,
        "cur_sched_jobs": counts.sched_jobs,
        "cur_sched_nodes": counts.sched_nodes,
        "cur_sched_cores": counts.sched_cores,
    }
