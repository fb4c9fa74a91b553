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
from patience import PATIENCE, until

from headrace.minicluster.operator.crd import definition

Object = dict[str, Any]

VIEW = "local/headrace-view:1"
# Phases that a MiniCluster does not leave by itself.
ENDS = ("Finished", "Failed")
_KIND = "/apis/flux-framework.org/v1alpha2/namespaces/{}/miniclusters"
_FOLDERS = {
    **dict.fromkeys(("minicluster", "mc"), _KIND),
    "job": "/apis/batch/v1/namespaces/{}/jobs",
    "pod": "/api/v1/namespaces/{}/pods",
    "service": "/api/v1/namespaces/{}/services",
    "secret": "/api/v1/namespaces/{}/secrets",
    "configmap": "/api/v1/namespaces/{}/configmaps",
    "event": "/api/v1/namespaces/{}/events",
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def define_kind(cluster: Cluster, *definitions: Object) -> None:
    """Make kinds known, by default MiniCluster, and wait until the API server serves them."""
    found = definitions or (definition(),)
    listed = {"apiVersion": "v1", "kind": "List", "items": list(found)}
    cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(listed))
    for one in found:
        where = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{one['metadata']['name']}"
        until(lambda where=where: _is_established(cluster.api.get(where)))


def _is_established(defined: Object) -> bool:
    conditions = (defined.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


class RunningOperator:
    """One `headrace operator run`; `log` is its standard error, as JSON lines."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.log = folder / "operator.log"
        # Where its webhook is, HOST:PORT, "" without one.
        self.webhook = ""
        self._cluster = cluster
        self._health = f"127.0.0.1:{free_port()}"
        self._metrics = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it and wait until its caches are filled."""
        command = [
            # It ends with the process that runs the tests, however that ends.
            *("setpriv", "--pdeathsig", "KILL"),
            *(sys.executable, "-c", "from headrace.cli.main import headrace; raise SystemExit(headrace())"),
            *("operator", "run", "--kubeconfig", str(self._cluster.kubeconfig), "--view-image", VIEW),
            *("--health-bind", self._health, "--metrics-bind", self._metrics, "--log-level", "debug", *options),
        ]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(command, stderr=log)
        until(lambda: self.get("readyz") == "ok\n")

    def get(self, page: str) -> str:
        """A page of its HTTP endpoints; "" where it does not answer."""
        assert self._process is None or self._process.poll() is None, self.log.read_text()
        where = self._metrics if page == "metrics" else self._health
        try:
            with urllib.request.urlopen(f"http://{where}/{page}", timeout=60) as answer:
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
        status = self._process.wait(PATIENCE)
        self._process = None
        return status

    def last_words(self, lines: int = 60) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

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
        """An object, or the list of those of a kind. A kubectl takes .1 s of a core, so what tests wait for is asked
        of the API itself."""
        if kind in _FOLDERS:
            found: Object = self.cluster.api.get("/".join([_FOLDERS[kind].format(self.namespace), name]).rstrip("/"))
        else:
            found = json.loads(self.kubectl("get", kind, *([name] if name else []), "-o", "json"))
        return found

    def status(self, name: str) -> Object:
        return dict(self.get("minicluster", name).get("status") or {})

    def wait(self, name: str, path: str, value: str) -> Object:
        """Wait until the field of the status at `path` has a value; the status then."""
        return self._wait(name, lambda status: _field(status, path) == value, f"{path}={value}")

    def phase(self, name: str, phase: str) -> Object:
        """Wait for a phase; the status then."""
        return self.wait(name, "phase", phase)

    def ended(self, name: str, patience: float = PATIENCE) -> Object:
        """Wait until the MiniCluster's job has ended, however that is, and its exit code is known; the status then.

        A MiniCluster fails with the first pod that does, which may be a follower: the lead's exit code comes later.
        """
        return self._wait(name, lambda status: "exitCode" in status, "its exit code", patience, may_be_over=True)

    def reason(self, name: str, met: Callable[[str], bool]) -> str:
        """Wait until the reason is as wanted; the reason then."""
        return str(self._wait(name, lambda status: met(status.get("reason", "")), "the reason")["reason"])

    def _wait(
        self,
        name: str,
        met: Callable[[Object], bool],
        wanted: str,
        patience: float = PATIENCE,
        may_be_over: bool = False,
    ) -> Object:
        """Fails as soon as the MiniCluster has come to an end that is none of what is waited for, unless it may be over
        before that."""
        found: Object = {}

        def looked() -> bool:
            nonlocal found
            one = self.get("minicluster", name)
            found = one.get("status") or {}
            if met(found):
                return True
            seen = found.get("observedGeneration") == one["metadata"]["generation"]
            hopeless = seen and found.get("phase") in (("Invalid",) if may_be_over else (*ENDS, "Invalid"))
            assert not hopeless, f"{name}: waited for {wanted}, but its status is {json.dumps(found)}"
            return False

        try:
            until(looked, patience)
        except AssertionError as exc:
            raise AssertionError(f"{name}: waited for {wanted}: {exc}; its status is {json.dumps(found)}") from None
        return found

    def pods(self, name: str) -> list[Object]:
        """The pods of a MiniCluster, also those that have ended or are ending."""
        folder = _FOLDERS["pod"].format(self.namespace)
        return list(
            self.cluster.api.get(f"{folder}?labelSelector=flux-framework.org/minicluster={name}").get("items") or ()
        )

    def running(self, name: str, index: int = 0) -> str:
        """Wait until the container with the broker of this index runs by the kubelet's word, which is later than the
        broker's own; the name of its pod."""
        found: list[str] = []

        def looked() -> bool:
            found[:] = [
                pod["metadata"]["name"]
                for pod in self.pods(name)
                if index_of(pod) == index and not pod["metadata"].get("deletionTimestamp")
                if "running" in container_state(pod, name)
            ]
            return bool(found)

        until(looked)
        return found[0]

    def inside(self, name: str, *words: str, index: int = 0) -> str:
        """Run a command in the container with the broker of this index; its output."""
        return self.kubectl("exec", self.running(name, index), "-c", name, "--", *words)

    def flux(self, name: str, *words: str) -> str:
        """Run a flux command in the lead's container; its output."""
        uri = "FLUX_URI=local:///mnt/flux/config/run/flux/local"
        return self.inside(name, "env", uri, "/mnt/flux/view/bin/flux", *words)

    def log(self, name: str, container: str = "") -> str:
        """What a container of the lead, by default the one with the broker, has written until its end, which this waits
        for."""
        container = container or name
        ended: list[str] = []

        def looked() -> bool:
            leads = [pod for pod in self.pods(name) if index_of(pod) == 0]
            ended[:] = [one["metadata"]["name"] for one in leads if "terminated" in container_state(one, container)]
            return bool(ended)

        until(looked)
        return self.kubectl("logs", ended[0], "-c", container)

    def events(self, name: str) -> list[str]:
        """The reasons of the Events about a MiniCluster, in the order in which they were made."""
        found = [
            one
            for one in self.get("event")["items"]
            if (one["involvedObject"]["kind"], one["involvedObject"]["name"]) == ("MiniCluster", name)
        ]
        # Times of Events have whole seconds.
        return [one["reason"] for one in sorted(found, key=lambda one: int(one["metadata"]["resourceVersion"]))]


def index_of(pod: Object) -> int:
    """The index of a pod in the MiniCluster's own Job; -1 for pods of groups and services."""
    labels = pod["metadata"].get("labels", {})
    own = labels.get("batch.kubernetes.io/job-name") == labels.get("flux-framework.org/minicluster")
    return int(labels["batch.kubernetes.io/job-completion-index"]) if own else -1


def container_state(pod: Object, name: str) -> Object:
    """The state of a container: {"running": ...}, {"terminated": ...}, {"waiting": ...}, or {} before that."""
    status = pod["status"]
    for one in (*status.get("containerStatuses", []), *status.get("initContainerStatuses", [])):
        if one["name"] == name:
            return dict(one["state"])
    return {}


def _field(status: Object, path: str) -> str:
    value: Any = status
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value is None else str(value)
