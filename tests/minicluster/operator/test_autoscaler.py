"""The HorizontalPodAutoscaler of a MiniCluster."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.minicluster.operator.autoscaler import autoscaler, wanted_size


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
        ({}, (3, None), "the smallest size must be from 1 to the largest, 2, not 3"),
        ({}, (0, 4), "the smallest size must be from 1 to the largest, 4, not 0"),
    ],
)
def test_what_would_not_work_is_refused(spec: Any, sizes: tuple[int, int | None], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        autoscaler(cluster(**spec), *sizes, 60)


@pytest.mark.parametrize(
    ("size", "demand", "idle_since", "now", "wanted"),
    [
        (2, 5, None, 0, (5, None)),
        (2, 99, None, 0, (8, None)),
        (4, 2, None, 0, (4, None)),
        (4, 0, 100, 120, (4, 160)),
        (4, 0, 100, 160, (1, None)),
        (1, 0, 100, 999, (1, None)),
        (4, 0, None, 999, (4, None)),
    ],
)
def test_it_grows_with_the_demand_and_shrinks_when_idle(
    size: int, demand: int, idle_since: float | None, now: float, wanted: tuple[int, float | None]
) -> None:
    assert wanted_size(size, 1, 8, demand, idle_since, 60, now) == wanted


@given(st.integers(1, 50), st.integers(0, 50), st.integers(1, 50), st.integers(0, 99), st.none() | st.integers(0, 99))
def test_it_never_leaves_its_bounds(
    size: int, smallest: int, largest: int, demand: int, idle_since: float | None
) -> None:
    wanted, again = wanted_size(size, smallest, largest, demand, idle_since, 10, 50)
    assert min(size, max(smallest, 1)) <= wanted <= max(size, largest, smallest)
    assert again is None or again > 50
