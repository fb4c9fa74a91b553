"""What a match of slots of quantities costs beside one of single cores: pods on a cluster counted in units of pools.

    python bench/graph_quantities.py [--nodes 1000] [--policies lonode,first] [--pairs 300] [--json]

Four pods of 8 cpu and 16 GiB, against four slots of single cores on nodes of 64 cores; on an empty cluster, and where
99 % of the nodes are full. Timed is the processor time from a decoded jobspec to an entered allocation, in pairs in
turns; each pair gives back what it took. Bar: quantities take three times as long as cores at most.

Then a queue: one EASY event (a job ends, the next starts) while 10,000 jobs of pods wait. Bar: 5 ms.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from graph_queue import event

from headrace.sched.graph import Graph, Scheduler, parse_jobspec
from headrace.sched.queueing.queue import Queue

BAR, EVENT_BAR = 3.0, 5.0
CPU, MEMORY, PODS, CORES = 64_000, 256 * 1024, 110, 64


def cluster(nodes: int, pools: bool) -> Graph:
    """Nodes of pools, or of single cores."""
    graph = Graph()
    root = graph.add("cluster", id=0)
    for n in range(nodes):
        node = graph.add("node", root, id=n, rank=n)
        if pools:
            graph.add("cpu", node, id=0, size=CPU)
            graph.add("memory", node, id=0, size=MEMORY, unit="MiB")
            graph.add("ephemeral-storage", node, id=0, size=1024 * 1024, unit="MiB")
            graph.add("pod", node, id=0, size=PODS)
        else:
            for core in range(CORES):
                graph.add("core", node, id=core)
    return graph.finish()


def pods(count: int, cpu: int = 8000, memory: int = 16 * 1024) -> dict[str, Any]:
    needs = (("cpu", cpu), ("memory", memory), ("pod", 1))
    inside = [{"type": kind, "count": units, "exclusive": False} for kind, units in needs]
    return {"type": "slot", "count": count, "label": "pod", "with": inside}


def cores(count: int, each: int = 1) -> dict[str, Any]:
    return {"type": "slot", "count": count, "label": "task", "with": [{"type": "core", "count": each}]}


def jobspec(resources: dict[str, Any], duration: int = 3600) -> dict[str, Any]:
    return {"version": 1, "resources": [resources], "tasks": [], "attributes": {"system": {"duration": duration}}}


def filled(nodes: int, pools: bool, policy: str, share: float) -> Scheduler:
    """A scheduler where jobs of all that a node has fill a share of the nodes."""
    scheduler = Scheduler(cluster(nodes, pools), policy)
    scheduler.prepare()
    all_of_one = parse_jobspec(jobspec(pods(1, CPU, MEMORY) if pools else cores(1, CORES)))
    for jobid in range(1, int(nodes * share) + 1):
        if scheduler.allocate(jobid, all_of_one, 0).allocation is None:
            raise RuntimeError("a job of one node of an empty cluster must be possible")
    return scheduler


def matched(scheduler: Scheduler, spec: dict[str, Any]) -> float:
    """Microseconds of processor time of a match, which is given back afterwards."""
    began = time.process_time_ns()
    outcome = scheduler.allocate(1_000_000, parse_jobspec(spec), 0)
    took = (time.process_time_ns() - began) / 1e3
    if outcome.allocation is None:
        raise RuntimeError("four slots must fit")
    scheduler.cancel(1_000_000)
    return took


def pairs(nodes: int, policy: str, share: float, count: int) -> tuple[float, float]:
    """The median microseconds of slots of quantities, and of single cores."""
    schedulers = filled(nodes, True, policy, share), filled(nodes, False, policy, share)
    specs = jobspec(pods(4)), jobspec(cores(4))
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(count):
        for which in (0, 1) if i % 2 else (1, 0):
            times[which].append(matched(schedulers[which], specs[which]))
    return statistics.median(times[0][1:]), statistics.median(times[1][1:])


def shapes(rng: random.Random) -> dict[str, Any]:
    """A job of some pods of one of many kinds."""
    count = rng.choice([1, 1, 1, 2, 4, 8, 16])
    wanted = pods(count, rng.choice([500, 2000, 8000, 32000]), rng.choice([1, 4, 16, 64]) * 1024)
    return jobspec(wanted, rng.choice([600, 1200, 3600, 7200, 14400, 43200]) + rng.randint(0, 300))


def held_queue(nodes: int, policy: str, held: int) -> tuple[Queue, float]:
    """A queue on a full cluster with so many waiting jobs of pods, and the seconds to its first decisions."""
    rng = random.Random(1)
    queue = Queue(Scheduler(cluster(nodes, True), policy, ("cpu", "memory", "pod")), "easy")
    queue.scheduler.prepare()
    jobid = 0
    seconds = 0.0
    while len(queue.pending) < held:
        for _ in range(held - len(queue.pending)):
            jobid += 1
            queue.submit(jobid, parse_jobspec(shapes(rng)))
        seconds += sum(event(queue, 0)) / 1e3
    return queue, seconds


def events(queue: Queue, count: int) -> list[float]:
    """Milliseconds of processor time of whole events: the job that ends first ends before its time."""
    times = []
    now = 1
    for _ in range(count):
        ended = min(queue.running, key=lambda jobid: queue.scheduler.jobs[jobid].end)
        now = min(now + 1, queue.scheduler.jobs[ended].end - 1)
        queue.finish(ended)
        times.append(sum(event(queue, now)))
    return times


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    p.add_argument("--nodes", type=int, default=1000)
    p.add_argument("--policies", default="lonode,first")
    p.add_argument("--pairs", type=int, default=300)
    p.add_argument("--held", type=int, default=10_000)
    p.add_argument("--events", type=int, default=100)
    p.add_argument("--json", action="store_true")
    args = p.parse_args()
    # As in the processes that schedule.
    gc.set_threshold(50_000, 20, 50)
    for policy in args.policies.split(","):
        for share, fill in ((0.0, "empty"), (0.99, "99 % full")):
            quantities, single = pairs(args.nodes, policy, share, args.pairs)
            row = {"nodes": args.nodes, "policy": policy, "fill": fill, "quantities_us": quantities, "cores_us": single}
            missed = "" if quantities <= BAR * single else "  MISSED"
            print(
                json.dumps(row)
                if args.json
                else f"{policy:8} {fill:10} 4 pods {quantities:7.1f} us   4 cores {single:7.1f} us   "
                f"ratio {quantities / single:.2f}  bar {BAR}{missed}"
            )
        if args.held:
            queue, seconds = held_queue(args.nodes, policy, args.held)
            times = events(queue, args.events)
            median, most = statistics.median(times), max(times)
            row = {"nodes": args.nodes, "policy": policy, "held": args.held, "event_ms": median, "longest_ms": most}
            missed = "" if median <= EVENT_BAR else "  MISSED"
            print(
                json.dumps(row)
                if args.json
                else f"{policy:8} EASY, {args.held} held, {len(queue.running)} run: first decisions {seconds:.2f} s, "
                f"an event {median:.2f} ms (max {most:.1f})  bar {EVENT_BAR}{missed}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
