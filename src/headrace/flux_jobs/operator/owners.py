"""What the TrainJob of a Job says of the Job's cluster: its processes on each node.

Kubeflow Trainer puts their number into the pods only under a torch policy. The TrainJob is the owner of the JobSet that
owns the Job; both are read once, and only for Jobs that are the step of a TrainJob that trains. Source: the API
references of JobSet 0.12 and Kubeflow Trainer 2.3.
"""

from __future__ import annotations

from typing import Any

from headrace.k8s.objects.kinds import JOBSETS, TRAINJOBS
from headrace.k8s.runtime.api import Api, ApiError
from headrace.k8s.runtime.controller import owners_of

from ..read import trainjob
from ..read.field import Field
from ..read.job import Owner

Object = dict[str, Any]


def is_trained(job: Object) -> bool:
    """Whether a Job may be the step of a TrainJob that trains."""
    return trainjob.is_step(Field(job)["metadata"]) and any(owners_of(job, JOBSETS))


async def trainjob_of(api: Api, job: Object) -> Owner | None:
    """The TrainJob of a Job; None if it has none, or is being deleted with it.

    Raises ApiError, Unreachable, InvalidForeign.
    """
    found = job
    for kind in (JOBSETS, TRAINJOBS):
        place = next(owners_of(found, kind), None)
        if place is None:
            return None
        try:
            found = await api.get(kind, *place)
        except ApiError as exc:
            if exc.status == 404:
                return None
            raise
    metadata = found["metadata"]
    return Owner(TRAINJOBS.kind, metadata["name"], metadata["namespace"], trainjob.processes_in(found, job))
