"""`headrace fluxqueue run|manifests`: what its options give the queue, and what it says without a cluster."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml

from headrace.cli.main import headrace
from headrace.fluxqueue import serve as serving_module
from headrace.fluxqueue.install import Install, objects
from headrace.kube.runtime.program import Serving


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Serving]:
    found: list[Serving] = []

    async def record(serving: Serving) -> int:
        found.append(serving)
        return 0

    monkeypatch.setattr(serving_module, "serve", record)
    return found


def run(served: list[Serving], line: str) -> Serving:
    assert headrace(shlex.split(line)[1:]) == 0
    return served.pop()


def test_addresses_the_lease_and_the_cluster(served: list[Serving]) -> None:
    serving = run(served, "headrace fluxqueue run --metrics-bind :1 --health-bind :2 --lease-namespace ops")
    assert (serving.metrics_bind, serving.health_bind) == (":1", ":2")
    assert (serving.lease_namespace, serving.leader_elect) == ("ops", True)
    assert run(served, "headrace fluxqueue run --leader-elect").leader_elect is True
    assert run(served, "headrace fluxqueue run --no-leader-elect").leader_elect is False
    line = "headrace fluxqueue run --kubeconfig file --context other --log-format text --log-level debug"
    serving = run(served, line)
    assert (serving.kubeconfig, serving.context) == ("file", "other")


def test_the_webhook(served: list[Serving]) -> None:
    assert run(served, "headrace fluxqueue run --webhook-bind :9443 --no-webhook").webhook_bind == ""
    serving = run(served, "headrace fluxqueue run --webhook-bind :9443 --webhook-certificate /certificate")
    assert (serving.webhook_bind, serving.webhook_certificate) == (":9443", "/certificate")
    serving = run(served, "headrace fluxqueue run --webhook-bind 192.0.2.1:1 --webhook-address 192.0.2.1")
    assert serving.webhook_address == "192.0.2.1"


def printed(capsys: pytest.CaptureFixture[str], line: str) -> list[Any]:
    assert headrace(shlex.split(line)[1:]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def test_what_installs_the_queue_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "headrace fluxqueue manifests") == objects(Install())
    line = "headrace fluxqueue manifests --namespace ops --image a:1 --replicas 2 --failure-policy Ignore"
    chosen = Install(namespace="ops", image="a:1", replicas=2, failure_policy="Ignore")
    assert printed(capsys, line) == objects(chosen)


def test_without_a_cluster_it_says_what_it_looked_for(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert headrace(["fluxqueue", "run", "--kubeconfig", f"{tmp_path}/none"]) == 1
    assert f"no kubeconfig: {tmp_path}/none is not there" in capsys.readouterr().err
