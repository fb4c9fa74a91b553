"""The HorizontalPodAutoscaler that sizes a MiniCluster by its queue. Pure. Source: API reference, autoscaling/v2.

The metric is an object's, with an average as its target: the wanted number of pods is then the value itself, whatever
the number of pods is now.
"""

from __future__ import annotations

from typing import Any

from headrace.k8s.metrics_api import DEMAND_NODES
from headrace.k8s.objects.kinds import MINICLUSTERS, Kind

Object = dict[str, Any]

AUTOSCALERS = Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")


def autoscaler(cluster: Object, smallest: int, largest: int | None, idle_seconds: int) -> Object:
    """The autoscaler of a MiniCluster, from `smallest` to `largest` pods (None: spec.maxSize, or spec.size).

    It grows at once, and shrinks when less was wanted for `idle_seconds`. Raises ValueError.
    """
    metadata, spec = cluster["metadata"], cluster["spec"]
    name = metadata["name"]
    if spec.get("autoscale"):
        raise ValueError(f"MiniCluster {name} has spec.autoscale, which sizes it by its queue already: one of both")
    if largest is None:
        largest = int(spec.get("maxSize") or spec.get("size") or 1)
    if not 1 <= smallest <= largest:
        raise ValueError(f"the smallest size is {smallest}, it must be from 1 to the largest, {largest}")
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
    """Has the autoscaler go with its MiniCluster."""
    about = {"apiVersion": MINICLUSTERS.api_version, "kind": MINICLUSTERS.kind}
    return {**about, "name": metadata["name"], "uid": metadata["uid"]}
