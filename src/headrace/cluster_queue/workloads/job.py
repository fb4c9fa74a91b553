"""Jobs: `parallelism` pods at a time, at most as many as completions are left. Source: batch/v1 Job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.formats.spec.idset import Idset
from headrace.k8s.objects.conditions import SUSPEND, ended, holds
from headrace.k8s.objects.kinds import JOBS, Kind

from ..model.demand import Demand, PodSet
from .workload import NOTHING, Made, Object, WorkloadKind, end_text

# The value of `managedBy` for Kubernetes' own controller.
_CONTROLLER = "kubernetes.io/job-controller"


def demand(job: Object, made: Made = NOTHING) -> Demand:
    return Demand(sets=(several([job]),), **end_and_failure(JOBS, job), limit=limit_of([job]))


def several(jobs: Sequence[Object], more: int = 0, ends: Sequence[str] = ("Complete", "Failed"), **rest: Any) -> PodSet:
    """The pods of Jobs with equal requests, as one set.

    It includes `more` further Jobs like the last one. `ends` are the conditions of a Job that wants no more pods.
    `rest` are other fields of the set.
    """
    pods = sum(0 if any(holds(one.get("status"), name) for name in ends) else _pods(one) for one in jobs)
    pods += more * _pods(jobs[-1]) if more else 0
    templates = tuple(one["spec"]["template"]["spec"] for one in jobs)
    return PodSet(pods=pods, templates=templates, labels=_labels(jobs[0]) if jobs else {}, **rest)


def limit_of(jobs: Sequence[Object]) -> float | None:
    """The time in seconds after which Kubernetes has ended all Jobs; None if some have no deadline."""
    limits = [
        one["spec"].get("activeDeadlineSeconds", one["spec"]["template"]["spec"].get("activeDeadlineSeconds"))
        for one in jobs
    ]
    return max(limits) if limits and all(limit is not None for limit in limits) else None


def _labels(job: Object) -> Object:
    """The labels of a Job's pods: those of the template, and the name, which Kubernetes adds."""
    name = job["metadata"]["name"]
    given = (job["spec"]["template"].get("metadata") or {}).get("labels") or {}
    return {**given, "job-name": name, "batch.kubernetes.io/job-name": name}


def end_and_failure(kind: Kind, item: Object) -> Object:
    """The fields `end` and `failure` of the Demand of an object."""
    end = ended(kind, item)
    return {"end": end_text(end), "failure": end.text if end and end.failed else ""}


def at_a_time(job: Object) -> int:
    """The number of pods that a Job has at a time while none has ended."""
    parallelism, completions = int(job["spec"].get("parallelism", 1)), job["spec"].get("completions")
    return parallelism if completions is None else min(parallelism, int(completions))


def _pods(job: Object) -> int:
    spec, status = job["spec"], job.get("status") or {}
    # A Job template is not validated yet, so its numbers may be negative.
    parallelism, succeeded = max(int(spec.get("parallelism", 1)), 0), int(status.get("succeeded") or 0)
    if spec.get("completions") is None:
        # A work queue: after the first success, no more pods are created (Job patterns, "work queue").
        return int(status.get("active") or 0) if succeeded else parallelism
    # With `backoffLimitPerIndex`, no more pods are created for an index that has failed too often.
    failed = len(Idset.parse(str(status.get("failedIndexes") or "")))
    return max(min(parallelism, int(spec["completions"]) - succeeded - failed), 0)


WORKLOAD_KIND = WorkloadKind(
    JOBS, 1, SUSPEND, demand, controller=_CONTROLLER, deadline=("spec", "activeDeadlineSeconds")
)
