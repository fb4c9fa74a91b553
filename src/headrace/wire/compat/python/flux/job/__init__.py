"""`flux.job`: job specifications, submission, listing, watching, waiting and ending jobs.

Some functions have the names of modules here (submit, kill, wait, timeleft), as in Flux. All modules are imported
first, since a later import of one would replace the function.
"""

from __future__ import annotations

from flux.core.inner import ffi
from flux.job.batch_config import BatchConfig
from flux.job.event import (
    MAIN_EVENTS,
    EventLogEvent,
    JobEventWatchFuture,
    JobException,
    event_wait,
    event_watch,
    event_watch_async,
)
from flux.job.executor import FluxExecutor, FluxExecutorFuture
from flux.job.info import JobInfo, JobInfoFormat, job_fields_to_attrs
from flux.job.JobID import JobID, id_encode, id_parse
from flux.job.Jobspec import Jobspec, JobspecV1, validate_jobspec
from flux.job.journal import JournalConsumer
from flux.job.kill import cancel, cancel_async, job_raise, job_raise_async, kill, kill_async
from flux.job.kvs import job_kvs, job_kvs_guest
from flux.job.kvslookup import (
    JobInfoLookupRPC,
    JobKVSLookup,
    job_info_lookup,
    job_info_update_lookup,
    job_kvs_lookup,
)
from flux.job.list import JobList, get_job, job_list, job_list_id, job_list_inactive
from flux.job.output import (
    JobOutput,
    job_output,
    output_event_watch,
    output_event_watch_async,
    output_watch,
    output_watch_async,
    output_watch_lines,
    output_watch_lines_async,
)
from flux.job.stats import JobStats
from flux.job.submit import SubmitFuture, submit, submit_async, submit_get_id
from flux.job.timeleft import timeleft
from flux.job.wait import (
    JobResultFuture,
    JobWaitFuture,
    JobWaitResult,
    result,
    result_async,
    wait,
    wait_async,
    wait_get_status,
)

__all__ = [
    "MAIN_EVENTS",
    "BatchConfig",
    "EventLogEvent",
    "FluxExecutor",
    "FluxExecutorFuture",
    "JobEventWatchFuture",
    "JobException",
    "JobID",
    "JobInfo",
    "JobInfoFormat",
    "JobInfoLookupRPC",
    "JobKVSLookup",
    "JobList",
    "JobOutput",
    "JobResultFuture",
    "JobStats",
    "JobWaitFuture",
    "JobWaitResult",
    "Jobspec",
    "JobspecV1",
    "JournalConsumer",
    "SubmitFuture",
    "cancel",
    "cancel_async",
    "event_wait",
    "event_watch",
    "event_watch_async",
    "ffi",
    "get_job",
    "id_encode",
    "id_parse",
    "job_fields_to_attrs",
    "job_info_lookup",
    "job_info_update_lookup",
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
    "output_event_watch_async",
    "output_watch",
    "output_watch_async",
    "output_watch_lines",
    "output_watch_lines_async",
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
