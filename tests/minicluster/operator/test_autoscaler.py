"""The HorizontalPodAutoscaler of a MiniCluster."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.minicluster.operator.autoscaler import autoscaler


def cluster(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "hello", "namespace": "ns", "uid": "u"}, "spec": {"size": 2, **spec}}


def test_it_wants_as_many_pods_as_jobs_need_nodes() -> None:
    found = autoscaler(cluster(maxSize=8), 1, None, 60)
    spec, target = found["spec"], {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "name": "hello"}
    assert (spec["scaleTargetRef"], spec["minReplicas"], spec["maxReplicas"]) == (target, 1, 8)
    assert spec["metrics"] == [
        {
            "type": "Object",
            "object": {
                "metric": {"name": "demand_nodes"},
                "describedObject": target,
                "target": {"type": "AverageValue", "averageValue": "1"},
            },
        }
    ]
    assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 60
    assert found["metadata"]["ownerReferences"][0]["uid"] == "u", "it goes with the MiniCluster"
    assert autoscaler(cluster(), 2, None, 60)["spec"]["maxReplicas"] == 2


@pytest.mark.parametrize(
    ("spec", "sizes", "why"),
    [
        ({"autoscale": {"minSize": 1}}, (1, None), "has spec.autoscale"),
        ({}, (3, None), "the smallest size is 3, it must be from 1 to the largest, 2"),
        ({}, (0, 4), "the smallest size is 0"),
    ],
)
def test_what_would_not_work_is_refused(spec: Any, sizes: tuple[int, int | None], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        autoscaler(cluster(**spec), *sizes, 60)
