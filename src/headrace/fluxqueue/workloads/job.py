"""Jobs: as many pods at a time as `parallelism` says and completions are left. Source: batch/v1 Job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...kube.runtime.kinds import JOBS
from .workload import NOTHING, Made, Object, Wish, Workload

_ENDS = {"Complete": "Finished", "Failed": "Failed"}
# The value of `managedBy` that stands for Kubernetes' own controller.
_OWN_CONTROLLER = "kubernetes.io/job-controller"


def wish(job: Object, made: Made = NOTHING) -> Wish:
    spec, status = job["spec"], job.get("status") or {}
    end = end_in(status, _ENDS)
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


def end_in(status: Object, ends: Mapping[str, str]) -> str:
    """The end that conditions tell, by the types that stand for one; "" before it."""
    found = (ends[one["type"]] for one in status.get("conditions") or () if one["type"] in ends and _holds(one))
    return next(found, "")


def several(jobs: Sequence[Object]) -> Wish:
    """What Jobs want that run together."""
    wishes = [wish(one) for one in jobs]
    limits = [one.limit for one in wishes if one.limit is not None]
    return Wish(
        pods=sum(one.pods for one in wishes),
        templates=tuple(template for one in wishes for template in one.templates),
        labels=wishes[0].labels if wishes else {},
        limit=max(limits) if limits and len(limits) == len(wishes) else None,
    )


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
