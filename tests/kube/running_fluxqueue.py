"""The cluster queue as a process of this machine, with the rights of its install, and namespaces that it holds."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from installed import account_kubeconfig, apply
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError
from patience import PATIENCE, until
from running_operator import define_kind, free_port

from headrace.cluster_queue.crd import definitions
from headrace.cluster_queue.names import CONFIGURATION, FLUXQUEUE, HOLD_PATH, QUEUE
from headrace.programs.cluster_queue.install import Install, configuration
from headrace.programs.cluster_queue.package import PACKAGE

Object = dict[str, Any]

IMAGE = "local/busybox:1"
_ELSEWHERE = ("CustomResourceDefinition", "Deployment", "Service", "MutatingWebhookConfiguration")
_PATHS = {
    "pods": "/api/v1/namespaces/{}/pods",
    "jobs": "/apis/batch/v1/namespaces/{}/jobs",
    "events": "/api/v1/namespaces/{}/events",
    "fluxjobs": "/apis/jobs.converged-computing.org/v1alpha1/namespaces/{}/fluxjobs",
}
QUEUES = "/apis/jobs.converged-computing.org/v1alpha1/fluxqueues"


class RunningFluxqueue:
    """`headrace fluxqueue run` for a cluster, with more `options`; `log` is its standard error."""

    def __init__(self, cluster: Cluster, folder: Path, *options: str) -> None:
        self._options = options
        self.log = folder / "fluxqueue.log"
        self.webhook = f"{cluster.addresses.machine}:{free_port()}"
        self._health, self.metrics = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self._kubeconfig = account_kubeconfig(cluster, Install().namespace, folder, FLUXQUEUE)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, leads: bool = True) -> None:
        """Start it, and wait until it leads, or (`leads` is False) until it could."""
        led = self.log.read_text().count('"working"') if self.log.exists() else 0
        command = [
            *("setpriv", "--pdeathsig", "KILL"),
            *(sys.executable, "-c", "from headrace.cli.main import headrace; raise SystemExit(headrace())"),
            *("fluxqueue", "run", "--kubeconfig", str(self._kubeconfig), "--lease-namespace", Install().namespace),
            *("--health-bind", self._health, "--metrics-bind", self.metrics, "--log-level", "debug"),
            *("--webhook-bind", self.webhook, "--webhook-address", self.webhook.partition(":")[0]),
            *self._options,
        ]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(command, stderr=log)
        until(lambda: self._answers() and (not leads or self.log.read_text().count('"working"') > led))

    @property
    def pid(self) -> int:
        """0 while it does not run."""
        return self._process.pid if self._process else 0

    def cpu_seconds(self) -> float:
        """The processor time that it has taken."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def figure(self, name: str) -> float:
        """The sum of a metric over its labels."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=60) as answer:
            lines = [line.rpartition(" ") for line in answer.read().decode().splitlines()]
        return sum(float(value) for text, _, value in lines if text.partition("{")[0] == f"headrace_fluxqueue_{name}")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()
        try:
            with urllib.request.urlopen(f"http://{self._health}/readyz", timeout=60) as answer:
                return bool(answer.read() == b"ok\n")
        except OSError:
            return False

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE)
        self._process = None

    def start_where_ended(self) -> None:
        """Start it again where it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            self.start()


def nodes_of_queues(cluster: Cluster) -> dict[str, int]:
    """The number of nodes of each FluxQueue that there is; the leader makes the first one."""
    queues = cluster.api.get(QUEUES)["items"]
    return {one["metadata"]["name"]: one.get("status", {}).get("nodes", 0) for one in queues}


@contextlib.contextmanager
def running(cluster: Cluster, folder: Path, *options: str) -> Iterator[RunningFluxqueue]:
    """The queue with the rights of its install, until the block ends."""
    define_kind(cluster, *definitions())
    apply(cluster, *(one for one in PACKAGE.objects(Install()) if one["kind"] not in _ELSEWHERE))
    queue = RunningFluxqueue(cluster, folder, *options)
    apply(cluster, configuration({"url": f"https://{queue.webhook}{HOLD_PATH}"}, Install()))
    try:
        queue.start()
        yield queue
    finally:
        queue.stop()
        cluster.kubectl("delete", "mutatingwebhookconfiguration", CONFIGURATION, "--ignore-not-found")


class Held:
    """Objects of a labelled namespace."""

    def __init__(self, cluster: Cluster, namespace: str, queue: str = "default") -> None:
        self.cluster, self.namespace = cluster, namespace
        cluster.kubectl("label", "namespace", namespace, f"{QUEUE}={queue}")
        # The API server learns of the webhook, of its certificate and of the label moments later.
        until(self.is_reviewed)

    def is_reviewed(self) -> bool:
        """Whether a pod could be created here now, and would be held."""
        body = {"metadata": {"name": "probe"}, "spec": pod_spec("true", "0")}
        try:
            made = self.cluster.api.request("POST", f"{_PATHS['pods'].format(self.namespace)}?dryRun=All", body)
        except KubeError:
            return False
        return bool(made["spec"].get("schedulingGates"))

    def pod(self, name: str, command: str = "sleep 3600", cpu: str = "0", **more: Any) -> None:
        body = {"metadata": {"name": name, **more}, "spec": pod_spec(command, cpu)}
        self.cluster.api.request("POST", _PATHS["pods"].format(self.namespace), body)

    def job(self, name: str, command: str = "sleep 3600", cpu: str = "0", pods: int = 1, **spec: Any) -> None:
        metadata = {"name": name, "annotations": spec.pop("annotations", {})}
        full = {
            **{"parallelism": pods, "completions": pods, "completionMode": "Indexed"},
            **{"backoffLimit": 0, "template": {"spec": pod_spec(command, cpu)}, **spec},
        }
        self.cluster.api.request("POST", _PATHS["jobs"].format(self.namespace), {"metadata": metadata, "spec": full})

    def replicated(self, kind: str, name: str, replicas: int, cpu: str, command: str = "sleep 3600") -> None:
        """A Deployment, ReplicaSet or StatefulSet, whose pods have the label `app`."""
        full = {**pod_spec(command, cpu), "restartPolicy": "Always"}
        template = {"metadata": {"labels": {"app": name}}, "spec": full}
        spec: Object = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
        if kind == "StatefulSet":
            spec["serviceName"] = name
        path = f"/apis/apps/v1/namespaces/{self.namespace}/{kind.lower()}s"
        self.cluster.api.request("POST", path, {"metadata": {"name": name}, "spec": spec})

    def scale(self, kind: str, name: str, replicas: int) -> None:
        self.cluster.kubectl("-n", self.namespace, "scale", f"{kind.lower()}/{name}", f"--replicas={replicas}")

    def get(self, plural: str, name: str = "") -> Object:
        return dict(self.cluster.api.get("/".join([_PATHS[plural].format(self.namespace), name]).rstrip("/")))

    def delete(self, plural: str, name: str) -> None:
        body = {"propagationPolicy": "Background"}
        self.cluster.api.request("DELETE", f"{_PATHS[plural].format(self.namespace)}/{name}", body)

    def pods_of(self, job: str) -> list[Object]:
        selector = f"?labelSelector=batch.kubernetes.io/job-name={job}"
        return list(self.cluster.api.get(_PATHS["pods"].format(self.namespace) + selector).get("items") or ())

    def status(self, fluxjob: str) -> Object:
        """The status of a FluxJob; {} without one."""
        try:
            return dict(self.get("fluxjobs", fluxjob).get("status") or {})
        except KubeError:
            return {}

    def wait(self, fluxjob: str, state: str) -> Object:
        """Wait for a state; the status then."""
        try:
            until(lambda: self.status(fluxjob).get("state") == state)
        except AssertionError as exc:
            raise AssertionError(f"{fluxjob}: waited for {state}, is {json.dumps(self.status(fluxjob))}") from exc
        return self.status(fluxjob)

    def events(self, name: str) -> list[str]:
        """The reasons of the queue's Events about an object, in order."""
        found = [
            one
            for one in self.get("events")["items"]
            if one["involvedObject"]["name"] == name and one["source"].get("component") == FLUXQUEUE
        ]
        return [one["reason"] for one in sorted(found, key=lambda one: int(one["metadata"]["resourceVersion"]))]


def pod_spec(command: str, cpu: str) -> Object:
    container: Object = {"name": "main", "image": IMAGE, "command": ["sh", "-c", command]}
    if cpu != "0":
        container["resources"] = {"requests": {"cpu": cpu}}
    return {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
