"""How long one scheduling event takes with many pending jobs: a job ends, its place is given away, plans are made anew.

    python bench/graph_queue.py [--nodes 1024] [--pending 10000] [--events 200]

The bars are 2 ms for EASY and 50 ms for conservative, with 10,000 pending jobs of mixed sizes. A call that leaves some
of its work to later ones is one event; how many calls it takes until nothing is left is said as well.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from graph_match import jobspec, machine, report, slot

from headrace.graph import Scheduler, jgf, parse_jobspec
from headrace.queueing import Queue


def mixed(rng: random.Random) -> Any:
    """A job of a busy site: mostly a few cores, some nodes, now and then many."""
    duration = rng.choice([600, 1200, 3600, 7200, 14400, 43200]) + rng.randint(0, 300)
    kind = rng.random()
    if kind < 0.6:
        return jobspec([slot(rng.choice([1, 1, 2]), ("core", rng.choice([1, 2, 4, 8, 16])))], duration)
    if kind < 0.7:
        return jobspec([slot(1, ("core", 8), ("gpu", 1))], duration)
    count = rng.choice([1, 2, 4, 8, 16, 32, 64, 128])
    return jobspec([{"type": "node", "count": count, "exclusive": True}], duration)


def call(queue: Queue, now: int) -> float:
    """Milliseconds of processor time of one call, which waits for nothing."""
    began = time.process_time()
    queue.schedule(now)
    return (time.process_time() - began) * 1e3


def rest(queue: Queue, now: int, calls: int) -> list[float]:
    """Milliseconds of each of the calls, `calls` at most, that finish what one has left."""
    times = []
    while queue.unfinished and len(times) < calls:
        times.append(call(queue, now))
    return times


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--nodes", type=int, default=1024)
    p.add_argument("--pending", type=int, default=10_000)
    p.add_argument("--events", type=int, default=200)
    p.add_argument("--calls", type=int, default=40, help="how many more calls an event may take")
    p.add_argument("--policies", default="fcfs,easy,hybrid,conservative")
    args = p.parse_args()
    graph = jgf.read(machine(args.nodes))
    gc.collect()
    gc.freeze()
    # As in the processes that schedule.
    gc.set_threshold(50_000, 20, 50)
    for name in args.policies.split(","):
        rng = random.Random(1)
        queue = Queue(Scheduler(graph, "lonode"), name)
        queue.scheduler.prepare()
        began = time.perf_counter()
        for jobid in range(args.pending):
            queue.submit(jobid, parse_jobspec(mixed(rng)))
        submitted = time.perf_counter() - began
        slices = [call(queue, 0)]
        while queue.unfinished:
            slices.append(call(queue, 0))
        print(
            f"{name}: {args.pending} submitted in {submitted:.2f} s, planned in {sum(slices) / 1e3:.2f} s and "
            f"{len(slices)} calls of at most {max(slices):.1f} ms: "
            f"{len(queue.running)} run, {len(queue.planned)} planned"
        )
        times: list[float] = []
        later: list[float] = []
        now = 1
        starts = 0
        for _ in range(args.events):
            ended = min(queue.running, key=lambda jobid: queue.scheduler.jobs[jobid].end)
            now = min(now + 1, queue.scheduler.jobs[ended].end - 1)
            running = len(queue.running)
            queue.finish(ended)
            times.append(call(queue, now))
            later += rest(queue, now, args.calls)
            starts += len(queue.running) - running + 1
        report(f"{name}: one scheduling event", times)
        if later:
            report(f"{name}: what it left to later calls", later)
            print(f"  {(sum(times) + sum(later)) / len(times):.1f} ms an event with all that it left")
        print(f"  {starts} jobs started")
    return 0


if __name__ == "__main__":
    sys.exit(main())
