"""How long the graph takes to load and to match: decoded jobspec to written R, by policy, size and fill.

    python bench/graph_match.py [--nodes 128,1024,16384] [--jobs 200] [--policies first,low] [--json]

Each request is matched on an empty machine, with a constraint that leaves 90 % of the nodes, and where one job has 99 %
of the nodes. A row tells the first match of a shape on a prepared scheduler (cold, the median of several schedulers)
apart from the ones that follow (warm). Where nothing fits, the refusal is timed. Last comes `resource-query` as a tool:
a command read, its jobspec's file read, matched, the answer written.

The peer is Fluxion, which does not install from a registry (recorded on two cores: one core of 128 nodes .13 ms first,
5.4 ms low and high, 4.6 ms lonode, 36 ms locality; of 1,024 nodes 1.0, 92, 88 and 78 ms; load of 1,024 nodes 1.2 s in
354 MB; `resource-query` .18 ms a match, first, 128 nodes). It has neither warm nor cold: it keeps nothing between
matches. The machine's floor is a loop of a thousand additions.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.sched.graph import Graph, Scheduler, parse_jobspec
from headrace.sched.graph.formats import jgf
from headrace.sched.graph.formats.writers import rv1_nosched
from headrace.sched.graph.policies import POLICIES

CORES, GPUS, SOCKETS = 48, 4, 2


def machine(nodes: int) -> str:
    """JGF text of a cluster of nodes with two sockets, 48 cores and 4 GPUs each."""
    vertices: list[dict[str, Any]] = []
    edges: list[dict[str, str]] = []

    def add(parent: int, kind: str, number: int, rank: int, path: str) -> tuple[int, str]:
        v = len(vertices)
        path = f"{path}/{kind}{number}"
        meta = {"type": kind, "id": number, "rank": rank, "paths": {"containment": path}}
        vertices.append({"id": str(v), "metadata": meta})
        if parent >= 0:
            edges.append({"source": str(parent), "target": str(v)})
        return v, path

    root, top = add(-1, "cluster", 0, -1, "")
    for n in range(nodes):
        node, at = add(root, "node", n, n, top)
        for s in range(SOCKETS):
            socket, under = add(node, "socket", s, n, at)
            for c in range(CORES // SOCKETS):
                add(socket, "core", s * (CORES // SOCKETS) + c, n, under)
            for g in range(GPUS // SOCKETS):
                add(socket, "gpu", s * (GPUS // SOCKETS) + g, n, under)
    return json.dumps({"graph": {"nodes": vertices, "edges": edges}})


def jobspec(resources: list[dict[str, Any]], duration: int = 3600, constraint: Any = None) -> dict[str, Any]:
    system: dict[str, Any] = {"duration": duration}
    if constraint:
        system["constraints"] = constraint
    return {"version": 1, "resources": resources, "tasks": [], "attributes": {"system": system}}


def slot(count: int, *inside: tuple[str, int]) -> dict[str, Any]:
    return {"type": "slot", "count": count, "label": "task", "with": [{"type": t, "count": n} for t, n in inside]}


def whole(count: int, duration: int = 3600, constraint: Any = None) -> dict[str, Any]:
    """So many nodes, exclusively."""
    node = {"type": "node", "count": 1, "exclusive": True}
    return jobspec([{"type": "slot", "count": count, "label": "task", "with": [node]}], duration, constraint)


def of_nodes(count: int, inside: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"type": "node", "count": count, "with": [inside]}]


PART = slot(1, ("core", 8), ("gpu", 1))
WHOLE = {"type": "slot", "count": 64, "label": "task", "with": [{"type": "node", "count": 1, "exclusive": True}]}
REQUESTS: dict[str, list[dict[str, Any]]] = {
    "one core": [slot(1, ("core", 1))],
    "one core of a node": of_nodes(1, slot(1, ("core", 1))),
    "4 nodes, 8 cores + gpu": of_nodes(4, PART),
    "4 nodes, 8 cores + gpu of one socket": of_nodes(4, {"type": "socket", "count": 1, "with": [PART]}),
    "40 cores anywhere": [slot(40, ("core", 1))],
    "1,000 cores anywhere": [slot(1000, ("core", 1))],
    "64 whole nodes": [WHOLE],
}
# Milliseconds a warm match may take, by request, up to so many nodes.
BARS = {
    "one core": ((1024, 0.05), (16384, 0.08)),
    "4 nodes, 8 cores + gpu": ((1024, 0.2),),
    "4 nodes, 8 cores + gpu of one socket": ((1024, 0.2),),
    "64 whole nodes": ((1024, 1.0),),
}
COLD_BAR = 1.0
RESERVATION_BAR = 0.5
RESOURCE_QUERY_BAR = 0.3


@dataclass
class Match:
    """One measured kind of match; times in milliseconds of processor time: a match waits for nothing."""

    nodes: int
    policy: str
    request: str
    variant: str
    cold: float
    mean: float
    median: float
    most: float
    count: int
    refused: bool = False
    bar: float | None = None

    def __str__(self) -> str:
        what = f"{self.policy}: {self.request}" + (f", {self.variant}" if self.variant else "")
        bar = f"  bar {self.bar}" if self.bar is not None else ""
        over = " MISSED" if self.bar is not None and self.median > self.bar else ""
        late = " COLD MISSED" if self.bar is not None and self.nodes <= 1024 and self.cold > COLD_BAR else ""
        return (
            f"  {what:60} cold {self.cold:7.3f}  warm mean {self.mean:7.4f}  median {self.median:7.4f}  "
            f"max {self.most:7.3f}  n {self.count:4}{' refused' if self.refused else ''}{bar}{over}{late}"
        )


def bar_of(request: str, policy: str, nodes: int) -> float | None:
    if policy in ("locality", "variation", "packed", "spread"):
        # Their own bars, of 1,024 nodes.
        return 1.0 if request.startswith("one core") else 5.0 if request.startswith("4 nodes") else None
    return next((bar for most, bar in BARS.get(request, ()) if nodes <= most), None)


def most_nodes(nodes: int) -> dict[str, Any]:
    """A constraint that leaves 90 % of the nodes."""
    return {"hostlist": [f"node[0-{nodes * 9 // 10}]"]}


def rss_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def report(label: str, times: list[float]) -> None:
    if not times:
        print(f"  {label:42} nothing fits")
        return
    ordered = sorted(times)
    mean, median, most = sum(times) / len(times), ordered[len(times) // 2], ordered[-1]
    print(f"  {label:42} mean {mean:8.4f} ms   median {median:8.4f}   max {most:8.3f}   n {len(times)}")


def matched(scheduler: Scheduler, spec: dict[str, Any], jobid: int) -> tuple[float, bool]:
    """Milliseconds of processor time from a decoded jobspec to a written R or a refusal, and whether it was one."""
    began = time.process_time()
    outcome = scheduler.allocate(jobid, parse_jobspec(spec), 0)
    if outcome.allocation is not None:
        rv1_nosched(scheduler.graph, outcome.allocation)
    return (time.process_time() - began) * 1e3, outcome.allocation is None


def prepared(graph: Graph, name: str, share: float) -> Scheduler:
    """A scheduler that knows its graph, where one job has a share of the nodes."""
    scheduler = Scheduler(graph, name)
    scheduler.prepare()
    if share:
        count = int(len(graph.nodes()) * share)
        if scheduler.allocate(0, parse_jobspec(whole(count, 0)), 0).allocation is None:
            raise RuntimeError("a job of most of an empty machine must be possible")
    return scheduler


def unevenly_used(graph: Graph, name: str) -> Scheduler:
    """A scheduler that knows its graph, where nodes have 0 to 47 cores in use, neighbours different numbers."""
    scheduler = Scheduler(graph, name)
    scheduler.prepare()
    for v in graph.nodes():
        if used := graph.id[v] * 29 % CORES:
            spec = jobspec([slot(used, ("core", 1))], 0, {"hostlist": [graph.name(v)]})
            if scheduler.allocate(-1 - v, parse_jobspec(spec), 0).allocation is None:
                raise RuntimeError("an empty node must have room")
    return scheduler


def stream(scheduler: Scheduler, spec: dict[str, Any], jobs: int) -> tuple[list[float], bool]:
    """Milliseconds of matches that follow each other, as long as they fit, and whether the first did not."""
    times: list[float] = []
    for jobid in range(1, jobs + 1):
        took, refused = matched(scheduler, spec, jobid)
        if refused and times:
            return times, False
        times.append(took)
        if refused:
            return [*times, *(matched(scheduler, spec, jobid)[0] for _ in range(min(jobs, 20)))], True
    return times, False


def reservations(scheduler: Scheduler, spec: dict[str, Any], jobs: int) -> list[float]:
    """Milliseconds of processor time of each of `jobs` reservations, one at a time."""
    times = []
    for jobid in range(100_000, 100_000 + jobs):
        began = time.process_time()
        outcome = scheduler.reserve(jobid, parse_jobspec(spec), 0)
        times.append((time.process_time() - began) * 1e3)
        if outcome.allocation is None:
            raise RuntimeError("a reservation behind a full system must be possible")
        scheduler.cancel(jobid)
    return times


def full(graph: Graph, name: str) -> Scheduler:
    """A scheduler full of 64-node jobs that end one after the other."""
    scheduler = prepared(graph, name, 0)
    jobid = 1
    while scheduler.allocate(jobid, parse_jobspec(whole(64, 3600 + jobid)), 0).allocation:
        jobid += 1
    return scheduler


def measure(graph: Graph, name: str, jobs: int) -> list[Match]:
    nodes = len(graph.nodes())
    rounds = 3 if nodes <= 1024 else 1
    rows = []
    for request, resources in REQUESTS.items():
        for variant, constraint, share in (
            ("", None, 0.0),
            ("constrained", most_nodes(nodes), 0.0),
            ("99 % full", None, 0.99),
        ):
            spec = jobspec(resources, constraint=constraint)
            runs = [stream(prepared(graph, name, share), spec, jobs) for _ in range(rounds)]
            cold = statistics.median([times[0] for times, _ in runs])
            warm = [took for times, _ in runs for took in times[1:]] or [cold]
            figures = (cold, statistics.mean(warm), statistics.median(warm), max(warm), len(warm))
            rows.append(Match(nodes, name, request, variant, *figures, runs[0][1], bar_of(request, name, nodes)))
    if name == "lonode" or POLICIES[name].by_use:
        for request in ("one core", "40 cores anywhere"):
            times = stream(unevenly_used(graph, name), jobspec(REQUESTS[request]), jobs)[0]
            warm = times[1:]
            figures = (times[0], statistics.mean(warm), statistics.median(warm), max(warm), len(warm))
            rows.append(Match(nodes, name, request, "unevenly used", *figures, False, bar_of(request, name, nodes)))
    for variant, scheduler, spec in (
        ("behind a full system", full(graph, name), whole(8)),
        ("behind a full system, constrained", full(graph, name), whole(8, constraint=most_nodes(nodes))),
        ("behind one that is 99 % full", prepared(graph, name, 0.99), whole(max(nodes // 16, 1))),
    ):
        if variant.endswith("99 % full"):
            # It ends, so that there is a moment to wait for.
            scheduler.cancel(0)
            scheduler.allocate(0, parse_jobspec(whole(int(nodes * 0.99), 3600)), 0)
        times = reservations(scheduler, spec, min(jobs, 100))
        warm = times[1:]
        figures = (times[0], statistics.mean(warm), statistics.median(warm), max(warm), len(warm))
        rows.append(Match(nodes, name, "reservation", variant, *figures, False, RESERVATION_BAR))
    return rows


def resource_query(matches: int, changing: bool) -> float:
    """Milliseconds of processor time that a match takes through `resource-query` on 128 nodes; each of another file, or
    all of the same.
    """
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        (at / "graph.json").write_text(machine(128))
        spec = json.dumps(jobspec(of_nodes(1, slot(1, ("core", 4), ("gpu", 1)))), indent=1)
        names = [f"{i if changing else 0}.yaml" for i in range(matches)]
        for name in set(names):
            # As people write it: YAML, not JSON.
            (at / name).write_text("# a job\n" + spec)
            os.utime(at / name, (1, 1))
        argv = [
            sys.executable,
            "-m",
            "headrace.sched.graph.resource_query",
            "-L",
            "graph.json",
            "-f",
            "jgf",
            "-P",
            "first",
        ]
        took = []
        for count in (1, matches):
            lines = "".join(f"match allocate {name}\n" for name in names[:count])
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(argv, input=lines.encode(), stdout=subprocess.DEVNULL, cwd=folder, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return (took[1] - took[0]) / (matches - 1) * 1e3


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    p.add_argument("--nodes", default="128,1024,16384")
    p.add_argument("--jobs", type=int, default=200, help="how many matches a row has at most")
    p.add_argument("--policies", default=",".join(POLICIES))
    p.add_argument("--json", action="store_true")
    args = p.parse_args()
    say = (lambda text: None) if args.json else print
    began = time.perf_counter()
    sum(1 for _ in range(1_000_000))
    say(f"floor: a thousand additions {(time.perf_counter() - began):.4f} ms")
    for nodes in map(int, args.nodes.split(",")):
        text = machine(nodes)
        gc.collect()
        before = rss_mb()
        began = time.perf_counter()
        graph = jgf.read(text)
        Scheduler(graph, "low").prepare()
        took = time.perf_counter() - began
        # The graph lasts as long as the process: the collector need not look at it.
        gc.freeze()
        more = rss_mb() - before
        size = len(text) / 1e6
        say(f"{nodes} nodes: {len(graph)} vertices, {size:.0f} MB of JSON, loaded in {took:.3f} s, {more:.0f} MB more")
        for name in args.policies.split(","):
            for row in measure(graph, name, args.jobs):
                print(json.dumps(asdict(row))) if args.json else print(row)
    for changing, what in ((False, "a file read before"), (True, "another file each time")):
        took = min(resource_query(500, changing) for _ in range(3))
        if args.json:
            print(json.dumps({"what": f"resource-query, {what}", "value": took, "unit": "ms", "nodes": 128}))
        else:
            bar = "" if changing else f"  bar {RESOURCE_QUERY_BAR}"
            print(f"resource-query, 128 nodes, first, {what}: {took:.3f} ms a match (Fluxion: .18 recorded){bar}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
