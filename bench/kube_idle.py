"""What the operator costs while many MiniClusters run and nothing happens: memory, CPU time, requests.

    python bench/kube_idle.py --count 500 --seconds 60

A real control plane; kwok plays the pods, and kube_leads.py their leads, to each of which the operator keeps its
connection. Each MiniCluster has its command running throughout.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from kube_world import MINICLUSTERS, PODS, VIEW, cluster
from kubecluster import kwok
from kubecluster import operator as operators

_HERE = Path(__file__).resolve().parent
_PATIENCE = 900.0
_KEY = re.compile(r'(public|secret)-key\s*=\s*"(.{40})"')


def _create(world: Any, count: int, size: int) -> None:
    spec = {"size": size, "containers": [{"image": "local/busybox:1", "command": "sleep inf"}]}
    for number in range(count):
        obj = {
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "MiniCluster",
            "metadata": {"name": f"idle-{number}"},
            "spec": spec,
        }
        world.api.request("POST", MINICLUSTERS, obj)


def _leads(world: Any, size: int) -> None:
    """Start the leads at their pods' addresses, which are made this network's own."""
    addresses = {}
    for pod in world.api.get(PODS)["items"]:
        if pod["metadata"]["labels"].get("batch.kubernetes.io/job-completion-index") == "0":
            addresses[pod["metadata"]["labels"]["flux-framework.org/minicluster"]] = pod["status"]["podIP"]
    found = []
    for secret in world.api.get("/api/v1/namespaces/default/secrets")["items"]:
        name = secret["metadata"]["name"].removesuffix("-curve")
        if name in addresses:
            keys = dict(_KEY.findall(base64.b64decode(secret["data"]["channel.cert"]).decode()))
            found.append([f"tcp://{addresses[name]}:8051", keys["secret"], keys["public"], size])
    (world.box.state / "leads.json").write_text(json.dumps(found))
    world.exec_in_netns(["ip", "route", "add", "local", "10.64.0.0/10", "dev", "lo"])
    world.box.start("leads", [sys.executable, str(_HERE / "kube_leads.py"), str(world.box.state / "leads.json")])


def _await(met: Any, what: str) -> float:
    began = time.monotonic()
    while not met():
        if time.monotonic() - began > _PATIENCE:
            raise RuntimeError(f"{what}: not within {_PATIENCE:.0f} s")
        time.sleep(0.5)
    return time.monotonic() - began


def _running_pods(world: Any) -> int:
    return sum(pod["status"].get("phase") == "Running" for pod in world.api.get(PODS)["items"])


def _running(world: Any, brokers: int) -> int:
    """How many MiniClusters say that so many brokers are up."""
    found = 0
    for one in world.api.get(MINICLUSTERS)["items"]:
        found += one.get("status", {}).get("brokersUp", 0) >= brokers
    return found


class Operator:
    """The operator's process in the cluster's namespaces."""

    def __init__(self, world: Any) -> None:
        operators.start(world, VIEW)
        self._world = world
        self._pid = world.box.processes()[0]["operator"]

    def _proc(self, name: str) -> str:
        return str(self._world.box.run(["cat", f"/proc/{self._pid}/{name}"]))

    def cpu(self) -> float:
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def memory(self) -> dict[str, float]:
        """Megabytes: share of resident memory, all of it, and its peak."""
        found = {}
        for line in (self._proc("smaps_rollup") + self._proc("status")).splitlines():
            name, _, rest = line.partition(":")
            if name in ("Pss", "VmRSS", "VmHWM"):
                found[name] = int(rest.split()[0]) / 1024
        return found

    def requests(self) -> Counter[str]:
        """How many requests it has made, by verb and resource."""
        address = f"http://{self._world.addresses.control_plane}:18080/metrics"
        found: Counter[str] = Counter()
        with urllib.request.urlopen(address) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("headrace_operator_api_requests_total{"):
                    labels, _, number = line.partition("} ")
                    found[" ".join(labels.split('"')[1::2])] += int(float(number))
        return found


def measure(count: int, size: int, seconds: float) -> None:
    """Create, wait until all run, look for so many seconds, print."""
    with cluster(nodes=0) as world:
        kwok.play(world, 10)
        running = Operator(world)
        empty = running.memory()
        before = running.requests()
        _create(world, count, size)
        pods = _await(lambda: _running_pods(world) == count * size, "running pods")
        _leads(world, size)
        up = _await(lambda: "all are watched" in world.box.log("leads"), "connections to all leads")
        _await(lambda: _running(world, size) == count, "brokers up")
        made = running.requests() - before
        print(f"{count} MiniClusters of {size}: pods running after {pods:.0f} s, all connected {up:.0f} s later")
        print(f"requests each: {sum(made.values()) / count:.1f} ({dict(made)})")
        print(f"CPU each: {running.cpu() / count * 1000:.1f} ms")
        _settle(running)
        used, asked, began = running.cpu(), running.requests(), time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - began
        print(f"idle for {passed:.0f} s: {(running.cpu() - used) / passed * 100:.2f} % of a core (bar 1)")
        print(f"requests meanwhile: {dict(running.requests() - asked)} (bar: watches and Lease renewals)")
        print(f"memory in MB: {_rounded(running.memory())}, before {_rounded(empty)} (bar 150)")


def _rounded(found: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in found.items()}


def _settle(running: Operator) -> None:
    """Wait until requests other than those of the Lease cease."""

    def quiet() -> bool:
        before = running.requests()
        time.sleep(5)
        return all("leases" in name for name in running.requests() - before)

    _await(quiet, "no requests")


def main() -> None:
    """Arguments and the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--size", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    measure(options.count, options.size, options.seconds)


if __name__ == "__main__":
    main()
