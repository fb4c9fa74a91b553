"""A kind on the controller runtime (`hostfiles`) as a program on a real API server: two replicas of it, with one Lease,
one webhook and two controllers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from installed import apply
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import PATIENCE, until
from running_operator import free_port

_UNIT = Path(__file__).parents[1] / "minicluster/operator"
_LABEL = "example.org/hostfile"
_NAME = "hostfiles"
_PROGRAM = """
import asyncio, sys
import hostfiles
from headrace.k8s.objects.kinds import MUTATING
from headrace.k8s.runtime.controller import Controller
from headrace.k8s.runtime.program import log_to_stderr
from headrace.k8s.runtime.program import Program, Serving, serve
from headrace.k8s.objects.kinds import JOBS
from headrace.k8s.runtime.steps import Outcome
from headrace.k8s.runtime.watches import Selection

def build(shared):
    handlers = hostfiles.build(shared)
    Controller(shared, Selection(JOBS, hostfiles.LABEL), (), lambda observed, now: Outcome(), name="spectators")
    return handlers

kubeconfig, health, metrics, webhook = sys.argv[1:]
log_to_stderr("text", "info")
serving = Serving(
    kubeconfig=kubeconfig, lease_namespace="default", health_bind=health, metrics_bind=metrics, webhook_bind=webhook,
    webhook_address=webhook.partition(":")[0],
)
names = dict(component="hostfiles", lease="hostfiles", webhook="hostfiles")
program = Program(**names, configurations=((MUTATING, "hostfiles"),), build=build)
raise SystemExit(asyncio.run(serve(serving, program)))
"""


class Replica:
    """One process of the program; `webhook` is its address."""

    def __init__(self, plane: Cluster, folder: Path) -> None:
        self.webhook = f"{plane.addresses.machine}:{free_port()}"
        self._health, self._metrics = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.log = folder / f"{self.webhook}.log"
        arguments = (str(plane.kubeconfig), self._health, self._metrics, self.webhook)
        command = ("setpriv", "--pdeathsig", "KILL", sys.executable, "-c", _PROGRAM, *arguments)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stderr=log, env={**os.environ, "PYTHONPATH": str(_UNIT)})

    def get(self, page: str) -> str:
        assert self.process.poll() is None, self.log.read_text()
        where = self._metrics if page == "metrics" else self._health
        try:
            with urllib.request.urlopen(f"http://{where}/{page}", timeout=60) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def stop(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    @property
    def leads(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return "working" in self.log.read_text()


@pytest.fixture
def replicas(control_plane: Cluster, tmp_path: Path) -> Iterator[list[Replica]]:
    """The first leads, and both have the webhook, which stands before the control plane's labelled Jobs."""
    started = [Replica(control_plane, tmp_path)]
    try:
        until(lambda: started[0].leads)
        started.append(Replica(control_plane, tmp_path))
        rules = [{"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}]
        hook = {
            "name": "jobs.example.org",
            "clientConfig": {"url": f"https://{started[0].webhook}/mutate-jobs"},
            "rules": rules,
            "objectSelector": {"matchExpressions": [{"key": _LABEL, "operator": "Exists"}]},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
        apply(control_plane, {**kind, "metadata": {"name": _NAME}, "webhooks": [hook]})
        until(lambda: all(one.get("readyz") == "ok\n" for one in started))
        yield started
    finally:
        control_plane.kubectl("delete", "mutatingwebhookconfiguration", _NAME, "--ignore-not-found")
        for one in started:
            if one.process.poll() is None:
                one.stop(signal.SIGTERM)


class Jobs:
    def __init__(self, plane: Cluster, namespace: str) -> None:
        self._plane, self._namespace = plane, namespace

    def create(self, name: str, hosts: int) -> dict[str, Any]:
        container = {"name": "a", "image": "local/none:1"}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        body = {
            "metadata": {"name": name, "labels": {_LABEL: ""}},
            "spec": {"parallelism": hosts, "template": template},
        }
        return dict(self._plane.api.request("POST", f"/apis/batch/v1/namespaces/{self._namespace}/jobs", body))

    def hosts(self, name: str) -> list[str]:
        try:
            found = self._plane.api.get(f"/api/v1/namespaces/{self._namespace}/configmaps/{name}-hosts")
        except KubeError:
            return []
        return list(found["data"]["hostfile"].split())

    def events(self, name: str) -> list[str]:
        found = self._plane.api.get(f"/api/v1/namespaces/{self._namespace}/events")["items"]
        return [
            one["reason"]
            for one in found
            if one["involvedObject"]["name"] == name and one["source"] == {"component": _NAME}
        ]

    def delete(self, name: str) -> None:
        body = {"propagationPolicy": "Background"}
        self._plane.api.request("DELETE", f"/apis/batch/v1/namespaces/{self._namespace}/jobs/{name}", body)


def test_a_kind_is_admitted_kept_and_taken_over(
    replicas: list[Replica], control_plane: Cluster, namespace: str
) -> None:
    first, second = replicas
    jobs = Jobs(control_plane, namespace)

    def is_changed() -> bool:
        """The API server learns of the webhook and of its certificate moments later."""
        try:
            made = jobs.create("one", 2)
        except KubeError:
            return False
        if made["spec"].get("completionMode") == "Indexed":
            return made["spec"]["completions"] == 2
        jobs.delete("one")
        return False

    until(is_changed)
    with pytest.raises(KubeError, match=r"spec\.parallelism: must not be above 1000"):
        jobs.create("large", 1001)
    until(lambda: jobs.hosts("one") == ["one-0", "one-1"] and jobs.events("one") == ["HostfileMade"])
    metrics = first.get("metrics")
    assert 'hostfiles_errors_total{controller="jobs"} 0\n' in metrics
    # Both controllers have one watch of Jobs, beside that of ConfigMaps.
    assert 'hostfiles_api_requests_total{verb="watch",resource="jobs"} 1\n' in metrics
    assert 'hostfiles_reconciles_total{controller="spectators"} 0\n' not in metrics
    assert not second.leads
    assert first.stop(signal.SIGTERM) == 0
    control_plane.kubectl("delete", f"--namespace={namespace}", "configmap", "one-hosts")
    until(lambda: second.leads and jobs.hosts("one") == ["one-0", "one-1"])
    jobs.delete("one")
    until(lambda: not jobs.hosts("one"))
