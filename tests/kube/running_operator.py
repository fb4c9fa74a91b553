"""The operator as a process of this machine against the cluster of the tests, and MiniClusters that tests make."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubecluster.cluster import Cluster

from headrace.kube.crd import definition
from waiting import until

Object = dict[str, Any]

VIEW = "local/headrace-view:1"
SECONDS = "90s"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def define_kind(cluster: Cluster) -> None:
    """Make the kind MiniCluster known, and wait until the API server serves it."""
    cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(definition()))
    name = definition()["metadata"]["name"]
    where = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"

    def established() -> bool:
        conditions = (cluster.api.get(where).get("status") or {}).get("conditions") or ()
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    until(established)


class RunningOperator:
    """One `headrace operator run`; `log` is its standard error, as JSON lines."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.log = folder / "operator.log"
        self._cluster = cluster
        self._health = f"127.0.0.1:{free_port()}"
        self._metrics = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it and wait until its caches are filled."""
        command = [
            *(sys.executable, "-c", "from headrace.cli.main import headrace; raise SystemExit(headrace())"),
            *("operator", "run", "--kubeconfig", str(self._cluster.kubeconfig), "--view-image", VIEW),
            *("--health-bind", self._health, "--metrics-bind", self._metrics, "--log-level", "debug", *options),
        ]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(command, stderr=log)
        until(lambda: self.get("readyz") == "ok\n", 60)

    def get(self, page: str) -> str:
        """A page of its HTTP endpoints; "" where it does not answer."""
        assert self._process is None or self._process.poll() is None, self.log.read_text()
        where = self._metrics if page == "metrics" else self._health
        try:
            with urllib.request.urlopen(f"http://{where}/{page}") as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def requests(self) -> dict[tuple[str, str], int]:
        """How many requests it has made, by verb and resource, without those of its Lease."""
        found = {}
        for line in self.get("metrics").splitlines():
            if line.startswith("headrace_operator_api_requests_total{"):
                labels, _, number = line.partition("} ")
                verb, resource = (part.split('"')[1] for part in labels.split(","))
                if resource != "leases":
                    found[verb, resource] = int(number)
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it and give its exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        status = self._process.wait(30)
        self._process = None
        return status

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None


class MiniClusters:
    """MiniClusters of one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    def apply(self, name: str, **spec: Any) -> None:
        """Apply a MiniCluster of busybox pods, unless `spec` has containers."""
        command = spec.pop("command", "echo hello")
        full = {"containers": [{"image": "local/busybox:1", "command": command}], **spec}
        head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster"}
        body = {**head, "metadata": {"name": name, "namespace": self.namespace}, "spec": full}
        self.kubectl("apply", "-f", "-", input=json.dumps(body))

    def kubectl(self, *words: str, input: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *words, input=input)

    def get(self, kind: str, name: str = "") -> Object:
        found: Object = json.loads(self.kubectl("get", kind, *([name] if name else []), "-o", "json"))
        return found

    def status(self, name: str) -> Object:
        return dict(self.get("minicluster", name).get("status") or {})

    def wait(self, name: str, path: str, value: str) -> Object:
        """Wait until the field of the status at `path` has a value; the status then."""
        self.kubectl("wait", f"--for=jsonpath={{.status.{path}}}={value}", f"mc/{name}", f"--timeout={SECONDS}")
        return self.status(name)

    def phase(self, name: str, phase: str) -> Object:
        return self.wait(name, "phase", phase)

    def reason(self, name: str, met: Callable[[str], bool]) -> str:
        """Wait until the reason is as wanted; the reason then."""
        until(lambda: met(self.status(name).get("reason", "")), 90)
        return str(self.status(name)["reason"])

    def pods(self, name: str) -> list[Object]:
        found = json.loads(self.kubectl("get", "pods", "-l", f"flux-framework.org/minicluster={name}", "-o", "json"))
        return list(found["items"])

    def log(self, name: str) -> str:
        """What the lead's container has written."""
        lead = next(pod for pod in self.pods(name) if pod["metadata"]["name"].startswith(f"{name}-0-"))
        return self.kubectl("logs", lead["metadata"]["name"], "-c", name)

    def events(self, name: str) -> list[str]:
        """The reasons of the Events about a MiniCluster, in the order of their times."""
        found = json.loads(
            self.kubectl("get", "events", "--field-selector", f"involvedObject.name={name}", "-o", "json")
        )
        ours = [one for one in found["items"] if one["involvedObject"]["kind"] == "MiniCluster"]
        return [one["reason"] for one in sorted(ours, key=lambda one: one["metadata"]["creationTimestamp"])]
