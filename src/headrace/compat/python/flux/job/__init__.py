"""`flux.job`: job specifications, submission, listing, watching, waiting and ending jobs."""

from __future__ import annotations

from flux.job.event import JobException, event_wait, event_watch, event_watch_async, job_output
from flux.job.executor import FluxExecutor, FluxExecutorFuture
from flux.job.ids import JobID, id_encode, id_parse
from flux.job.info import JobInfo, JobList, get_job, job_info_lookup, job_list, job_list_id, job_list_inactive
from flux.job.jobspec import Jobspec, JobspecV1, validate_jobspec
from flux.job.requests import (
    cancel,
    cancel_async,
    job_kvs,
    job_raise,
    job_raise_async,
    kill,
    kill_async,
    result,
    submit,
    submit_async,
    submit_get_id,
    timeleft,
    wait,
    wait_async,
    wait_get_status,
)

__all__ = [
    "FluxExecutor",
    "FluxExecutorFuture",
    "JobException",
    "JobID",
    "JobInfo",
    "JobList",
    "Jobspec",
    "JobspecV1",
    "cancel",
    "cancel_async",
    "event_wait",
    "event_watch",
    "event_watch_async",
    "get_job",
    "id_encode",
    "id_parse",
    "job_info_lookup",
    "job_kvs",
    "job_list",
    "job_list_id",
    "job_list_inactive",
    "job_output",
    "job_raise",
    "job_raise_async",
    "kill",
    "kill_async",
    "result",
    "submit",
    "submit_async",
    "submit_get_id",
    "timeleft",
    "validate_jobspec",
    "wait",
    "wait_async",
    "wait_get_status",
]
