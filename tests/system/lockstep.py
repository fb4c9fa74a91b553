"""Drives a live instance through a trace in step with the simulator, without a clock.

Runs inside the instance: `python lockstep.py SEED COUNT POLICY [RESERVATIONS]`. Jobs are simulated ones that an
operator starts and ends (`exec.test.override`), and the operator is this program: it goes from event to event of the
simulated time, ends and submits what is due, and waits until the instance has started what the simulator says has
started by then.
Prints JSON: the simulator's order of starts, and the instance's.

Simulated hours pass in seconds here, and backfilling compares times. So limits are random and of months, against which
neither the simulated hours nor the real seconds count, and jobs end long before them. Promises add limits up, so that
one trace in thirty has two moments so close that the hours do count: where the simulator itself decides otherwise when
its hours are taken for seconds, another trace is drawn.
"""

from __future__ import annotations

import errno
import json
import random
import subprocess
import sys
import time

from headrace.formats.spec import jobid, jobspec_build
from headrace.sched.graph import Graph, Scheduler, parse_jobspec
from headrace.sched.queueing.queue import Queue, Started
from headrace.sched.queueing.simulate import Job, Simulation, simulate
from headrace.sched.queueing.simulate_machine import read
from headrace.wire.client.handle import Handle

# Seconds to wait for a start that does not come.
PATIENCE = 180.0

SHORTEST, LONGEST = 10**6, 3 * 10**7


class Wanted:
    """A job of the trace: the options it is submitted with, and what the simulator is given."""

    def __init__(self, rng: random.Random, graph: Graph) -> None:
        have = graph.totals[graph.root]
        per_node = have["core"] // have["node"]
        kind = rng.choice(("cores", "wide", "nodes"))
        if kind == "cores":
            shape = {"num_tasks": rng.randint(1, have["core"])}
        elif kind == "wide":
            shape = {"num_tasks": rng.randint(1, have["node"]), "cores_per_task": rng.randint(1, per_node)}
        else:
            count = rng.randint(1, have["node"])
            shape = {"num_tasks": count, "num_nodes": count, "exclusive": True}
        names = {"num_tasks": "-n", "cores_per_task": "-c", "num_nodes": "-N"}
        self.options = [f"{names[key]}{value}" for key, value in shape.items() if key in names]
        self.options += ["--exclusive"] if "exclusive" in shape else []
        self.limit = rng.randrange(SHORTEST, LONGEST)
        request = parse_jobspec(jobspec_build.from_command(["true"], duration=self.limit, **shape))
        self.job = Job(0, rng.randrange(2000), rng.randrange(200, 2000), request, rng.choice([10, 16, 16, 30]))

    def submit(self) -> int:
        argv = ["flux", "submit", *self.options, f"--urgency={self.job.urgency}", f"--time-limit={self.limit}s"]
        argv += ["--setattr=exec.test.override=1", "true"]
        return jobid.parse(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip())


class Live:
    """The instance: ids of its jobs, and their starts in the order of its journal."""

    def __init__(self) -> None:
        self.handle = Handle()
        self.journal = self.handle.stream("job-manager.events-journal", {"full": False})
        self.numbers: dict[int, int] = {}
        self.starts: list[int] = []
        self.seen: set[tuple[int, str]] = set()

    def submit(self, wanted: Wanted) -> None:
        self.numbers[wanted.submit()] = wanted.job.id

    def end(self, number: int) -> None:
        id = next(id for id, known in self.numbers.items() if known == number)
        self.override(id, "finish")
        self.until(lambda: (id, "free") in self.seen, f"end of job {number}")

    def settle(self) -> None:
        """Wait until the graph scheduler has drawn all its conclusions: it makes passes until nothing is left to do."""
        made = -1
        while True:
            try:
                passes = self.handle.rpc("sched-graph.stats-get").get(PATIENCE)["passes"]
            except OSError:
                return
            if passes == made:
                return
            made = passes

    def override(self, id: int, event: str) -> None:
        """Start or finish a job; the exec service may be about to hear of it."""
        limit = time.monotonic() + PATIENCE
        while True:
            try:
                self.handle.rpc("job-exec.override", {"jobid": id, "event": event}).get(PATIENCE)
                return
            except OSError as exc:
                if exc.errno != errno.ENOENT or time.monotonic() > limit:
                    raise
            time.sleep(0.01)

    def until(self, done, what: str) -> None:
        """Follow the journal until something is so. Raises SystemExit saying what did not come."""
        limit = time.monotonic() + PATIENCE
        while not done():
            try:
                answer = self.journal.get(max(0.0, limit - time.monotonic()))
            except TimeoutError:
                raise SystemExit(f"the instance did not come to: {what}; started so far: {self.starts}") from None
            for event in answer["events"]:
                self.seen.add((answer["id"], event["name"]))
                if event["name"] == "alloc":
                    self.override(answer["id"], "start")
                    self.starts.append(self.numbers[answer["id"]])


def trace(rng: random.Random, count: int, graph: Graph) -> list[Wanted]:
    """Jobs numbered in the order of their arrival."""
    jobs = sorted((Wanted(rng, graph) for _ in range(count)), key=lambda wanted: wanted.job.submit)
    for number, wanted in enumerate(jobs):
        wanted.job = wanted.job._replace(id=number)
    return jobs


def events(jobs: list[Wanted], expected: Simulation) -> list[tuple[int, str, int]]:
    """Submissions and ends: (when, which, job's number), earliest first."""
    found = [(wanted.job.submit, "submit", wanted.job.id) for wanted in jobs]
    return sorted(found + [(run.end, "end", run.job.id) for run in expected.runs])


def in_seconds(jobs: list[Wanted], expected: Simulation, queue: Queue) -> list[int]:
    """The order of starts if what is to happen in simulated hours happens within seconds; it may stop halfway."""
    starts: list[int] = []
    by_number = {wanted.job.id: wanted.job for wanted in jobs}
    for second, (_, what, number) in enumerate(events(jobs, expected)):
        if what == "submit":
            queue.submit(number, by_number[number].request, by_number[number].urgency)
        elif number in queue.running:
            queue.finish(number)
        else:
            return starts
        more = True
        while more:
            starts += [decision.jobid for decision in queue.schedule(second) if isinstance(decision, Started)]
            more = queue.unfinished
    return starts


def follow(jobs: list[Wanted], expected: Simulation) -> list[int]:
    """Take the instance through the simulated events; the order in which it started the jobs."""
    live = Live()
    by_number = {wanted.job.id: wanted for wanted in jobs}
    for at, what, number in events(jobs, expected):
        if what == "submit":
            live.submit(by_number[number])
        else:
            live.end(number)
        due = {run.job.id for run in expected.runs if run.start <= at}
        live.settle()
        live.until(lambda due=due: due <= set(live.starts), f"starts of {sorted(due - set(live.starts))} at {at}")
    return live.starts


def main(seed: int, count: int, policy: str, reservations: int | None = None) -> None:
    r = subprocess.run(["flux", "kvs", "get", "resource.R"], check=True, capture_output=True).stdout
    graph = read(r)
    rng = random.Random(seed)
    while True:
        jobs = trace(rng, count, graph)
        queue, other = (Queue(Scheduler(graph, "first"), policy, reservations=reservations) for _ in range(2))
        expected = simulate([wanted.job for wanted in jobs], queue)
        assert not expected.never
        # The instance hears of one event after another: none may share its moment with another.
        if len({at for at, _, _ in events(jobs, expected)}) < 2 * count:
            continue
        if in_seconds(jobs, expected, other) == [run.job.id for run in expected.runs]:
            break
    begun = follow(jobs, expected)
    backfilled = sum(run.backfilled for run in expected.runs)
    print(json.dumps({"simulated": [run.job.id for run in expected.runs], "live": begun, "backfilled": backfilled}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:]))
