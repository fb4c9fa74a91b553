"""How long one scheduling event takes with many pending jobs: a job ends, its place is given away, plans are made anew.

    python bench/graph_queue.py [--nodes 1024] [--pending 10000] [--events 100]

An event is a job that ends before its time, and every call of the queue until nothing is left to do about it; a queue
leaves what takes long to later calls, so that nothing else waits for it, and the longest call is told beside. The bars
are 2 ms for EASY and 50 ms for conservative, with 10,000 pending jobs of mixed sizes. Times are of processor time.
There is no peer: Fluxion plans anew at each event, as many jobs as its queue depth says.
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

from headrace.sched.graph import Scheduler, parse_jobspec
from headrace.sched.graph.formats import jgf
from headrace.sched.queueing.queue import Queue


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


def event(queue: Queue, now: int) -> list[float]:
    """Milliseconds of each call until nothing is left to do."""
    times = [call(queue, now)]
    while queue.unfinished:
        times.append(call(queue, now))
    return times


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--nodes", type=int, default=1024)
    p.add_argument("--pending", type=int, default=10_000)
    p.add_argument("--events", type=int, default=100)
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
        slices = event(queue, 0)
        print(
            f"{name}: {args.pending} submitted in {submitted:.2f} s, planned in {sum(slices) / 1e3:.2f} s and "
            f"{len(slices)} calls of at most {max(slices):.1f} ms: "
            f"{len(queue.running)} run, {len(queue.planned)} planned"
        )
        events: list[list[float]] = []
        now = 1
        starts = 0
        for _ in range(args.events):
            ended = min(queue.running, key=lambda jobid: queue.scheduler.jobs[jobid].end)
            now = min(now + 1, queue.scheduler.jobs[ended].end - 1)
            running = len(queue.running)
            queue.finish(ended)
            events.append(event(queue, now))
            starts += len(queue.running) - running + 1
        report(f"{name}: one whole scheduling event", [sum(times) for times in events])
        report(f"{name}: its first call", [times[0] for times in events])
        print(
            f"  longest call {max(map(max, events)):.1f} ms, {sum(map(len, events)) / len(events):.1f} calls an event"
        )
        print(f"  {starts} jobs started")
    return 0


if __name__ == "__main__":
    sys.exit(main())
