"""Queues, resources, statistics and who one is by `/v2`, on a real broker."""

from __future__ import annotations

import os
from typing import Any

import pytest


def test_queues_have_state_limits_and_resources(modules_own: Any, served: Any, tmp_path: Any) -> None:
    client, flux = served(modules_own), modules_own.flux
    (queue,) = client.get("/v2/queues").json()["queues"]
    assert (queue["name"], queue["default"], queue["enabled"], queue["started"]) == ("", True, True, True)
    assert queue["max_duration"] is None and queue["all"]["nnodes"] == 1 and queue["free"] == queue["all"]
    (tmp_path / "queues.toml").write_text('[queues.debug.policy.limits]\nduration = "1h"\n[queues.batch]\n')
    flux("config", "load", str(tmp_path))
    flux("queue", "start", "--queue=batch")
    queues = {queue["name"]: queue for queue in client.get("/v2/queues").json()["queues"]}
    assert queues.keys() == {"batch", "debug"} and queues["debug"]["max_duration"] == 3600
    assert queues["batch"]["started"] and not queues["debug"]["started"]


def test_resources_by_state_and_node(client: Any, shared: Any) -> None:
    found = client.get("/v2/resources").json()
    (node,) = found["nodes"]
    assert found["all"]["nnodes"] == 1 and (node["rank"], node["state"]) == (0, "free")
    shared.flux("resource", "drain", "0", "a bad disk")
    (node,) = client.get("/v2/resources").json()["nodes"]
    assert node["state"] == "drained" and node["drain"]["reason"] == "a bad disk"
    shared.flux("resource", "undrain", "0")


def test_the_graph_has_each_core(client: Any) -> None:
    cores = client.get("/v2/resources").json()["all"]["ncores"]
    nodes = client.get("/v2/resources/graph").json()["graph"]["nodes"]
    assert sum(node["metadata"]["type"] == "core" for node in nodes) == cores


def test_statistics_count_jobs(client: Any, shared: Any) -> None:
    before = client.get("/v2/statistics?from=-1h&bin=30m").json()
    shared.flux("submit", "--wait", "true")
    after = client.get("/v2/statistics?from=-1h&bin=30m").json()
    assert len(after["bins"]) in (2, 3)
    assert sum(row["ended"] for row in after["bins"]) == sum(row["ended"] for row in before["bins"]) + 1
    # 48 times a 48th of the last span is a trifle less than the span.
    for span in "", "?from=1795680000&to=1795731142":
        assert len(client.get(f"/v2/statistics{span}").json()["bins"]) == 48


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("from=now&to=-1h", "from"),
        ("bin=1", "bin"),
        ("bin=0", "bin"),
        ("bin=inf", "bin"),
        ("to=x", "to"),
        ("until=now", "until"),
    ],
)
def test_a_wrong_span_is_named(client: Any, query: str, field: str) -> None:
    answer = client.get(f"/v2/statistics?{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, field)


def test_who_one_is(client: Any) -> None:
    found = client.get("/v2/me").json()
    assert found["userid"] == os.getuid() and found["sees_all"] is True and found["auth"] == "none"
