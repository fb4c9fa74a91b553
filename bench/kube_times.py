"""How long MiniClusters, or Jobs with the label that makes them clusters, take from apply to their end, beside Indexed
Jobs of the same size, on a real Kubernetes.

    python bench/kube_times.py --sizes 1,4,8,16,32 --rounds 3 --rows rows.jsonl
    python bench/kube_times.py --labelled --sizes 1,2,4,8 --rounds 5

The peer is an Indexed Job whose pods have an init container that does nothing and run the same `echo`: what Kubernetes
itself takes on this machine. Both take turns. A labelled Job is applied as admission makes it. All times are seconds
since the apply; those of pods are arrivals of watch events, those of brokers and job are the pods' own clock, which is
this machine's. CPU time tells what a busy machine does not blur.

A kubelet looks at its containers once a second, so each step of a pod (init container ended, container ended, pod over)
is seen up to a second late. Applies come at random moments of that second, and means are shown: else one kind would
always meet a better moment than the other.

Once a minute the kubelet removes what is left of deleted pods, with half a dozen processes for each. A run in which
that happens pays for the runs before it, so it is told and taken again.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TextIO

from kube_world import (
    JOBS,
    MINICLUSTERS,
    PODS,
    VIEW,
    Watch,
    cluster,
    cpu_seconds,
    operator,
    parts_cpu_seconds,
    pods_cpu_seconds,
    sandboxes,
)

from headrace.flux_jobs.operator.names import ID_LENGTH
from headrace.flux_jobs.operator.policy import flux_job
from headrace.flux_jobs.read.cluster import LABEL_KEY, LABEL_VALUE
from headrace.minicluster.operator.builders.images import Images

_PATIENCE = 180.0
_PHASES = (
    "pods made",
    "scheduled",
    "init done",
    "started",
    "broker started",
    "brokers up",
    "job done",
    "exited",
    "ready",
    "finished",
    "told",
    "deleted",
)


def peer(name: str, size: int) -> dict[str, Any]:
    """The Indexed Job."""
    container = {"image": "local/busybox:1"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": size,
            "parallelism": size,
            "completionMode": "Indexed",
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "initContainers": [{"name": "nothing", "command": ["true"], **container}],
                    "containers": [{"name": "main", "command": ["echo", "hello"], **container}],
                }
            },
        },
    }


def minicluster(name: str, size: int) -> dict[str, Any]:
    """A MiniCluster whose job is the same echo, once."""
    return {
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": {"name": name},
        "spec": {
            "size": size,
            "logging": {"quiet": True},
            "containers": [{"image": "local/busybox:1", "command": "echo hello"}],
        },
    }


def labelled(name: str, size: int) -> dict[str, Any]:
    """A Job that is a cluster, whose pods each run the same echo as a task."""
    spec = peer(name, size)["spec"]
    del spec["template"]["spec"]["initContainers"]
    metadata = {"name": name, "labels": {LABEL_KEY: LABEL_VALUE}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    return flux_job(job, Images(VIEW), hashlib.sha256(name.encode()).hexdigest()[:ID_LENGTH])


class Run:
    """One object from apply to deleted: rows of its pods by name."""

    def __init__(self, world: Any, path: str, obj: dict[str, Any]) -> None:
        self._world, self._path, self._object = world, path, obj
        self.size = obj["spec"].get("size") or obj["spec"]["completions"]
        self.pods: dict[str, dict[str, float]] = {}
        self._gone: dict[str, float] = {}
        self.told = 0.0
        self.result = ""

    def take(self) -> dict[str, float]:
        """Apply, wait for the end, delete; the phases' times."""
        name = self._object["metadata"]["name"]
        time.sleep(random.random())
        with Watch(self._world, PODS, self._pod), Watch(self._world, self._path, self._own):
            began = time.time()
            self._world.api.request("POST", self._path, self._object)
            self._wait(lambda: self.told and len(self.pods) >= self.size and self._all("finished"), "end")
            deleting = time.time()
            options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
            self._world.api.request("DELETE", f"{self._path}/{name}", options)
            self._wait(lambda: len(self._gone) >= len(self.pods), "deletion")
        for row in self.pods.values():
            for phase in row:
                row[phase] -= began
        times = {phase: max(row.get(phase, 0.0) for row in self.pods.values()) for phase in _PHASES}
        times["told"], times["deleted"] = self.told - began, max(self._gone.values()) - deleting
        return times

    def _wait(self, met: Any, what: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not met():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self._object['metadata']['name']}: no {what} in {_PATIENCE:.0f} s: {self.pods}")
            time.sleep(0.01)

    def _all(self, phase: str) -> bool:
        return all(phase in row for row in self.pods.values())

    def _own(self, kind: str, obj: dict[str, Any], arrival: float) -> None:
        if obj["metadata"]["name"] != self._object["metadata"]["name"] or self.told:
            return
        status = obj.get("status", {})
        ends = [one["type"] for one in status.get("conditions", []) if one["status"] == "True"]
        phase = status.get("phase") or ("Finished" if "Complete" in ends else "Failed" if "Failed" in ends else "")
        if phase in ("Finished", "Failed", "Invalid"):
            self.told, self.result = arrival, phase

    def _pod(self, kind: str, pod: dict[str, Any], arrival: float) -> None:
        name = pod["metadata"]["name"]
        if not name.startswith(self._object["metadata"]["name"] + "-"):
            return
        if kind == "DELETED":
            self._gone[name] = arrival
            return
        row = self.pods.setdefault(name, {"pods made": arrival})
        status = pod.get("status", {})
        conditions = {one["type"]: one["status"] for one in status.get("conditions", [])}
        for phase, condition in {"scheduled": "PodScheduled", "init done": "Initialized", "ready": "Ready"}.items():
            if conditions.get(condition) == "True":
                row.setdefault(phase, arrival)
        state = (status.get("containerStatuses") or [{}])[0].get("state", {})
        if "running" in state or "terminated" in state:
            row.setdefault("started", arrival)
        if status.get("phase") in ("Succeeded", "Failed"):
            row.setdefault("finished", arrival)
            self._own_clock(row, state)

    @staticmethod
    def _own_clock(row: dict[str, float], state: dict[str, Any]) -> None:
        with contextlib.suppress(ValueError):
            told = json.loads(state.get("terminated", {}).get("message") or "{}").get("times", {})
            for phase, name in {
                "start": "broker started",
                "run": "brokers up",
                "done": "job done",
                "end": "exited",
            }.items():
                if phase in told:
                    row[name] = told[phase]


def measure(sizes: list[int], rounds: int, rows: TextIO, ours: str) -> None:
    """Take turns, write each pod's row, print the means; `ours` is the kind beside Jobs."""
    known = {"Job": (JOBS, peer), "MiniCluster": (MINICLUSTERS, minicluster), "Labelled": (JOBS, labelled)}
    kinds = {kind: known[kind] for kind in ("Job", ours)}
    found: dict[tuple[int, str], list[dict[str, float]]] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        world = stack.enter_context(cluster())
        process = stack.enter_context(operator(world, folder / "operator.log"))
        path, make = kinds[ours]
        Run(world, path, make("warm", 1)).take()
        for number, size, (kind, (path, make)) in itertools.product(range(rounds), sizes, kinds.items()):
            for attempt in itertools.count():
                run = Run(world, path, make(f"{kind.lower()}{size}x{number}-{attempt}", size))
                used, left = _cpu(world, process.pid), sandboxes(world)
                times = run.take()
                for name, value in _cpu(world, process.pid).items():
                    times[name] = (value - used[name]) / size
                if sandboxes(world) >= left + size:
                    break
                told = f"{times['finished']:.2f} s, while former pods were removed: again"
                print(size, kind, run.result, told, file=sys.stderr, flush=True)
            found.setdefault((size, kind), []).append(times)
            print(size, kind, run.result, f"{times['finished']:.2f} s", file=sys.stderr, flush=True)
            for pod, row in run.pods.items():
                at: dict[str, object] = {"size": size, "kind": kind, "round": number, "pod": pod}
                at.update((phase, round(value, 3)) for phase, value in row.items())
                rows.write(json.dumps(at) + "\n")
            rows.flush()
    _table(sizes, found, ours)


def _cpu(world: Any, operator_pid: int) -> dict[str, float]:
    """CPU seconds so far, of the processes in pods and of all components."""
    parts = {**parts_cpu_seconds(world), "operator": cpu_seconds(operator_pid)}
    return {"CPU in pods": pods_cpu_seconds(world), "CPU": sum(parts.values()), **parts}


def _table(sizes: list[int], found: dict[tuple[int, str], list[dict[str, float]]], kind_of_ours: str) -> None:
    """The phases, the CPU time for each pod, and the ratios."""
    means = {}
    for of, runs in found.items():
        means[of] = {phase: statistics.mean(run[phase] for run in runs) for phase in runs[0]}
    spent = [phase for phase in next(iter(means.values())) if phase not in _PHASES]
    for title, phases in (("seconds since the apply", _PHASES), ("CPU seconds a pod", spent)):
        print(f"{title}\n{'pods':>4} {'':12}" + "".join(f"{phase[:14]:>15}" for phase in phases))
        for (size, kind), row in sorted(means.items()):
            print(f"{size:>4} {kind:12}" + "".join(f"{row[phase]:15.3f}" for phase in phases))
    for size in sizes:
        ours, its = means[size, kind_of_ours], means[size, "Job"]
        bar = 1.3 if kind_of_ours == "Labelled" else 1.2 if size <= 8 else 1.4
        time_ratio, cpu_ratio = ours["finished"] / its["finished"], ours["CPU"] / its["CPU"]
        medians = [statistics.median(run["finished"] for run in found[size, kind]) for kind in (kind_of_ours, "Job")]
        slowest = max(run["finished"] for run in found[size, "Job"]) / medians[1] - 1
        print(
            f"{size} pods, all finished: {time_ratio:.2f} x the Job (medians {medians[0] / medians[1]:.2f}, the Job's "
            f"slowest {slowest:+.0%}; bar {bar}), with {cpu_ratio:.2f} x its CPU time"
        )


def main() -> None:
    """Arguments and the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1,4,8,16,32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--labelled", action="store_true", help="measure labelled Jobs instead of MiniClusters")
    parser.add_argument("--rows", default="kube-times.jsonl", help="where each pod's row goes, a JSON object a line")
    options = parser.parse_args()
    with open(options.rows, "w") as rows:
        ours = "Labelled" if options.labelled else "MiniCluster"
        measure([int(size) for size in options.sizes.split(",")], options.rounds, rows, ours)


if __name__ == "__main__":
    main()
