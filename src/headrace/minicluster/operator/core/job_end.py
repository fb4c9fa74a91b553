"""The end of a MiniCluster, derived from the end of its lead's pod and of its Job. Pure."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from headrace.k8s.objects.conditions import Ended

from ...api.pod_plan import KILLED
from . import pods
from .observed import Observed

Object = dict[str, Any]


def is_backoff_exceeded(end: Ended, lead_end: pods.LeadEnd | None) -> bool:
    """Whether the MiniCluster failed because pods were killed too often, and not because of its job."""
    return end.reason == "BackoffLimitExceeded" and lead_end is not None and lead_end.killed


def lead_end_of(observed: Observed) -> pods.LeadEnd | None:
    """The end of the lead; None while a lead runs, including the replacement of a lead that was killed.

    If the lead was killed because the pod of another index failed, this is the end of that pod.
    """
    lead = observed.lead_pod
    found = pods.lead_end(lead, observed.name) if lead is not None else None
    if lead is None or found is None or not found.killed:
        return found
    code, why = failed_pod(observed.current_pods, observed.name)
    return replace(found, exit_code=code, reason=why) if why else found


def failed_pod(items: list[Object], name: str) -> tuple[int, str]:
    """The exit code and reason of the first pod whose container `name` has failed; (0, "") if none has."""
    for pod in items:
        end = pods.lead_end(pod, name) if pods.exit_code(pod, name) not in (None, 0, *KILLED) else None
        if end is not None:
            why = end.reason or f"it ended with exit code {end.exit_code}"
            return end.exit_code, f"pod {pods.host_of(pod)}: {why}"
    return 0, ""


def end_before_the_last(observed: Observed, lead_end: pods.LeadEnd) -> pods.LeadEnd:
    """The end of a lead whose container failed too often (restartPolicy OnFailure).

    This is the end of the previous run: Kubernetes has restarted the container once more and then killed it.
    """
    lead = observed.lead_pod
    former = pods.former_end(lead, observed.name) if lead is not None else None
    return replace(former, finished=lead_end.finished) if former and former.exit_code else lead_end
