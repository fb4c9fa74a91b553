"""The remaining time of a job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Optional

from flux.job.info import job_list_id
from flux.job.JobID import JobID

if TYPE_CHECKING:
    from flux.core.handle import Flux


def timeleft(flux_handle: Optional[Flux] = None) -> float:
    """The seconds until this job (or this instance) expires; infinity without a limit."""
    import time

    from flux.core.handle import Flux as Handle

    handle = flux_handle or Handle()
    own = os.environ.get("FLUX_JOB_ID")
    if own is None:
        own, handle = handle.attr_get("jobid"), Handle(handle.attr_get("parent-uri"))
    raw = job_list_id(handle, JobID(own), ["expiration"]).get_job()
    expiration = float(raw.get("expiration", 0.0))
    return max(0.0, expiration - time.time()) if expiration else float("inf")
