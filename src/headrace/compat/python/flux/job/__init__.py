"""`flux.job`: job specifications, submission, listing, watching, waiting and ending jobs."""

from __future__ import annotations

from flux.job.event import MAIN_EVENTS, EventLogEvent, JobException, event_wait, event_watch, event_watch_async
from flux.job.executor import FluxExecutor, FluxExecutorFuture
from flux.job.ids import JobID, id_encode, id_parse
from flux.job.info import (
    JobInfo,
    JobInfoFormat,
    JobList,
    get_job,
    job_fields_to_attrs,
    job_list,
    job_list_id,
    job_list_inactive,
)
from flux.job.jobspec import Jobspec, JobspecV1, validate_jobspec
from flux.job.journal import JournalConsumer
from flux.job.kvs import JobKVSLookup, job_info_lookup, job_kvs, job_kvs_guest, job_kvs_lookup
from flux.job.output import JobOutput, job_output, output_event_watch, output_watch, output_watch_lines
from flux.job.requests import (
    cancel,
    cancel_async,
    job_raise,
    job_raise_async,
    kill,
    kill_async,
    result,
    result_async,
    submit,
    submit_async,
    submit_get_id,
    timeleft,
    wait,
    wait_async,
    wait_get_status,
)
from flux.job.stats import JobStats

__all__ = [
    "MAIN_EVENTS",
    "EventLogEvent",
    "FluxExecutor",
    "FluxExecutorFuture",
    "JobException",
    "JobID",
    "JobInfo",
    "JobInfoFormat",
    "JobKVSLookup",
    "JobList",
    "JobOutput",
    "JobStats",
    "Jobspec",
    "JobspecV1",
    "JournalConsumer",
    "cancel",
    "cancel_async",
    "event_wait",
    "event_watch",
    "event_watch_async",
    "get_job",
    "id_encode",
    "id_parse",
    "job_fields_to_attrs",
    "job_info_lookup",
    "job_kvs",
    "job_kvs_guest",
    "job_kvs_lookup",
    "job_list",
    "job_list_id",
    "job_list_inactive",
    "job_output",
    "job_raise",
    "job_raise_async",
    "kill",
    "kill_async",
    "output_event_watch",
    "output_watch",
    "output_watch_lines",
    "result",
    "result_async",
    "submit",
    "submit_async",
    "submit_get_id",
    "timeleft",
    "validate_jobspec",
    "wait",
    "wait_async",
    "wait_get_status",
]
