"""MiniClusters: the pods of their Jobs and groups, a set each, and the pod of their services.

The operator creates the Jobs of a suspended MiniCluster in suspended state. Source: docs/user/minicluster.md.
"""

from __future__ import annotations

from headrace.k8s.objects.conditions import SUSPEND, Ended, ended
from headrace.k8s.objects.kinds import MANAGED_BY_US, MINICLUSTERS

from ..model.demand import Demand, PodSet
from . import job
from .workload import NOTHING, Made, Object, WorkloadKind, end_text

# The name of the set for the services pod. The name of a Job cannot contain a space.
_SERVICES = "the services"


def demand(item: Object, made: Made = NOTHING) -> Demand:
    spec, jobs = item["spec"], made.get("Job", ())
    end = ended(MINICLUSTERS, item)
    if end is not None:
        return Demand(end=end_text(end), failure=_failure(end, item["status"]))
    missing = "" if jobs else "the operator has not created its Job yet"
    sets = [_pods_of(one) for one in jobs]
    services = spec.get("services") or []
    if services:
        pod = {key: value for key, value in (spec.get("pod") or {}).items() if key in ("nodeSelector", "tolerations")}
        sets.append(PodSet(pods=1, templates=({**pod, "containers": services},), name=_SERVICES))
    return Demand(sets=tuple(sets), limit=job.limit_of(jobs), missing=missing)


def _failure(end: Ended, status: Object) -> str:
    if end.succeeded:
        return ""
    code = status.get("exitCode")
    return end.reason or ("" if code is None else f"ended with exit code {code}")


def _pods_of(one: Object) -> PodSet:
    name = one["metadata"]["name"]
    return job.several([one], name=name, selector={"batch.kubernetes.io/job-name": name})


WORKLOAD_KIND = WorkloadKind(MINICLUSTERS, 8, SUSPEND, demand, controller=MANAGED_BY_US)
