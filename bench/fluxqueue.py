"""The cluster queue beside Kueue and plain kube-scheduler on a real Kubernetes whose nodes kwok plays, and with many
held jobs. Run it as root, after `make kube-tools` and `tools/kube/kube build kueue`:

    python bench/fluxqueue.py trace --jobs 1000 --nodes 200 --rows rows.jsonl
    python bench/fluxqueue.py held --jobs 10000 --nodes 200 --rows rows.jsonl

`trace` has each of them run the same Jobs, whose pods have a node each, one after the other, each in a cluster of its
own. A job runs from when all its pods run, as one of MPI does, for the time that the trace says; then the benchmark
ends its pods as a kubelet would. Times of the trace are divided by `--speed`. kube-scheduler alone may give two such
jobs nodes of which neither has enough: then nothing goes on, and its row says so.

`held` fills the nodes, has many Jobs wait, and ends those that run one by one; then it kills the queue, ends some
more, and looks at what the next process takes until it has started another. The seconds of that have the Lease of the
process that was killed in them; CPU time has not.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import json
import os
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TextIO

from kube_world import JOBS, PODS, Watch, pss_megabytes
from kubecluster import fluxqueue, kueue, kwok
from kubecluster.cluster import Cluster
from kubecluster.errors import KubeError

from headrace.formats.spec import swf
from headrace.k8s.objects.timestamps import seconds_of
from headrace.sched.queueing.simulate_trace import synthetic

Object = dict[str, Any]

CORES = 8
BANDS = ((1, 1), (2, 4), (5, 16), (17, 1 << 30))
SYSTEMS = ("ours", "kueue", "plain")
_GROUP = "/apis/jobs.converged-computing.org/v1alpha1"
_QUEUE = f"{_GROUP}/fluxqueues/default"
_FLUXJOBS = f"{_GROUP}/namespaces/default/fluxjobs"
_LONG_PARTLY_BOUND = 30.0
_LATE = 3.0
# Seconds without a start or an end, with nothing that runs or is to come, after which a run is given up.
_STUCK = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")
_NAME = re.compile(r"job-\d{5}")
# What the audit log says of writes; Leases are the nodes' sign of life.
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "None", "resources": [{"group": "coordination.k8s.io"}]},
        {"level": "Metadata"},
    ],
}


class Given(NamedTuple):
    """A job of the trace; times are seconds of the run."""

    name: str
    width: int
    submit: float
    runs: float
    limit: float


class Ran:
    """What became of a job; times are seconds since the epoch, 0 for what has not been."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self.submitted = self.first_bound = self.all_bound = self.started = self.ended = 0.0
        self.bound: set[str] = set()
        self.running: set[str] = set()
        self.first_estimate = ""

    def partly_bound(self, now: float) -> float:
        """For how many seconds some of its pods had nodes and some had none."""
        return (self.all_bound or now) - self.first_bound if self.first_bound else 0.0


# --- the trace


def trace_of(options: argparse.Namespace) -> list[Given]:
    """The jobs of an SWF file, or made up ones. Jobs that are wider than the cluster are cut to it."""
    lines = open(options.trace) if options.trace else synthetic(options.jobs, options.seed, options.nodes)
    found: list[Given] = []
    for line in lines:
        if len(found) == options.jobs:
            break
        if not line.strip() or line.startswith(";"):
            continue
        one = swf.decode(line)
        width = min(max(one.processors, 1), options.nodes)
        if one.run > 0:
            limit = one.run if options.exact else max(one.limit, one.run)
            times = (moment / options.speed for moment in (one.submit, one.run, limit))
            found.append(Given(f"job-{len(found):05}", width, *times))
    first = min(one.submit for one in found)
    return [one._replace(submit=one.submit - first) for one in found]


def job_of(given: Given, system: str) -> Object:
    """A Job as its user creates it; for Kueue, as its webhook would make it."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": str(CORES)}}}
    metadata: Object = {"name": given.name, "annotations": {"fluxqueue/duration": f"{given.limit:.2f}s"}}
    spec: Object = {
        **{"completions": given.width, "parallelism": given.width, "completionMode": "Indexed", "backoffLimit": 0},
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    if system == "kueue":
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": kueue.QUEUE}
        spec["suspend"] = True
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


# --- the cluster


@contextlib.contextmanager
def cluster_of(nodes: int, system: str, policy: str, folder: Path) -> Iterator[Cluster]:
    """A cluster of played nodes that one of the systems schedules, with an audit log in the folder."""
    (folder / "policy.json").write_text(json.dumps(_POLICY))
    options = {
        "kube-apiserver": [f"--audit-policy-file={folder}/policy.json", f"--audit-log-path={folder}/audit.log"],
        # A machine that is slow for a while loses no played node: jobs on it would be none of the trace any more.
        "kube-controller-manager": ["--node-monitor-grace-period=10m"],
    }
    reading, writing = os.pipe()
    world = Cluster.up(f"bench-{os.getpid()}", 0, lifeline=reading, options=options)
    try:
        capacity = {"cpu": str(CORES), "memory": "64Gi", "pods": "110"}
        kwok.play(
            world, nodes, capacity=capacity, labels=lambda index: {"topology.kubernetes.io/rack": f"r{index // 16}"}
        )
        _await(lambda: bool(world.api.get("/api/v1/namespaces/default/serviceaccounts")["items"]))
        if system == "ours":
            _start_ours(world, nodes, policy)
        elif system == "kueue":
            kueue.start(world, {"cpu": str(CORES * nodes)})
        yield world
    finally:
        world.down()
        for end in (reading, writing):
            os.close(end)


def _start_ours(world: Cluster, nodes: int, policy: str) -> None:
    fluxqueue.start(world)
    change = {"spec": {"policy": policy}}
    world.api.request("PATCH", _QUEUE, change, kind="application/merge-patch+json")
    world.kubectl("label", "namespace", "default", "fluxqueue/queue=default")
    _await(lambda: world.api.get(_QUEUE).get("status", {}).get("nodes") == nodes)
    probe = job_of(Given("probe", 1, 0, 1, 1), "ours")
    _await(lambda: world.api.request("POST", f"{JOBS}?dryRun=All", probe)["spec"].get("suspend") is True)


def _await(met: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(KubeError, OSError):
            if met():
                return
        if time.monotonic() > deadline:
            raise RuntimeError("the cluster does not get ready")
        time.sleep(0.1)


def programs(world: Cluster) -> dict[str, tuple[float, float]]:
    """CPU seconds so far and peak memory (resident, MiB) by program of a cluster."""
    space = os.readlink(f"/proc/{world.box.pid}/ns/pid")
    found: dict[str, tuple[float, float]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(process / "ns/pid") != space:
                continue
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            peak = re.search(r"VmHWM:\s+(\d+)", (process / "status").read_text())
            name = "fluxqueue" if "fluxqueue" in words else Path(words[0]).name
            cpu, memory = found.get(name, (0.0, 0.0))
            mine = (int(fields[11]) + int(fields[12])) / _TICKS
            found[name] = cpu + mine, max(memory, int(peak[1]) / 1024 if peak else 0.0)
    return found


def fluxqueue_process(world: Cluster) -> int:
    """The id of the queue's process."""
    space = os.readlink(f"/proc/{world.box.pid}/ns/pid")
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if os.readlink(process / "ns/pid") == space and "python" in words[0] and "fluxqueue" in words:
                return int(process.name)
    return 0


def end_pods(world: Cluster, pods: set[str]) -> None:
    """What a kubelet says of pods whose containers have ended well."""
    for name in pods:
        path, status = f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}}
        world.api.request("PATCH", path, status, kind="application/merge-patch+json")


def submit(world: Cluster, body: Object) -> None:
    world.api.request("POST", JOBS, body)


# --- a trace


class Run:
    """One system's run of a trace."""

    def __init__(self, world: Cluster, system: str, trace: list[Given]) -> None:
        self._world, self._system = world, system
        self.jobs = {one.name: Ran(one) for one in trace}
        self.failed: Counter[str] = Counter()
        # How often a node had more than one pod at a time, of which each asks for all of it.
        self.overcommitted = 0
        self.stuck = False
        self._on: dict[str, set[str]] = {}
        self._seen: SimpleQueue[tuple[Callable[[str, Object, float], None], str, Object, float]] = SimpleQueue()

    def run(self) -> None:
        """Submit all jobs and end them in their time; returns when all have ended, or none goes on."""
        watches = [Watch(self._world, PODS, self._told(self._pod))]
        if self._system == "ours":
            watches.append(Watch(self._world, _FLUXJOBS, self._told(self._fluxjob)))
        self._began = time.time()
        self._due = [(self._began + one.given.submit, name, "submit") for name, one in self.jobs.items()]
        heapq.heapify(self._due)
        self._left, moved = len(self.jobs), time.time()
        with contextlib.ExitStack() as stack:
            for watch in watches:
                stack.enter_context(watch)
            self._pool = stack.enter_context(ThreadPoolExecutor(8))
            while self._left and not self.stuck:
                now, before = time.time(), (self._left, len(self._due))
                while self._due and self._due[0][0] <= now:
                    _, name, what = heapq.heappop(self._due)
                    self._act(self.jobs[name], what, now)
                with contextlib.suppress(Empty):
                    wait = min(self._due[0][0] - now, 1.0) if self._due else 1.0
                    seen, kind, obj, arrival = self._seen.get(timeout=max(wait, 0.0))
                    seen(kind, obj, arrival)
                if self._due or before != (self._left, len(self._due)):
                    moved = now
                self.stuck = now - moved > _STUCK

    def _told(self, seen: Callable[[str, Object, float], None]) -> Callable[[str, Object, float], None]:
        return lambda kind, obj, arrival: self._seen.put((seen, kind, obj, arrival))

    def _act(self, job: Ran, what: str, now: float) -> None:
        if what == "submit":
            job.submitted = now
            self._check(self._pool.submit(submit, self._world, job_of(job.given, self._system)))
        else:
            job.ended = now
            self._left -= 1
            self._check(self._pool.submit(end_pods, self._world, set(job.running)))

    def _check(self, done: Any) -> None:
        def told(future: Any) -> None:
            if future.exception():
                print(f"{self._system}: {future.exception()}", file=sys.stderr, flush=True)

        done.add_done_callback(told)

    def _pod(self, kind: str, pod: Object, arrival: float) -> None:
        name, phase = pod["metadata"]["name"], pod["status"].get("phase")
        job = self.jobs.get(pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name", ""))
        node = pod["spec"].get("nodeName")
        if job is None or not node:
            return
        on = self._on.setdefault(node, set())
        if kind == "DELETED" or phase in ("Succeeded", "Failed"):
            on.discard(name)
            if phase == "Failed" and kind != "DELETED":
                self.failed[pod["status"].get("reason", "")] += 1
            return
        if name not in on and name in job.running:
            # kwok was late, and has written that a pod runs which had ended by then.
            self._check(self._pool.submit(end_pods, self._world, {name}))
            return
        if name not in on:
            on.add(name)
            self.overcommitted += len(on) > 1
        job.bound.add(name)
        job.first_bound = job.first_bound or arrival
        if len(job.bound) == job.given.width and not job.all_bound:
            job.all_bound = arrival
        if phase == "Running":
            job.running.add(name)
            if len(job.running) == job.given.width and not job.started:
                job.started = arrival
                heapq.heappush(self._due, (arrival + job.given.runs, job.given.name, "end"))

    def _fluxjob(self, kind: str, fluxjob: Object, arrival: float) -> None:
        job = self.jobs.get(fluxjob["spec"].get("name", ""))
        if job and not job.first_estimate:
            job.first_estimate = (fluxjob.get("status") or {}).get("estimatedStart", "")

    # --- figures

    def rows(self, writes: dict[str, Counter[str]], nodes: int) -> Iterator[Object]:
        """A row for each job, then one for the run. `writes` counts those about a job by client."""
        for name, one in self.jobs.items():
            given, began = one.given, self._began
            times = {key: getattr(one, key) for key in ("submitted", "first_bound", "all_bound", "started", "ended")}
            row = {key: round(value - began, 3) if value else None for key, value in times.items()}
            estimate = {"first_estimate": one.first_estimate} if one.first_estimate else {}
            about = {"width": given.width, "runs": given.runs, "limit": given.limit, "writes": dict(writes[name])}
            yield {"row": "job", "system": self._system, "name": name, **about, **row, **estimate}
        yield {"row": "run", "system": self._system, **self.summary(writes, nodes)}

    def summary(self, writes: dict[str, Counter[str]], nodes: int) -> Object:
        now = time.time()
        done = [one for one in self.jobs.values() if one.ended]
        makespan = max(one.ended for one in done) - min(one.submitted for one in done) if done else 0.0
        used = sum(one.given.width * (one.ended - one.started) for one in done)
        partly = [one.partly_bound(now) for one in self.jobs.values()]
        found: Object = {
            "jobs": len(self.jobs),
            "ended": len(done),
            "stuck": self.stuck,
            "makespan": round(makespan, 1),
            "utilisation": round(used / (nodes * makespan), 4) if makespan else 0.0,
            "partly_bound_over_30s": sum(1 for one in partly if one > _LONG_PARTLY_BOUND),
            "longest_partly_bound": round(max(partly), 1),
            "overcommitted": self.overcommitted,
            "failed": dict(self.failed),
        }
        late = [one.started - seconds_of(one.first_estimate) for one in done if one.first_estimate]
        if late:
            found["with_estimate"] = len(late)
            found["over_3s_after_first_estimate"] = sum(1 for one in late if one > _LATE)
            found["latest_after_first_estimate"] = round(max(late), 1)
        for low, high in BANDS:
            waits = [one.started - one.submitted for one in done if low <= one.given.width <= high]
            found[f"wait_{_band(low, high)}"] = round(statistics.fmean(waits), 2) if waits else None
        client = {"ours": "fluxqueue", "kueue": "kueue"}.get(self._system)
        if client:
            single = [writes[name][client] for name, one in self.jobs.items() if one.given.width == 1]
            wide = [
                (writes[name][client] - statistics.fmean(single)) / (one.given.width - 1)
                for name, one in self.jobs.items()
                if one.given.width > 1 and single
            ]
            found["writes_for_one_pod"] = round(statistics.fmean(single), 2) if single else None
            found["least_writes_for_one_pod"] = min(single, default=None)
            found["writes_for_a_further_pod"] = round(statistics.fmean(wide), 2) if wide else None
        return found


def _band(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low}+" if high > 1 << 20 else f"{low}-{high}"


def audited(folder: Path) -> Iterator[tuple[str, str, str, str]]:
    """Client, verb, resource and name of each write that was carried out, from the audit log."""
    with open(folder / "audit.log") as lines:
        for line in lines:
            event = json.loads(line)
            about = event.get("objectRef") or {}
            if event.get("responseStatus", {}).get("code", 0) < 400:
                resource = "/".join(one for one in (about.get("resource", ""), about.get("subresource", "")) if one)
                yield _client(event.get("userAgent", "")), event["verb"], resource, about.get("name", "")


def _client(agent: str) -> str:
    if "aiohttp" in agent:
        return "fluxqueue"
    return "benchmark" if agent.startswith("Python-urllib") else agent.partition("/")[0]


def measure_trace(options: argparse.Namespace, rows: TextIO) -> None:
    trace = trace_of(options)
    work = sum(one.width * one.runs for one in trace)
    span = trace[-1].submit
    print(f"{len(trace)} jobs on {options.nodes} nodes, {work:.0f} node-seconds, submitted in {span:.0f} s", flush=True)
    found: list[Object] = []
    for system in options.systems.split(","):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            with cluster_of(options.nodes, system, options.policy, folder) as world:
                before, size = programs(world), (folder / "audit.log").stat().st_size
                run = Run(world, system, trace)
                run.run()
                # What follows from the last end is written, too.
                time.sleep(3)
                after = programs(world)
                by_client: Counter[tuple[str, str, str]] = Counter()
                by_job: dict[str, Counter[str]] = {one.name: Counter() for one in trace}
                for client, verb, resource, name in _since(folder, size):
                    by_client[client, verb, resource] += 1
                    about = _NAME.search(name)
                    if about and about[0] in by_job:
                        by_job[about[0]][client] += 1
                result = list(run.rows(by_job, options.nodes))
                for (client, verb, resource), count in sorted(by_client.items()):
                    about_writes = {"client": client, "verb": verb, "resource": resource, "count": count}
                    result.append({"row": "writes", "system": system, **about_writes})
                for name, (cpu, memory) in sorted(after.items()):
                    spent = round(cpu - before.get(name, (0.0, 0.0))[0], 2)
                    result.append(
                        {
                            "row": "program",
                            "system": system,
                            "program": name,
                            "cpu": spent,
                            "peak_mib": round(memory, 1),
                        }
                    )
        for row in result:
            rows.write(json.dumps(row) + "\n")
        rows.flush()
        found += result
        print(f"{system}: {next(one for one in result if one['row'] == 'run')}", flush=True)
    _print_table(found, options.systems.split(","))


def _since(folder: Path, size: int) -> Iterator[tuple[str, str, str, str]]:
    """Writes that the audit log has beyond its first `size` bytes."""
    path = folder / "audit.log"
    text = path.read_bytes()[size:]
    path.write_bytes(text)
    return audited(folder)


def _print_table(found: list[Object], systems: list[str]) -> None:
    runs = {one["system"]: one for one in found if one["row"] == "run"}
    for key in dict.fromkeys(key for one in runs.values() for key in one if key not in ("row", "system")):
        print(f"{key:28}" + "".join(f"{runs[system].get(key)!s:>12}" for system in systems))
    titles = {"writes": ("writes", "client", "count"), "CPU, s": ("program", "program", "cpu")}
    titles["peak MiB"] = ("program", "program", "peak_mib")
    for title, (row, name, value) in titles.items():
        print(title)
        sums: dict[str, Counter[str]] = {}
        for one in found:
            if one["row"] == row:
                sums.setdefault(one[name], Counter())[one["system"]] += one[value]
        for key, by in sorted(sums.items()):
            print(f"  {key:26}" + "".join(f"{by[system]:12.0f}" for system in systems))


# --- many that wait


def measure_held(options: argparse.Namespace, rows: TextIO) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with cluster_of(options.nodes, "ours", options.policy, folder) as world:
            for row in Held(world, options).rows():
                print(row, flush=True)
                rows.write(json.dumps({"row": "held", "jobs": options.jobs, "nodes": options.nodes, **row}) + "\n")


class Held:
    """A full cluster and many Jobs of one to eight pods that wait."""

    def __init__(self, world: Cluster, options: argparse.Namespace) -> None:
        self._world, self._nodes, self._count, self._events = world, options.nodes, options.jobs, options.events
        self._pool = ThreadPoolExecutor(8)

    def rows(self) -> Iterator[Object]:
        running = [Given(f"job-{index:05}", 1, 0, 0, 36_000 + 60 * index) for index in range(self._nodes)]
        self._submit(running)
        self._until(lambda: len(self._released()) == self._nodes)
        began = time.monotonic()
        numbers = range(self._nodes, self._nodes + self._count)
        self._submit([Given(f"job-{index:05}", 1 + index % 8, 0, 0, 3600 + index % 977) for index in numbers])
        self._until(lambda: self._told() >= self._nodes + self._count)
        yield {"what": "submitted and told", "seconds": round(time.monotonic() - began, 1)}
        self._until_idle()
        process = fluxqueue_process(self._world)
        yield {"what": "memory of the process, MiB", "pss": round(pss_megabytes(process), 1)}
        # What the process takes when nothing happens is no part of an event.
        started = self._cpu(process), time.monotonic()
        time.sleep(20)
        idle = (self._cpu(process) - started[0]) / (time.monotonic() - started[1])
        steps, took, cpus = self._steps(), time.monotonic(), self._cpu(process)
        for one in running[: self._events]:
            self._end(one.name)
        seconds = time.monotonic() - took
        after = self._steps()
        yield {
            "what": "one event: a job ends, others start",
            "events": self._events,
            "cpu_ms": round(1000 * (self._cpu(process) - cpus - idle * seconds) / self._events, 2),
            "step_ms": round(1000 * (after[0] - steps[0]) / max(after[1] - steps[1], 1), 2),
            "steps": after[1] - steps[1],
            "idle_cpu_share": round(idle, 4),
        }
        self._until_idle()
        # So many that the first that waits may start, whatever its width is.
        yield self._restart([one.name for one in running[self._events : self._events + 8]])

    def _restart(self, names: list[str]) -> Object:
        """Kill the queue, end jobs, and see what the next process takes until one was started in their place."""
        self._world.box.stop("fluxqueue", 9)
        for name in names:
            end_pods(self._world, self._pods_of(name))
        before = self._released()
        self._world.box.restart("fluxqueue")
        self._until(lambda: fluxqueue_process(self._world) > 0)
        process, began = fluxqueue_process(self._world), time.monotonic()
        self._until(lambda: bool(self._released() - before))
        cpu, seconds = self._cpu(process), time.monotonic() - began
        return {
            "what": "restart until the first decision",
            "cpu_s": round(cpu, 2),
            "seconds": round(seconds, 1),
            "pss": round(pss_megabytes(process), 1),
        }

    def _submit(self, jobs: list[Given]) -> None:
        list(self._pool.map(lambda one: submit(self._world, job_of(one, "ours")), jobs))

    def _end(self, name: str) -> None:
        """End a job, and wait until the queue has told that."""
        end_pods(self._world, self._pods_of(name))
        self._until(lambda: self._state(name) == "Finished")

    def _pods_of(self, name: str) -> set[str]:
        found = self._world.api.get(f"{PODS}?labelSelector=batch.kubernetes.io/job-name={name}")["items"]
        return {one["metadata"]["name"] for one in found}

    def _state(self, name: str) -> str:
        return str(self._world.api.get(f"{_FLUXJOBS}/{name}-job").get("status", {}).get("state", ""))

    def _released(self) -> set[str]:
        """The jobs that have pods."""
        found = self._world.api.get(PODS)["items"]
        return {one["metadata"]["labels"]["batch.kubernetes.io/job-name"] for one in found}

    def _told(self) -> int:
        """How many FluxJobs have a status."""
        return sum(1 for one in self._world.api.get(_FLUXJOBS)["items"] if one.get("status", {}).get("state"))

    def _until(self, met: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 600
        while not met():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the queue does not go on:\n{self._world.box.log('fluxqueue')}")
            time.sleep(0.2)

    def _until_idle(self) -> None:
        """Wait until the process has written what it had to: it takes less than a tenth of a core."""
        process = fluxqueue_process(self._world)
        while True:
            cpu = self._cpu(process)
            time.sleep(5)
            if self._cpu(process) - cpu < 0.5:
                return

    @staticmethod
    def _cpu(process: int) -> float:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def _steps(self) -> tuple[float, int]:
        """The seconds and the number of the core's steps so far, as its metrics have them."""
        page = f"http://{self._world.addresses.control_plane}:18082/metrics"
        text = urllib.request.urlopen(page, timeout=30).read().decode()
        values = {}
        for key in ("sum", "count"):
            found = re.search(rf"^headrace_fluxqueue_reconcile_seconds_{key}\S* (\S+)$", text, re.MULTILINE)
            values[key] = float(found[1]) if found else 0.0
        return values["sum"], int(values["count"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    commands = parser.add_subparsers(dest="mode", required=True)
    for mode, jobs in (("trace", 1000), ("held", 10_000)):
        one = commands.add_parser(mode)
        one.add_argument("--jobs", type=int, default=jobs)
        one.add_argument("--nodes", type=int, default=200)
        one.add_argument("--policy", default="easy", help="of the FluxQueue")
        one.add_argument("--rows", type=Path, default=Path("rows.jsonl"), help="where the raw rows are added")
    trace, held = commands.choices["trace"], commands.choices["held"]
    trace.add_argument("--systems", default=",".join(SYSTEMS), help="one after the other")
    trace.add_argument("--trace", type=Path, help="an SWF file whose processors are nodes; else jobs are made up")
    trace.add_argument("--seed", type=int, default=1)
    trace.add_argument("--speed", type=float, default=100, help="what times are divided by")
    trace.add_argument("--exact", action="store_true", help="durations are the run times")
    held.add_argument("--events", type=int, default=50, help="jobs that end one by one")
    options = parser.parse_args()
    with open(options.rows, "a") as rows:
        {"trace": measure_trace, "held": measure_held}[options.mode](options, rows)


if __name__ == "__main__":
    main()
