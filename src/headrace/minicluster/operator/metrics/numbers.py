"""The metrics of a MiniCluster, from its status, which has what its lead tells. Pure.

Every replica of the operator has all statuses in its cache, while one alone is connected to the leads.
"""

from __future__ import annotations

from typing import Any

from headrace.k8s.metrics_api import DEMAND_NODES, IDLE_SECONDS, JOB_COUNTS, NODES_UP
from headrace.k8s.objects.timestamps import seconds_of

Object = dict[str, Any]

NAMES = (DEMAND_NODES, IDLE_SECONDS, NODES_UP, *JOB_COUNTS.values())


def numbers(cluster: Object, now: float) -> dict[str, float]:
    """The values of a MiniCluster by the NAMES; none while its lead tells none."""
    status = cluster.get("status") or {}
    if "demandNodes" not in status:
        return {}
    since = status.get("idleSince")
    jobs = status.get("jobs") or {}
    return {
        DEMAND_NODES: status["demandNodes"],
        IDLE_SECONDS: max(now - seconds_of(since), 0.0) if since else 0.0,
        NODES_UP: status.get("brokersUp", 0),
        **{name: jobs.get(state, 0) for state, name in JOB_COUNTS.items()},
    }
