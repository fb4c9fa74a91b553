"""A real autoscaler of the cluster sizes a MiniCluster by the jobs in its queue, from what the operator serves."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from installed import apply, guarded, install, uninstall
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import PATIENCE, until
from running_operator import MiniClusters, RunningOperator
from test_elasticity import Elastic

from headrace.cli.main import headrace
from headrace.k8s.metrics_api import CUSTOM, EXTERNAL
from headrace.k8s.objects.kinds import api_service_name
from headrace.minicluster.operator.names import WEBHOOK
from headrace.programs.operator.install import Install

CHOSEN = Install(namespace="headrace-metrics", metrics_api=True)
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


@pytest.fixture
def serving(cluster: Cluster, operator: RunningOperator, tmp_path: Path) -> Iterator[RunningOperator]:
    """The operator as it is installed with its metrics API, with the rights of that and no more; the operator of other
    tests rests meanwhile. External metrics belong to another adapter.
    """
    operator.stop()
    other = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": api_service_name(EXTERNAL)},
        "spec": {
            "group": EXTERNAL.partition("/")[0],
            "version": EXTERNAL.partition("/")[2],
            "service": {"namespace": "default", "name": "another-adapter"},
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }
    try:
        install(cluster, CHOSEN)
        apply(cluster, other)
        with guarded(cluster, CHOSEN, tmp_path, "--metrics-api") as found:
            _lead_to(cluster, found)
            yield found
    finally:
        for one in (CUSTOM, EXTERNAL):
            with contextlib.suppress(KubeError):
                cluster.api.request("DELETE", f"{SERVICES}/{api_service_name(one)}")
        uninstall(cluster, CHOSEN)
        cluster.kubectl("delete", "endpointslice", WEBHOOK, f"--namespace={CHOSEN.namespace}", "--ignore-not-found")
        operator.start()


def _lead_to(cluster: Cluster, operator: RunningOperator) -> None:
    """The Service of the webhook, for a program that is none of the cluster's pods."""
    host, _, port = operator.webhook.rpartition(":")
    named = {"name": WEBHOOK, "namespace": CHOSEN.namespace}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": named, "spec": {"ports": [{"port": 443}]}}
    ends = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**named, "labels": {"kubernetes.io/service-name": WEBHOOK}},
        "addressType": "IPv4",
        "ports": [{"port": int(port)}],
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
    }
    apply(cluster, service, ends)


def test_an_autoscaler_sizes_a_minicluster_by_its_jobs(
    cluster: Cluster, serving: RunningOperator, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mc = Elastic(MiniClusters(cluster, namespace), "elastic", size=1, maxSize=2)
    where = f"/apis/{CUSTOM}/namespaces/{namespace}/miniclusters.flux-framework.org/elastic/demand_nodes"

    def demand() -> Any:
        with contextlib.suppress(KubeError, OSError):
            return cluster.api.get(where)["items"][0]["value"]
        return None

    until(lambda: demand() == "0")
    registered = cluster.api.get(f"{SERVICES}/{api_service_name(CUSTOM)}")["spec"]
    assert registered["caBundle"] and "insecureSkipTLSVerify" not in registered
    # Whoever reaches the operator's port by another way than the API server is told nothing.
    for headers in ({}, {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}):
        refused = _ask(f"https://{serving.webhook}{where}", registered["caBundle"], headers)
        assert (refused["code"], refused["reason"]) == (401, "Unauthorized"), refused
    # The other adapter is left alone, and the MiniCluster says so.
    assert "caBundle" not in cluster.api.get(f"{SERVICES}/{api_service_name(EXTERNAL)}")["spec"]
    until(
        lambda: any(
            one["type"] == "MetricsElsewhere" and "default/another-adapter" in one["message"]
            for one in mc.its.status("elastic")["conditions"]
        )
    )
    hpa = ["mini", "hpa", "--kubeconfig", str(cluster.kubeconfig), "-n", namespace, "--min=1", "--max=2", "--idle=1"]
    assert headrace([*hpa, "--dry-run", "elastic"]) == 0
    assert json.loads(capsys.readouterr().out)["spec"]["maxReplicas"] == 2
    assert headrace([*hpa, "elastic"]) == 0
    assert capsys.readouterr().out == "HorizontalPodAutoscaler/elastic: 1 to 2 pods\n"
    waits = mc.flux("submit", "-N2", "hostname").strip()
    mc.until_pods(0, 1)
    assert sorted(mc.flux("job", "attach", waits).split()) == mc.names(0, 1)
    mc.until_pods(0)
    # The other adapter goes, and the operator takes its place.
    cluster.api.request("DELETE", f"{SERVICES}/{api_service_name(EXTERNAL)}")
    until(lambda: _external(cluster, namespace) == [("elastic", "0")])


def _ask(url: str, bundle: str, headers: dict[str, str]) -> Any:
    """The refusal of a request without a client certificate."""
    trust = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    with pytest.raises(urllib.error.HTTPError) as refused:
        opener.open(urllib.request.Request(url, headers=headers), timeout=PATIENCE)
    return json.loads(refused.value.read())


def _external(cluster: Cluster, namespace: str) -> list[tuple[str, str]]:
    with contextlib.suppress(KubeError, OSError):
        found = cluster.api.get(f"/apis/{EXTERNAL}/namespaces/{namespace}/demand_nodes")["items"]
        return [(one["metricLabels"]["minicluster"], one["value"]) for one in found]
    return []
