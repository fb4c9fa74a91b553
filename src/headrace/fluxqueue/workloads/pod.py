"""Pods that are made by nobody, or by a controller of no known kind: each is a job of one pod. Source: core/v1 Pod."""

from __future__ import annotations

from ...kube.runtime.api import PODS
from .workload import Object, Wish, Workload

ENDS = {"Succeeded": "Finished", "Failed": "Failed"}


def wish(pod: Object) -> Wish:
    spec = pod["spec"]
    end = ENDS.get((pod.get("status") or {}).get("phase", ""), "")
    labels, limit = pod["metadata"].get("labels") or {}, spec.get("activeDeadlineSeconds")
    return Wish(pods=0 if end else 1, templates=(spec,), labels=labels, end=end, limit=limit)


WORKLOAD = Workload(PODS, 0, (), wish)
