"""The OpenAPI schemas of `/v2`, and the responses of each operation.

Clients are generated from these schemas. A property is required if every response has it. An object may have more
properties than its schema names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.experiments.values import STATES as RUN_STATES
from headrace.service import accounting, submission
from headrace.service.instance import NODE_STATES
from headrace.service.rest.v2 import fields, record
from headrace.wire.query.resource_sets import STATES

_Schema = Mapping[str, Any]

# The location of schemas in the document.
SCHEMAS = "#/components/schemas"
# The two forms of a submission.
SUBMISSIONS: Mapping[str, _Schema] = {
    "Submission": fields.form(submission.FIELDS),
    "JobspecSubmission": fields.form(submission.JOBSPEC_FIELDS, ("jobspec",)),
}

_TEXT: _Schema = {"type": "string"}
_INTEGER: _Schema = {"type": "integer"}
_NUMBER: _Schema = {"type": "number"}
_TRUTH: _Schema = {"type": "boolean"}
_NUMBERS: _Schema = {"type": "object", "additionalProperties": _NUMBER}
_ANY_OBJECT: _Schema = {"type": "object", "additionalProperties": True}


def _or_null(schema: _Schema) -> _Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _list(items: _Schema) -> _Schema:
    return {"type": "array", "items": items}


def _ref(name: str) -> _Schema:
    return {"$ref": f"{SCHEMAS}/{name}"}


def _object(optional: Mapping[str, _Schema] | None = None, **properties: _Schema) -> _Schema:
    """An object that always has `properties`, and may have the optional ones."""
    return {"type": "object", "required": [*properties], "properties": {**properties, **(optional or {})}}


def _page(name: str, items: _Schema) -> _Schema:
    """One page of a listing, with the cursor of the next page, null on the last."""
    return _object(**{name: _list(items)}, next=_or_null(_TEXT))


_AMOUNT = _ref("Amount")
_TOKEN = {"id": _TEXT, "user": _TEXT, "note": _TEXT, "session": _TRUTH, "issued": _NUMBER, "ends": _NUMBER}
_EXPERIMENT = {
    **{"name": _TEXT, "state": {**_TEXT, "enum": ["running", "interrupted", "complete"]}},
    **dict.fromkeys(("planned", "done", "failed"), _INTEGER),
}
_COUNTS = ("submitted", "started", "ended", "completed", "failed", "canceled", "timeout")

COMPONENTS: Mapping[str, _Schema] = {
    **SUBMISSIONS,
    "Job": _object(**record.SCHEMAS),
    # The query field `fields` selects the properties of a listing.
    "ListedJob": {"type": "object", "required": ["id"], "properties": record.SCHEMAS},
    "JobException": record.EXCEPTION,
    "Why": record.WHY,
    "JobPage": _page("jobs", _ref("ListedJob")),
    "SubmittedJob": _object(id=_TEXT),
    "ChangedJob": _object({"old_urgency": _INTEGER}, id=_TEXT),
    "CheckedJob": _object(jobspec=_ref("Jobspec"), urgency=_INTEGER),
    "Jobspec": _object(
        version=_INTEGER, resources=_list(_ANY_OBJECT), tasks=_list(_ANY_OBJECT), attributes=_or_null(_ANY_OBJECT)
    ),
    "ResourceSet": _object({"scheduling": {}}, version=_INTEGER, execution=_ANY_OBJECT),
    "Event": _object({"context": _ANY_OBJECT}, timestamp=_NUMBER, name=_TEXT),
    "Eventlog": _object(events=_list(_ref("Event"))),
    "Amount": _object(nnodes=_INTEGER, ncores=_INTEGER, ngpus=_INTEGER),
    "Queue": _object(
        **{"name": _TEXT, "default": _TRUTH, "enabled": _TRUTH, "started": _TRUTH},
        **{"disable_reason": _or_null(_TEXT), "stop_reason": _or_null(_TEXT)},
        **{"default_duration": _or_null(_NUMBER), "max_duration": _or_null(_NUMBER)},
        **dict.fromkeys(STATES, _AMOUNT),
    ),
    "Queues": _object(queues=_list(_ref("Queue"))),
    "Drain": _object(since=_NUMBER, reason=_TEXT),
    "Node": _object(
        **{"rank": _INTEGER, "host": _TEXT, "cores": _TEXT, "gpus": _TEXT, "cores_used": _TEXT, "gpus_used": _TEXT},
        state={**_TEXT, "enum": [*NODE_STATES]},
        properties=_list(_TEXT),
        drain={"oneOf": [_ref("Drain"), {"type": "null"}]},
    ),
    "Resources": _object(**dict.fromkeys(STATES, _AMOUNT), nodes=_list(_ref("Node"))),
    "Graph": _object(graph=_ANY_OBJECT),
    "Bin": _object(
        t=_NUMBER,
        **dict.fromkeys(_COUNTS, _INTEGER),
        **dict.fromkeys(("pending", "running", "cores", "nodes"), _NUMBER),
    ),
    "Wait": _object(queue=_TEXT, size=_INTEGER, count=_INTEGER, median=_NUMBER, p90=_NUMBER, max=_NUMBER),
    "Statistics": _object(
        **{"from": _NUMBER, "to": _NUMBER, "bin": _NUMBER, "bins": _list(_ref("Bin")), "waits": _list(_ref("Wait"))}
    ),
    "Me": _object(name=_TEXT, userid=_INTEGER, sees_all=_TRUTH, auth=_TEXT),
    "Token": _object(**_TOKEN),
    "NewToken": _object(token=_TEXT, **_TOKEN),
    "TokenPage": _page("tokens", _ref("Token")),
    "User": _object(name=_TEXT, userid=_INTEGER, admin=_TRUTH, added=_or_null(_NUMBER)),
    "UserPage": _page("users", _ref("User")),
    "Bank": _object(
        **dict.fromkeys(("bank", "parent"), _TEXT),
        **dict.fromkeys(("depth", "users"), _INTEGER),
        **dict.fromkeys(("shares", "entitled", "usage", "part", "priority"), _NUMBER),
        level=_or_null(_NUMBER),
        coordinators=_list(_TEXT),
        **dict.fromkeys(("may_edit", "may_edit_users"), _TRUTH),
    ),
    "Banks": _object(banks=_list(_ref("Bank"))),
    "Limits": _object(**dict.fromkeys(accounting.LIMITS, _or_null(_INTEGER))),
    "Association": _object(
        **dict.fromkeys(("user", "bank", "default_bank", "default_project"), _TEXT),
        **dict.fromkeys(("userid", "place", "of"), _INTEGER),
        **dict.fromkeys(("shares", "entitled", "usage", "part", "fairshare"), _NUMBER),
        **{"active": _TRUTH, "level": _or_null(_NUMBER), "limits": _ref("Limits")},
        **dict.fromkeys(("queues", "projects"), _list(_TEXT)),
    ),
    "Associations": _object(associations=_list(_ref("Association"))),
    "BankUsage": _object(
        **{"bank": _TEXT, "depth": _INTEGER, "jobs": _INTEGER},
        **dict.fromkeys(("entitled", "usage", "part"), _NUMBER),
    ),
    "UserUsage": _object(username=_TEXT, usage=_NUMBER, part=_NUMBER, jobs=_INTEGER),
    "BankUsageOverTime": _object(bank=_TEXT, usage=_list(_NUMBER)),
    "Usage": _object(
        **{"from": _NUMBER, "to": _NUMBER, "usage": _NUMBER, "banks": _list(_ref("BankUsage"))},
        **{"edges": _list(_NUMBER), "over_time": _list(_ref("BankUsageOverTime"))},
        users=_or_null(_list(_ref("UserUsage"))),
    ),
    "PriorityTerm": _object(name=_TEXT, about=_TEXT, value=_NUMBER, weight=_INTEGER, product=_NUMBER),
    "HoldingLimit": _object(name=_TEXT, about=_TEXT),
    "JobAhead": _object(id=_TEXT, user=_TEXT, bank=_TEXT, priority=_INTEGER),
    "JobsBefore": _object(
        count=_INTEGER,
        banks={"type": "object", "additionalProperties": _INTEGER},
        jobs=_list(_ref("JobAhead")),
    ),
    "JobPriority": _object(
        **dict.fromkeys(("id", "user", "bank", "queue", "state", "note", "reason"), _TEXT),
        priority=_or_null(_INTEGER),
        terms=_list(_ref("PriorityTerm")),
        limits=_list(_ref("HoldingLimit")),
        before={"oneOf": [_ref("JobsBefore"), {"type": "null"}]},
    ),
    "ListedExperiment": _object(folder=_TEXT, **_EXPERIMENT),
    "Experiments": _object(experiments=_list(_ref("ListedExperiment")), problems=_list(_TEXT)),
    "ExperimentCell": _object(cell=_TEXT, **dict.fromkeys(("planned", "done", "failed", "running"), _INTEGER)),
    "ExperimentRun": _object(
        **dict.fromkeys(("cell", "job", "target", "machine", "reason", "nodes"), _TEXT),
        **dict.fromkeys(("number", "size", "attempt", "position"), _INTEGER),
        **dict.fromkeys(("started", "ended", "node_seconds"), _NUMBER),
        state={**_TEXT, "enum": [*RUN_STATES]},
        warmup=_TRUTH,
        parameters=_ANY_OBJECT,
        phases=_NUMBERS,
        metrics=_NUMBERS,
        exit=_or_null(_INTEGER),
        cost=_or_null(_NUMBER),
    ),
    "FailedRun": _object(run=_ref("ExperimentRun"), last_lines=_list(_TEXT)),
    "Experiment": _object(
        **{"folder": _TEXT, **_EXPERIMENT, "has_report": _TRUTH, "cells": _list(_ref("ExperimentCell"))},
        failures=_list(_ref("FailedRun")),
        runs=_list(_ref("ExperimentRun")),
        next=_or_null(_INTEGER),
    ),
    "AuditLine": _object(
        {"job": _INTEGER, "token": _TEXT, "account": _TEXT, "silent_until": _NUMBER},
        **{"time": _NUMBER, "user": _or_null(_TEXT), "userid": _or_null(_INTEGER), "address": _TEXT},
        **{"method": _TEXT, "path": _TEXT, "status": _INTEGER},
    ),
    "AuditPage": _page("audit", _ref("AuditLine")),
    "Problem": _object(
        {"errors": {**_list(_object(field=_TEXT, detail=_TEXT)), "description": "All wrong fields, if several"}},
        type=_TEXT,
        title=_TEXT,
        status=_INTEGER,
        detail={**_TEXT, "description": "What is wrong; the broker's text if the broker refused the request"},
        field={**_or_null(_TEXT), "description": "The field that is wrong"},
        errno={**_or_null(_INTEGER), "description": "The broker's errno"},
    ),
}


def _content(description: str, kind: str, schema: _Schema, headers: _Schema | None = None) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": description, "content": {kind: {"schema": schema}}}
    return {**answer, "headers": headers} if headers else answer


def _json(name: str, description: str = "Success", headers: _Schema | None = None) -> dict[str, Any]:
    return _content(description, "application/json", _ref(name), headers)


def _made(name: str, description: str) -> dict[str, Any]:
    return {"201": _json(name, description, {"Location": {"schema": _TEXT}})}


_CHANGED = {"200": _json("ChangedJob", "The job is changed, or will be soon")}
_NOTHING = {"description": "Done; the answer has no body"}
_EVENTS = {"200": _content("Server-sent events, as they come", "text/event-stream", _TEXT)}
_BYTES: _Schema = {"type": "string", "format": "binary"}

# The success responses of each operation, by operationId.
RESPONSES: Mapping[str, Mapping[str, Any]] = {
    "list_jobs": {"200": _json("JobPage")},
    "submit_job": {"200": _json("CheckedJob", "With dry_run: checked"), **_made("SubmittedJob", "Submitted")},
    "resubmit_job": _made("SubmittedJob", "Submitted"),
    "get_job": {"200": _json("Job")},
    **dict.fromkeys(("cancel_job", "kill_job", "set_job_urgency", "update_job"), _CHANGED),
    "get_job_jobspec": {"200": _json("Jobspec")},
    "get_job_resources": {"200": _json("ResourceSet")},
    "get_job_eventlog": {"200": _json("Eventlog")},
    "get_job_output": {
        "200": _content("What was written", "application/octet-stream", _BYTES),
        "206": _content("The range that the header Range requests", "application/octet-stream", _BYTES),
    },
    "follow_job_events": {**_EVENTS, "204": {"description": "No more events will follow"}},
    "follow_events": _EVENTS,
    "list_queues": {"200": _json("Queues")},
    "get_resources": {"200": _json("Resources")},
    "get_resource_graph": {"200": _json("Graph")},
    "get_statistics": {"200": _json("Statistics")},
    "get_me": {"200": _json("Me")},
    "list_tokens": {"200": _json("TokenPage")},
    "issue_token": _made("NewToken", "Issued"),
    "revoke_token": {"204": _NOTHING},
    "list_users": {"200": _json("UserPage")},
    "add_user": _made("User", "Added"),
    "change_user": {"200": _json("User", "Changed")},
    "remove_user": {"204": _NOTHING},
    "list_banks": {"200": _json("Banks")},
    "list_associations": {"200": _json("Associations")},
    "add_bank_user": _made("Association", "Added"),
    "change_bank_user": {"200": _json("Association", "Changed")},
    "remove_bank_user": {"204": _NOTHING},
    "change_bank": {"200": _json("Bank", "Changed")},
    "get_usage": {"200": _json("Usage")},
    "get_job_priority": {"200": _json("JobPriority")},
    "list_experiments": {"200": _json("Experiments")},
    "get_experiment": {"200": _json("Experiment")},
    "read_audit": {"200": _json("AuditPage")},
}
# The error response of every operation.
PROBLEM = _content("An error (RFC 9457)", "application/problem+json", _ref("Problem"))
