"""Jobs: as many pods at a time as `parallelism` says and completions are left. Source: batch/v1 Job."""

from __future__ import annotations

from collections.abc import Sequence

from ...kube.runtime.api import JOBS
from .workload import Object, Wish, Workload

_ENDS = {"Complete": "Finished", "Failed": "Failed"}
# The value of `managedBy` that stands for Kubernetes' own controller.
_OWN_CONTROLLER = "kubernetes.io/job-controller"


def wish(job: Object, made: Sequence[Object] = ()) -> Wish:
    spec, status = job["spec"], job.get("status") or {}
    end = next(
        (_ENDS[one["type"]] for one in status.get("conditions") or () if one["type"] in _ENDS and _holds(one)), ""
    )
    template = spec["template"]["spec"]
    limit = spec.get("activeDeadlineSeconds", template.get("activeDeadlineSeconds"))
    return Wish(
        pods=0 if end else _pods(spec, status), templates=(template,), labels=_labels(job), end=end, limit=limit
    )


def _labels(job: Object) -> Object:
    """The labels of its pods: those of the template, and its name, which Kubernetes adds."""
    name = job["metadata"]["name"]
    given = (job["spec"]["template"].get("metadata") or {}).get("labels") or {}
    return {**given, "job-name": name, "batch.kubernetes.io/job-name": name}


def _holds(condition: Object) -> bool:
    return str(condition.get("status")) == "True"


def _pods(spec: Object, status: Object) -> int:
    parallelism, succeeded = int(spec.get("parallelism", 1)), int(status.get("succeeded") or 0)
    if spec.get("completions") is None:
        # A work queue: after the first success no pod is made any more (Job patterns, "work queue").
        return int(status.get("active") or 0) if succeeded else parallelism
    return max(min(parallelism, int(spec["completions"]) - succeeded), 0)


def left_alone(job: Object) -> bool:
    return bool(job["spec"].get("managedBy", _OWN_CONTROLLER) != _OWN_CONTROLLER)


WORKLOAD = Workload(JOBS, 1, ("spec", "suspend"), wish, left_alone, deadline=("spec", "activeDeadlineSeconds"))
