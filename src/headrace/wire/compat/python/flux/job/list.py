"""The names of `flux.job.list`, for programs that import it by that path."""

from flux.job.info import (
    JobList,
    JobListIdRPC,
    JobListIdsFuture,
    JobListRPC,
    get_job,
    job_list,
    job_list_id,
    job_list_inactive,
)

__all__ = [
    "JobList",
    "JobListIdRPC",
    "JobListIdsFuture",
    "JobListRPC",
    "get_job",
    "job_list",
    "job_list_id",
    "job_list_inactive",
]
