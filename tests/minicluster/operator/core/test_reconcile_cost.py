"""What one reconcile of the largest valid MiniClusters costs: all others wait for it, so it is bounded for each."""

from __future__ import annotations

import time
from typing import Any

import pytest

from headrace.k8s.runtime.steps import Create
from headrace.minicluster.api.fields import API_VERSION, KIND, MOST_GROUPS, MOST_PODS, InvalidMiniCluster, MiniCluster
from headrace.minicluster.api.size_rules import LARGEST_TEXT, MOST_CLUSTERS, MOST_OUTSIDE, MOST_VALUES
from headrace.minicluster.api.validate import check
from headrace.minicluster.operator.builders import Images, desired
from headrace.minicluster.operator.controller import _trim_config_map
from headrace.minicluster.operator.core.observed import Lead, Observed
from headrace.minicluster.operator.core.reconcile import Settings, reconcile, without_server_fields

Object = dict[str, Any]
# Seconds of CPU.
LIMIT = 0.05
NOW = 1_900_000_000.0
ONE: Object = {"image": "busybox", "command": "true"}


def bursting(**fields: Any) -> Object:
    return {"flux": {"bursting": fields}}


def numbered(count: int, value: Any) -> Object:
    return {f"a{number}": value for number in range(count)}


MANY_VOLUMES = {f"a{n}": {"path": f"/{n}", "hostPath": "/"} for n in range(MOST_VALUES // 2 - 2)}
LARGEST: dict[str, Object] = {
    "size": {"size": MOST_PODS},
    "maxSize": {"size": 1, "maxSize": MOST_PODS, "autoscale": {"minSize": 1}},
    "groups": {"groups": [{"name": f"g{n}", "size": MOST_PODS // (MOST_GROUPS + 1)} for n in range(MOST_GROUPS)]},
    "hostlist": bursting(hostlist=f"hello-[0-1],h[0-{MOST_OUTSIDE - 3}]"),
    "names": bursting(hostlist=",".join(f"h{number}x" for number in range(MOST_OUTSIDE))),
    "clusters": bursting(clusters=[{"name": f"b{n}", "size": MOST_OUTSIDE // 256} for n in range(MOST_CLUSTERS)]),
    "lead": bursting(leadBroker={"address": "a-0", "name": "a", "size": MOST_PODS}),
    "pre": {"containers": [{**ONE, "commands": {"pre": "echo a\n" * (LARGEST_TEXT // 7)}}]},
    "batch": {"containers": [{"image": "busybox", "batch": True, "command": "a\n" * 1000}]},
    "command": {"containers": [{"image": "busybox", "command": "a b " * (LARGEST_TEXT // 4 - 200)}]},
    "configuration": {"flux": {"brokerConfig": f"[foreign]\nnumbers = [{'1.5, ' * 13_000}]\n"}},
    "sidecars": {"containers": [{**ONE, "name": f"c{n}", "runFlux": n == 0} for n in range(64)]},
    "variables": {"containers": [{**ONE, "environment": numbered(MOST_VALUES - 3, "x" * 10)}]},
    "volumes": {"containers": [{**ONE, "volumes": MANY_VOLUMES}]},
    "labels": {"jobLabels": numbered(MOST_VALUES - 3, "x" * 10)},
}


def document(**spec: Any) -> Object:
    meta = {"name": "hello", "namespace": "ns", "uid": "u-1", "resourceVersion": "1", "generation": 1}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": {"size": 2, "containers": [ONE], **spec}}


def build(cluster: MiniCluster, uid: str, size: int, known_hosts: str) -> list[Object]:
    return desired(cluster, uid=uid, images=Images(view="v:1"), keys=None, size=size, known_hosts=known_hosts)


def observed_of(cluster: Object) -> Observed:
    """A MiniCluster whose objects have been made, and whose lead runs."""
    made: dict[str, dict[str, Object]] = {"Job": {}, "ConfigMap": {}, "Service": {}}
    for step in reconcile(Observed(cluster=cluster, secret=True), Settings(build=build), NOW).steps:
        if isinstance(step, Create) and step.body["kind"] in made:
            name = step.body["metadata"]["name"]
            made[step.body["kind"]][name] = {**step.body, "metadata": {**step.body["metadata"], "uid": f"j-{name}"}}
    maps = {name: _trim_config_map(one) for name, one in made["ConfigMap"].items()}
    lead = Lead(state="running", brokers_up=1)
    return Observed(
        cluster=cluster, secret=True, jobs=made["Job"], config_maps=maps, services=made["Service"], lead=lead
    )


@pytest.mark.parametrize("name", LARGEST)
def test_one_reconcile_of_the_largest_is_short(name: str) -> None:
    cluster = document(**LARGEST[name])
    check(without_server_fields(cluster))
    observed = observed_of(cluster)
    costs = []
    for _ in range(5):
        began = time.process_time()
        actions = reconcile(observed, Settings(build=build), NOW)
        costs.append(time.process_time() - began)
        assert actions.status is not None
    assert min(costs) < LIMIT, f"{name}: {min(costs) * 1000:.0f} ms"


@pytest.mark.parametrize(
    "spec",
    [
        bursting(hostlist="h[0-999999]"),
        bursting(hostlist="h[0-99999],i[0-99999]"),
        bursting(clusters=[{"name": f"b{number}", "size": MOST_PODS} for number in range(9)]),
        bursting(clusters=[{"name": f"b{number}", "size": 1} for number in range(10_000)]),
        {"groups": [{"name": f"g{number}", "size": MOST_PODS} for number in range(MOST_GROUPS)]},
        {"jobLabels": numbered(MOST_VALUES, "x")},
    ],
)
def test_a_larger_one_is_refused_as_quickly(spec: Object) -> None:
    cluster = document(**spec)
    began = time.process_time()
    with pytest.raises(InvalidMiniCluster):
        check(without_server_fields(cluster))
    assert time.process_time() - began < 4 * LIMIT
