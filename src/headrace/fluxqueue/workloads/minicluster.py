"""MiniClusters: the pods of their Jobs, that of their groups included, and the pod of their services.

The operator makes the Jobs of a suspended MiniCluster, and suspends them. Source: docs/user/minicluster.md.
"""

from __future__ import annotations

from msgspec.structs import replace

from ...kube.kinds import MINICLUSTERS
from ...minicluster.fields import MANAGED_BY_US
from . import job
from .workload import NOTHING, Made, Object, Wish, Workload

_ENDS = {"Finished": "Finished", "Failed": "Failed"}


def wish(item: Object, made: Made = NOTHING) -> Wish:
    spec, jobs = item["spec"], made.get("Job", ())
    end = _ENDS.get((item.get("status") or {}).get("phase", ""), "")
    wanted = job.several(jobs)
    if end:
        return replace(wanted, pods=0, end=end)
    missing = "" if jobs else "the operator has not made its Job yet"
    services = spec.get("services") or []
    if services:
        pod = {key: value for key, value in (spec.get("pod") or {}).items() if key in ("nodeSelector", "tolerations")}
        templates = (*wanted.templates, {**pod, "containers": services})
        wanted = replace(wanted, pods=wanted.pods + 1, templates=templates)
    return replace(wanted, missing=missing)


def left_alone(item: Object) -> bool:
    return item["spec"].get("managedBy", "") not in ("", MANAGED_BY_US)


WORKLOAD = Workload(MINICLUSTERS, 8, ("spec", "suspend"), wish, left_alone)
