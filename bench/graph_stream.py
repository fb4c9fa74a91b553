"""What a stream of equal one-core jobs costs a queue and its graph, per job: one ends, the next starts.

    python bench/graph_stream.py [--nodes 4] [--cores 16] [--jobs 6000]

A scheduler's own messages come on top. Jobs end one by one, or sixteen between two calls of the queue. The best of
three rounds is shown; the machine's floor is a loop of a thousand additions.
"""

from __future__ import annotations

import argparse
import sys
import time

from headrace.sched.graph import Scheduler, parse_jobspec
from headrace.sched.queueing.queue import Queue, Started
from headrace.sched.queueing.simulate_machine import uniform

ONE_CORE = {
    "version": 1,
    "resources": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}],
    "tasks": [],
    "attributes": {"system": {}},
}
# Jobs without a limit, as a live instance enters them.
LENGTH = 10 * 365 * 24 * 3600
# Calls of the queue in a second.
CALLS = 20


def stream(queue: Queue, jobs: int, batch: int) -> float:
    """Microseconds of processor time a job, from its start to its end."""
    request = parse_jobspec(ONE_CORE).lasting(LENGTH)
    queue.scheduler.prepare()
    for jobid in range(jobs):
        queue.submit(jobid, request)
    running: list[int] = []
    ended = calls = 0
    began = time.process_time()
    while ended < jobs:
        more = True
        while more:
            running += [d.jobid for d in queue.schedule(calls // CALLS) if isinstance(d, Started)]
            more = queue.unfinished
        for jobid in running[:batch]:
            queue.finish(jobid)
        ended += len(running[:batch])
        del running[:batch]
        calls += 1
    return (time.process_time() - began) / jobs * 1e6


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    p.add_argument("--nodes", type=int, default=4)
    p.add_argument("--cores", type=int, default=16)
    p.add_argument("--jobs", type=int, default=6000)
    p.add_argument("--queue-policies", default="fcfs,easy")
    p.add_argument("--match-policies", default="first,lonode,low")
    args = p.parse_args()
    began = time.perf_counter()
    sum(1 for _ in range(1_000_000))
    print(f"floor: a thousand additions {(time.perf_counter() - began) * 1e3:.1f} us")
    for policy in args.queue_policies.split(","):
        for match in args.match_policies.split(","):
            for batch in (1, 16):
                graph = uniform(args.nodes, args.cores)
                rounds = [stream(Queue(Scheduler(graph, match), policy), args.jobs, batch) for _ in range(3)]
                print(f"{policy}, {match}, {batch} end between calls: {min(rounds):.1f} us a job")
    return 0


if __name__ == "__main__":
    sys.exit(main())
