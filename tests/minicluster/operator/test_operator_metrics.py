"""What the operator answers for the metrics of MiniClusters."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from headrace.k8s.objects.timestamps import seconds_of, text_of
from headrace.minicluster.operator.autoscaler import NAMES, numbers
from headrace.minicluster.operator.metrics import routes

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"


def cluster(name: str, namespace: str = "ns", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "labels": {"of": name}}, "status": status}


CLUSTERS = [
    cluster("one", demandNodes=3, brokersUp=2, jobs={"run": 1, "sched": 2}),
    cluster("two", demandNodes=0, idleSince=text_of(time.time() - 100), brokersUp=1),
    cluster("ended", brokersUp=0, jobs={"inactive": 1}),
    cluster("one", "other", demandNodes=7),
]


def ask(*paths: str, refusal: str = "") -> list[tuple[int, Any]]:
    async def scenario() -> list[tuple[int, Any]]:
        app = web.Application()
        app.add_routes(routes(lambda: CLUSTERS, lambda request: refusal))
        found = []
        async with TestClient(TestServer(app)) as client:
            for path in paths:
                answer = await client.get(path)
                found.append((answer.status, json.loads(await answer.text())))
        return found

    return asyncio.run(scenario())


def values(answer: tuple[int, Any]) -> dict[str, str]:
    status, found = answer
    assert status == 200
    name = "describedObject" if found["kind"] == "MetricValueList" else "metricLabels"
    return {one[name].get("name", one[name].get("minicluster")): one["value"] for one in found["items"]}


def test_values_are_about_miniclusters_of_the_namespace() -> None:
    where = f"{CUSTOM}/namespaces/ns/miniclusters.flux-framework.org"
    one, all_of_them, chosen, other = ask(
        f"{where}/one/demand_nodes",
        f"{where}/*/job_queue_state_run_count",
        f"{where}/*/demand_nodes?labelSelector=of%3Dtwo",
        f"{CUSTOM}/namespaces/other/miniclusters/one/demand_nodes",
    )
    assert values(one) == {"one": "3"} and values(other) == {"one": "7"}
    assert values(all_of_them) == {"one": "1", "two": "0"} and values(chosen) == {"two": "0"}
    about = one[1]["items"][0]["describedObject"]
    assert (about["kind"], about["apiVersion"]) == ("MiniCluster", "flux-framework.org/v1alpha2")


def test_external_metrics_have_the_name_as_a_label() -> None:
    where = f"{EXTERNAL}/namespaces/ns/demand_nodes"
    everything, one = ask(where, f"{where}?labelSelector=minicluster%3Done")
    assert values(everything) == {"one": "3", "two": "0"} and values(one) == {"one": "3"}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{CUSTOM}/namespaces/ns/miniclusters.flux-framework.org/one/nothing", 404),
        (f"{CUSTOM}/namespaces/ns/miniclusters.flux-framework.org/ended/demand_nodes", 404),
        (f"{CUSTOM}/namespaces/none/miniclusters.flux-framework.org/one/demand_nodes", 404),
        (f"{CUSTOM}/namespaces/ns/pods/one/demand_nodes", 404),
        (f"{EXTERNAL}/namespaces/ns/nothing", 404),
        (f"{EXTERNAL}/namespaces/ns/demand_nodes?labelSelector=a%20b", 400),
    ],
)
def test_without_a_value_the_answer_is_a_status(path: str, status: int) -> None:
    ((found, body),) = ask(path)
    assert (found, body["kind"], body["code"]) == (status, "Status", status) and body["message"]


def test_nothing_is_told_to_a_request_that_is_refused() -> None:
    paths = (
        "/apis",
        CUSTOM,
        EXTERNAL,
        f"{CUSTOM}/namespaces/ns/miniclusters/one/demand_nodes",
        f"{EXTERNAL}/namespaces/ns/nothing",
    )
    for status, body in ask(*paths, refusal="not you"):
        assert (status, body["kind"], body["reason"], body["message"]) == (401, "Status", "Unauthorized", "not you")


def test_lists_name_all_metrics() -> None:
    groups, custom, external = ask("/apis", CUSTOM, EXTERNAL)
    assert [one["name"] for one in groups[1]["groups"]] == ["custom.metrics.k8s.io", "external.metrics.k8s.io"]
    assert [one["name"] for one in external[1]["resources"]] == list(NAMES)
    assert custom[1]["resources"][0]["name"] == "miniclusters.flux-framework.org/demand_nodes"


def test_numbers_are_those_of_the_status() -> None:
    now = seconds_of(CLUSTERS[1]["status"]["idleSince"]) + 42
    found = numbers(CLUSTERS[1], now)
    assert set(found) == set(NAMES) and found["idle_seconds"] == 42 and found["node_up_count"] == 1
    assert numbers(CLUSTERS[0], now)["idle_seconds"] == 0 and numbers(CLUSTERS[2], now) == {}
