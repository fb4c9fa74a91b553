"""The names of `flux.job.kvslookup`, for programs that import it by that path."""

from flux.job.kvs import (
    JobInfoLookupRPC,
    JobKVSLookup,
    JobKVSLookupFuture,
    job_info_lookup,
    job_info_update_lookup,
    job_kvs_lookup,
)

__all__ = [
    "JobInfoLookupRPC",
    "JobKVSLookup",
    "JobKVSLookupFuture",
    "job_info_lookup",
    "job_info_update_lookup",
    "job_kvs_lookup",
]
