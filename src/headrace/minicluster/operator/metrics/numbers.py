"""The metrics of a MiniCluster, from its status, which has what its lead tells. Pure.

Every replica of the operator has all statuses in its cache, while one alone is connected to the leads.
"""

from __future__ import annotations

from typing import Any

from headrace.formats.spec.job_state import STATE_BITS
from headrace.k8s.objects.timestamps import seconds_of

Object = dict[str, Any]

DEMAND = "demand_nodes"
NAMES = (DEMAND, "idle_seconds", "node_up_count", *(f"job_queue_state_{state}_count" for state in STATE_BITS))


def numbers(cluster: Object, now: float) -> dict[str, float]:
    """The values of a MiniCluster by the NAMES; none while its lead tells none."""
    status = cluster.get("status") or {}
    if "demandNodes" not in status:
        return {}
    since = status.get("idleSince")
    jobs = status.get("jobs") or {}
    return {
        DEMAND: status["demandNodes"],
        "idle_seconds": max(now - seconds_of(since), 0.0) if since else 0.0,
        "node_up_count": status.get("brokersUp", 0),
        **{f"job_queue_state_{state}_count": jobs.get(state, 0) for state in STATE_BITS},
    }
