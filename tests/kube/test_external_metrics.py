"""An autoscaler of a real control plane follows the metric that the tests serve."""

from __future__ import annotations

from external_metrics import ExternalMetrics, served
from kubecluster.cluster import Cluster
from patience import until

_DEPLOYMENT = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "local/busybox:1"}]},
        },
    },
}
_METRIC = {"metric": {"name": "waiting_jobs"}, "target": {"type": "AverageValue", "averageValue": "10"}}
_AUTOSCALER = {
    "metadata": {"name": "web"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 1,
        "maxReplicas": 5,
        "metrics": [
            {
                "type": "External",
                "external": {
                    "metric": {"name": "waiting_jobs"},
                    "target": {"type": "AverageValue", "averageValue": "10"},
                },
            }
        ],
    },
}


def test_an_autoscaler_follows_an_external_metric(control_plane: Cluster, namespace: str) -> None:
    deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"

    def replicas() -> int:
        return int(control_plane.api.get(f"{deployments}/web")["spec"]["replicas"])

    with served(control_plane) as metrics:
        control_plane.api.request("POST", deployments, _DEPLOYMENT)
        metrics.values["waiting_jobs"] = 40
        autoscalers = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        control_plane.api.request("POST", autoscalers, _AUTOSCALER)
        until(lambda: replicas() == 4)
        metrics.values["waiting_jobs"] = 5
        until(lambda: replicas() == 1)


def test_an_unknown_metric_has_no_value() -> None:
    metrics = ExternalMetrics()
    assert metrics.answer("/apis/external.metrics.k8s.io/v1beta1/namespaces/a/b")["items"] == []
    metrics.values["b"] = 7
    found = metrics.answer("/apis/external.metrics.k8s.io/v1beta1/namespaces/a/b?labelSelector=x")["items"]
    assert [(one["metricName"], one["value"]) for one in found] == [("b", "7")]
