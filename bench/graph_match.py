"""How long the graph takes to load and to match: decoded jobspec to written R, by policy, size and fill.

    python bench/graph_match.py [--nodes 128,1024,16384] [--jobs 1000]

The peer is Fluxion (recorded on two cores: one core of 128 nodes .13 ms first, 5.4 ms low and high, 4.6 ms lonode; of
1,024 nodes 1.0, 92, 88 and 78 ms; load of 1,024 nodes 1.2 s in 354 MB). The machine's floor is a loop of a thousand
additions.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
import time
from typing import Any

from headrace.graph import Graph, Scheduler, jgf, parse_jobspec
from headrace.graph.writers import rv1_nosched

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


ONE_CORE = jobspec([slot(1, ("core", 1))])
NODE_CORE = jobspec([{"type": "node", "count": 1, "with": [slot(1, ("core", 1))]}])
FOUR_NODES = jobspec([{"type": "node", "count": 4, "with": [slot(1, ("core", 8), ("gpu", 1))]}])
MOST_NODES = {"hostlist": ["node[0-921]"]}
FOUR_CONSTRAINED = jobspec(
    [{"type": "node", "count": 4, "with": [slot(1, ("core", 8), ("gpu", 1))]}], constraint=MOST_NODES
)
CONSTRAINED = jobspec([slot(1, ("core", 1))], constraint={"hostlist": ["node[0-99]"]})


def whole(count: int, duration: int = 3600) -> dict[str, Any]:
    """So many nodes, exclusively."""
    node = {"type": "node", "count": 1, "exclusive": True}
    return jobspec([{"type": "slot", "count": count, "label": "task", "with": [node]}], duration)


def rss_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def timed(scheduler: Scheduler, spec: dict[str, Any], jobs: int, first: int) -> list[float]:
    """Milliseconds of each of up to `jobs` allocations."""
    times = []
    for jobid in range(first, first + jobs):
        began = time.perf_counter()
        outcome = scheduler.allocate(jobid, parse_jobspec(spec), 0)
        if outcome.allocation is None:
            break
        rv1_nosched(scheduler.graph, outcome.allocation)
        times.append((time.perf_counter() - began) * 1e3)
    return times


def report(label: str, times: list[float]) -> None:
    if not times:
        print(f"  {label:42} nothing fits")
        return
    ordered = sorted(times)
    mean, median, most = sum(times) / len(times), ordered[len(times) // 2], ordered[-1]
    print(f"  {label:42} mean {mean:8.4f} ms   median {median:8.4f}   max {most:8.3f}   n {len(times)}")


def fill(scheduler: Scheduler, share: float) -> int:
    """Take a share of the nodes whole, and return the next free job id."""
    graph = scheduler.graph
    nodes = [v for v, kind in enumerate(graph.type) if kind == "node"]
    count = int(len(nodes) * share)
    spec = jobspec([{"type": "slot", "count": count, "label": "t", "with": [{"type": "node", "count": 1}]}], 0)
    scheduler.allocate(1, parse_jobspec(spec), 0)
    return 2


def reservations(scheduler: Scheduler, spec: dict[str, Any], jobs: int) -> list[float]:
    """Milliseconds of each of `jobs` reservations behind a system full of 64-node jobs that end one after the other."""
    jobid = 1
    while scheduler.allocate(jobid, parse_jobspec(whole(64, 3600 + jobid)), 0).allocation:
        jobid += 1
    times = []
    for _ in range(jobs):
        jobid += 1
        began = time.perf_counter()
        outcome = scheduler.reserve(jobid, parse_jobspec(spec), 0)
        times.append((time.perf_counter() - began) * 1e3)
        if outcome.allocation is None:
            raise RuntimeError("a reservation behind a full system must be possible")
        scheduler.cancel(jobid)
    return times


def measure(graph: Graph, name: str, nodes: int, jobs: int) -> None:
    cases: list[tuple[str, dict[str, Any], float]] = [
        ("one core", ONE_CORE, 0),
        ("one core of a node", NODE_CORE, 0),
        ("one core, constrained", CONSTRAINED, 0),
        ("4 nodes, 8 cores + gpu", FOUR_NODES, 0),
        ("4 nodes, 8 cores + gpu, constrained", FOUR_CONSTRAINED, 0),
        ("40 cores anywhere", jobspec([slot(40, ("core", 1))]), 0),
        ("40 cores anywhere, constrained", jobspec([slot(40, ("core", 1))], constraint=MOST_NODES), 0),
        ("40 cores anywhere, 99 % full", jobspec([slot(40, ("core", 1))]), 0.99),
        ("1,000 cores anywhere", jobspec([slot(1000, ("core", 1))]), 0),
        ("64 whole nodes", whole(64), 0),
        ("one core, 99 % full", ONE_CORE, 0.99),
        ("4 nodes, 8 cores + gpu, 99 % full", FOUR_NODES, 0.99),
    ]
    for label, spec, share in cases:
        scheduler = Scheduler(graph, name)
        scheduler.prepare()
        first = fill(scheduler, share) if share else 1
        # The first of a shape weighs all nodes for it; a queue's jobs come in few shapes.
        warm = scheduler.allocate(first, parse_jobspec(spec), 0)
        if warm.allocation:
            scheduler.cancel(first)
        report(f"{name}: {label}", timed(scheduler, spec, jobs, first))
    report(f"{name}: reservation behind a full system", reservations(Scheduler(graph, name), whole(8), min(jobs, 200)))


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    p.add_argument("--nodes", default="128,1024,16384")
    p.add_argument("--jobs", type=int, default=1000)
    p.add_argument("--policies", default="first,low,high,lonode,hinode,lonodex")
    args = p.parse_args()
    began = time.perf_counter()
    sum(1 for _ in range(1_000_000))
    print(f"floor: a thousand additions {(time.perf_counter() - began):.4f} ms")
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
        print(
            f"{nodes} nodes: {len(graph)} vertices, {size:.0f} MB of JSON, loaded in {took:.3f} s, {more:.0f} MB more"
        )
        for name in args.policies.split(","):
            measure(graph, name, nodes, args.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
