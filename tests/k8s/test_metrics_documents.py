"""The documents of the metrics APIs."""

from __future__ import annotations

import pytest

from headrace.k8s import metrics_api as documents
from headrace.k8s.metrics_api import CUSTOM, EXTERNAL, Described


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (12, "12"), (True, "1"), (1.5, "1500m"), (0.0004, "0"), (-2.25, "-2250m"), (1e12, "1000000000000")],
)
def test_numbers_are_quantities(number: float, text: str) -> None:
    assert documents.quantity(number) == text


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_what_is_no_number_is_no_quantity(number: float) -> None:
    with pytest.raises((ValueError, OverflowError)):
        documents.quantity(number)


def test_values_are_about_objects() -> None:
    about = Described("MiniCluster", "flux-framework.org/v1alpha2", "ns", "hello")
    found = documents.custom_values("demand_nodes", [(about, 3)], "2026-11-27T00:00:00Z", "/here")
    assert (found["kind"], found["apiVersion"]) == ("MetricValueList", CUSTOM)
    assert found["items"] == [
        {
            "describedObject": {
                "kind": "MiniCluster",
                "namespace": "ns",
                "name": "hello",
                "apiVersion": "flux-framework.org/v1alpha2",
            },
            "metric": {"name": "demand_nodes", "selector": None},
            "timestamp": "2026-11-27T00:00:00Z",
            "windowSeconds": 0,
            "value": "3",
        }
    ]


def test_lists_say_what_is_served() -> None:
    assert documents.group_list(CUSTOM)["groups"][0]["preferredVersion"]["version"] == "v1beta2"
    found = documents.resource_list(EXTERNAL, ["demand_nodes"])
    assert (found["groupVersion"], found["resources"][0]["kind"]) == (EXTERNAL, "ExternalMetricValueList")
    assert documents.failure(404, "no such metric")["reason"] == "NotFound"
