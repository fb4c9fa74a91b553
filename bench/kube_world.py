"""What the benchmarks on Kubernetes share: a cluster of their own, the operator on this machine, watches.

Run them as root: `python bench/kube_times.py`. The cluster is that of tools/kube (docs/dev/kube-for-tests.md).
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT / "tools/kube"))

from kubecluster import node  # noqa: E402
from kubecluster.cluster import Cluster  # noqa: E402
from kubecluster.errors import KubeError  # noqa: E402

_TICKS = os.sysconf("SC_CLK_TCK")
VIEW = "local/headrace-view:1"
MINICLUSTERS = "/apis/flux-framework.org/v1alpha2/namespaces/default/miniclusters"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"


@contextlib.contextmanager
def cluster(nodes: int = 1) -> Iterator[Cluster]:
    """A cluster with the CustomResourceDefinition and, where it has nodes, the view. It ends with this process."""
    from headrace.minicluster.operator.crd import definition

    reading, writing = os.pipe()
    archives = [_view()] if nodes else []
    started = Cluster.up(f"bench-{os.getpid()}", nodes, archives, lifeline=reading)
    try:
        started.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(definition()))
        _await(lambda: bool(started.api.get(MINICLUSTERS)), "the kind MiniCluster is not served")
        yield started
    finally:
        started.down()
        os.close(writing)


def _view() -> Path:
    archive = _ROOT / "build/images/headrace-view.tar"
    command = [sys.executable, "-m", "headrace.images", "view", "--into", str(archive.parent)]
    subprocess.run(command, check=True, stdout=sys.stderr, cwd=_ROOT)
    return archive


@contextlib.contextmanager
def operator(world: Cluster, log: Path, metrics: int = 18080) -> Iterator[subprocess.Popen[bytes]]:
    """`headrace operator run` on this machine."""
    command = [str(Path(sys.executable).parent / "headrace"), "operator", "run", "--kubeconfig", str(world.kubeconfig)]
    command += ["--view-image", VIEW, "--lease-namespace", "default"]
    command += ["--metrics-bind", f"127.0.0.1:{metrics}", "--health-bind", f"127.0.0.1:{metrics + 1}"]
    with open(log, "wb") as into, subprocess.Popen(command, stdout=into, stderr=into) as process:
        try:
            _await_ready(process, f"http://127.0.0.1:{metrics + 1}/readyz")
            yield process
        finally:
            process.terminate()


def _await_ready(process: subprocess.Popen[bytes], address: str) -> None:
    def ready() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"the operator ended with {process.returncode}")
        with urllib.request.urlopen(address, timeout=1):
            return True

    _await(ready, "the operator does not get ready")


def _await(met: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, KubeError):
            if met():
                return
        time.sleep(0.05)
    raise RuntimeError(otherwise)


class Watch:
    """Objects of one path as they change, each handed to `seen(type, object, arrival)` in a thread of its own.

    The API server ends the watch of a client that is slow to read: it goes on from the version that was seen last.
    """

    def __init__(self, world: Cluster, path: str, seen: Callable[[str, dict[str, Any], float], None]) -> None:
        self._world, self._path, self._seen = world, path, seen
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE
        self._version = world.api.get(path)["metadata"]["resourceVersion"]
        self._ended = False
        stream = self._open()
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _open(self) -> Any:
        request = urllib.request.Request(
            f"{self._world.server}{self._path}?watch=1&allowWatchBookmarks=true&resourceVersion={self._version}",
            headers={"Authorization": f"Bearer {self._world.token}"},
        )
        return urllib.request.urlopen(request, context=self._context)

    def _read(self, stream: Any) -> None:
        while not self._ended:
            try:
                for line in stream or self._open():
                    self._take(json.loads(line))
            except (OSError, ValueError, AttributeError, HTTPException) as exc:
                if not self._ended:
                    print(f"watch of {self._path}: {exc!r}, it goes on", file=sys.stderr, flush=True)
                    time.sleep(0.2)
            stream = None

    def _take(self, event: dict[str, Any]) -> None:
        if event["type"] == "ERROR":
            # The version is too old by now: all that there is stands for what was missed.
            found = self._world.api.get(self._path)
            self._version = found["metadata"]["resourceVersion"]
            for one in found["items"]:
                self._seen("MODIFIED", one, time.time())
            return
        self._version = event["object"]["metadata"]["resourceVersion"]
        if event["type"] != "BOOKMARK":
            self._seen(event["type"], event["object"], time.time())

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        # The thread ends with the process: closing a stream that another thread reads would wait for its next line.
        self._ended, self._seen = True, lambda *_: None


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def pss_megabytes(pid: int) -> float:
    """The process's share of resident memory."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def parts_cpu_seconds(world: Cluster) -> dict[str, float]:
    """CPU time so far by component of a cluster; "containers" are all others: shims, runc, what runs in pods.

    Each process counts with those of its children whose end it has seen; orphans become children of the first process.
    """
    space = os.readlink(f"/proc/{world.box.pid}/ns/pid")
    names = {pid: name for name, pid in world.box.processes()[0].items()}
    found = dict.fromkeys([*names.values(), "containers"], 0.0)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(process / "ns/pid") != space:
                continue
            status = (process / "status").read_text()
            inside = int(status.partition("NSpid:")[2].split("\n")[0].split()[-1])
            ticks = [int(field) for field in (process / "stat").read_text().rpartition(")")[2].split()[11:15]]
            found[names.get(inside, "containers")] += sum(ticks[:2]) / _TICKS
            found["containers"] += sum(ticks[2:]) / _TICKS
    return found


def sandboxes(world: Cluster) -> int:
    """The sandboxes of pods that containerd has, those of deleted pods too: a kubelet removes these once a minute."""
    return sum(1 for _ in world.box.state.glob("images-*/io.containerd.grpc.v1.cri/sandboxes/*"))


def pods_cpu_seconds(world: Cluster) -> float:
    """CPU time of all pods of a cluster so far, those that have ended too."""
    top = node.cgroup(world.box.state)
    usage = Path(f"/sys/fs/cgroup/cpuacct/{top}/cpuacct.usage")
    if usage.exists():
        return int(usage.read_text()) / 1e9
    words = Path(f"/sys/fs/cgroup/{top}/cpu.stat").read_text().split()
    return int(words[words.index("usage_usec") + 1]) / 1e6
