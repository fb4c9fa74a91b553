"""Sizing by the queue: metrics, a HorizontalPodAutoscaler that reads one, and `spec.autoscale`.

The metrics are read from the status, which has the lead's report: every replica of the operator caches all statuses,
but only one replica is connected to the leads. The autoscaler uses an Object metric with an average value as its
target, so the wanted number of pods is the metric's value, independent of the current number of pods. Pure. Source:
API reference, autoscaling/v2.
"""

from __future__ import annotations

from typing import Any

from headrace.k8s.metrics_api import DEMAND_NODES, IDLE_SECONDS, JOB_COUNTS, NODES_UP
from headrace.k8s.objects.kinds import MINICLUSTERS, Kind
from headrace.k8s.objects.timestamps import seconds_of

Object = dict[str, Any]

NAMES = (DEMAND_NODES, IDLE_SECONDS, NODES_UP, *JOB_COUNTS.values())
AUTOSCALERS = Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")


def numbers(cluster: Object, now: float) -> dict[str, float]:
    """A MiniCluster's values of the metrics in NAMES; {} while its lead reports none."""
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


def autoscaler(cluster: Object, smallest: int, largest: int | None, idle_seconds: int) -> Object:
    """The autoscaler of a MiniCluster, from `smallest` to `largest` pods (None: maxSize, or size).

    It scales up at once, and down when fewer pods were wanted for `idle_seconds`. Raises ValueError.
    """
    metadata, spec = cluster["metadata"], cluster["spec"]
    name = metadata["name"]
    if spec.get("autoscale"):
        raise ValueError(f"MiniCluster {name} already has spec.autoscale, which sets its size: use only one of the two")
    if largest is None:
        largest = int(spec.get("maxSize") or spec.get("size") or 1)
    if not 1 <= smallest <= largest:
        raise ValueError(f"the smallest size must be from 1 to the largest, {largest}, not {smallest}")
    target = {"apiVersion": MINICLUSTERS.api_version, "kind": MINICLUSTERS.kind, "name": name}
    wanted = {"type": "AverageValue", "averageValue": "1"}
    measured = {"metric": {"name": DEMAND_NODES}, "describedObject": target, "target": wanted}
    return {
        "apiVersion": AUTOSCALERS.api_version,
        "kind": AUTOSCALERS.kind,
        "metadata": {"name": name, "namespace": metadata["namespace"], "ownerReferences": [_owner(metadata)]},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": smallest,
            "maxReplicas": largest,
            "metrics": [{"type": "Object", "object": measured}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": idle_seconds}},
        },
    }


def _owner(metadata: Object) -> Object:
    """The owner reference by which the autoscaler is deleted with its MiniCluster."""
    about = {"apiVersion": MINICLUSTERS.api_version, "kind": MINICLUSTERS.kind}
    return {**about, "name": metadata["name"], "uid": metadata["uid"]}


def wanted_size(
    size: int, smallest: int, largest: int, demand: int, idle_since: float | None, idle_seconds: float, now: float
) -> tuple[int, float | None]:
    """The size that a MiniCluster of `size` pods should have, and when to check again (None: never).

    `demand` is the number of pods that the active jobs (pending and running) need. The size grows to this number at
    once. It shrinks to `smallest` when no job has been active for `idle_seconds`. It does not shrink while jobs are
    active, because the scheduler decides which nodes become idle first, and every pod takes time to start.
    """
    smallest = max(smallest, 1)
    if demand > size:
        return min(demand, max(largest, size)), None
    if demand or idle_since is None or size <= smallest:
        return max(size, smallest), None
    until = idle_since + idle_seconds
    return (smallest, None) if now >= until else (size, until)
