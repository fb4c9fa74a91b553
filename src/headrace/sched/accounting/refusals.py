"""Why a job, or a change of its queue or bank, is refused.

Scripts match these texts, so they are flux-accounting's where it has one; the order of the checks decides which text a
user sees.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.sched.accounting.associations import Association
from headrace.sched.accounting.directory import Directory
from headrace.sched.accounting.values import UNLIMITED, QueueRow, Request

QUEUE_KEY, BANK_KEY = "attributes.system.queue", "attributes.system.bank"
DURATION_KEY = "attributes.system.duration"


class Rules(msgspec.Struct, frozen=True):
    """Who owns the instance, and whether the limits of queues are enforced that flux-accounting only stores."""

    owner: int
    strict: bool = False


def no_entry(request: Request) -> str:
    """The text for a user, or a bank of the user, that the tables do not have."""
    return f"cannot find user/bank or user/default bank entry for uid: {request.userid}"


def may_run_unknown(directory: Directory, rules: Rules, userid: int) -> bool:
    """Whether a user may run without an association: the owner, where the tables have no association of the owner."""
    return userid == rules.owner and userid not in directory.default_banks


def refusal(directory: Directory, rules: Rules, request: Request, is_new: bool = True) -> str:
    """Why a job is refused; empty if it is accepted. A job that exists (not `is_new`) is one of the active jobs."""
    association = directory.find(request.userid, request.bank)
    row = directory.queue_row(request.queue)
    if association is None:
        if directory.associations and not may_run_unknown(directory, rules, request.userid):
            return no_entry(request)
    else:
        text = _access_refusal(directory, association, request, is_new) or _size_refusal(association, row, request)
        if text:
            return text
    return _strict_refusal(row, request) if rules.strict and row is not None else ""


def queue_refusal(directory: Directory, association: Association, request: Request) -> str:
    """Why an association may not use the queue of a request; empty if it may."""
    row = directory.queue_row(request.queue)
    if row is None or request.queue in association.queues:
        return ""
    return f'queue "{request.queue}" not valid for user; valid queues for user: {association.row.queues.strip()}'


def update_refusal(directory: Directory, rules: Rules, request: Request, key: str, value: Any) -> str:
    """Why a job may not get another queue, bank or duration (seconds); empty if it may."""
    if key == QUEUE_KEY:
        changed = msgspec.structs.replace(request, queue=value)
        association = directory.find(request.userid, request.bank)
        if association is not None and queue_refusal(directory, association, changed):
            return f"mf_priority: queue not valid for user: {value}"
    elif key == BANK_KEY:
        changed = msgspec.structs.replace(request, bank=value)
        if text := _bank_refusal(directory, rules, changed):
            return text
    else:
        row = directory.queue_row(request.queue)
        if key != DURATION_KEY or not rules.strict or row is None:
            return ""
        return _strict_refusal(row, msgspec.structs.replace(request, duration=value))
    return refusal(directory, rules, changed, is_new=False)


def _bank_refusal(directory: Directory, rules: Rules, request: Request) -> str:
    association = directory.find(request.userid, request.bank)
    if association is None:
        if not directory.associations:
            return "update_bank: plugin still waiting on flux-accounting data"
        if may_run_unknown(directory, rules, request.userid):
            return ""
        return f"update_bank: cannot find flux-accounting entry for uid/bank: {request.userid}/{request.bank}"
    row = association.row
    if 0 < row.max_active_jobs <= association.active_jobs:
        return "new bank is already at max-active-jobs limit"
    if 0 < row.max_running_jobs <= association.used.run_jobs:
        return (
            f"updating to bank {request.bank} while it is already at max-run-jobs limit is not allowed; try again later"
        )
    return ""


def _access_refusal(directory: Directory, association: Association, request: Request, is_new: bool) -> str:
    row = association.row
    if row.active == 0:
        return "user/bank entry has been disabled from flux-accounting DB"
    if directory.settings.deny_unknown_queues and request.queue and directory.queue_row(request.queue) is None:
        return f'queue "{request.queue}" is unknown to flux-accounting and deny-unknown-queues is enabled'
    if text := queue_refusal(directory, association, request):
        return text
    project = request.project
    if project and not (project in directory.projects and project in association.projects):
        return f'project "{project}" not valid for user; valid projects for user: {row.projects.strip()}'
    if is_new and 0 < row.max_active_jobs <= association.active_jobs:
        return "user has max active jobs"
    return ""


def _size_refusal(association: Association, queue: QueueRow | None, request: Request) -> str:
    row, nodes, cores = association.row, request.nodes, request.cores
    if queue is not None and nodes > queue.max_nodes_per_assoc:
        return (
            f"job size ({nodes} node(s)) is greater than max resources limit configured for queue "
            f"({queue.max_nodes_per_assoc} node(s))"
        )
    if nodes > row.max_nodes or cores > row.max_cores:
        return (
            f"job size ({nodes} node(s), {cores} core(s)) is greater than max resources limits configured for "
            f"association ({row.max_nodes} node(s), {row.max_cores} core(s))"
        )
    return ""


def _strict_refusal(queue: QueueRow, request: Request) -> str:
    """The refusal by limits of a queue for each job, and for all users together, that flux-accounting only stores."""
    for what, value, low, high in (
        ("nodes", request.nodes, queue.min_nodes_per_job, min(queue.max_nodes_per_job, queue.max_nodes)),
        ("cores", request.cores, 0, queue.max_cores),
    ):
        if value < low:
            return f'queue "{queue.queue}": the job asks for {value} {what}, fewer than the {low} that a job must have'
        if value > high:
            return f'queue "{queue.queue}": the job asks for {value} {what}, more than the {high} that a job may have'
    if queue.max_time_per_job < UNLIMITED and not 0 < request.duration <= queue.max_time_per_job * 60:
        asked = f"{request.duration / 60:g} minutes" if request.duration else "no time limit"
        return (
            f'queue "{queue.queue}": the job asks for {asked}, and a job may have at most '
            f"{queue.max_time_per_job} minutes"
        )
    return ""
