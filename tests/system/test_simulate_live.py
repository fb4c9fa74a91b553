"""The same trace through the simulator and through an instance: jobs start in the same order."""

from __future__ import annotations

import json
import sys

import lockstep
import pytest
from instance import start

# What is done first in an instance, and the shapes of jobs: sched-simple places them on other cores than the graph
# does, so it is asked for single cores, of which it matters only how many are free.
_GRAPH = "flux module remove sched-graph && flux module load sched-graph match-policy=first queue-policy="
SCHEDULERS = {"simple": ("true ", "cores"), "graph": (_GRAPH, "cores,wide,nodes")}


@pytest.mark.parametrize(
    ("scheduler", "policy", "seed"),
    [
        ("simple", "fcfs", 1),
        ("simple", "fcfs", 2),
        ("graph", "fcfs", 3),
        ("graph", "easy", 4),
        ("graph", "easy", 5),
        ("graph", "hybrid", 7),
        ("graph", "hybrid", 10),
        ("graph", "conservative", 8),
        # Its first trace is one of those in which the hours count.
        ("graph", "conservative", 6),
    ],
)
def test_jobs_start_in_the_order_that_was_simulated(scheduler: str, policy: str, seed: int) -> None:
    prepare, shapes = SCHEDULERS[scheduler]
    driver = f"{sys.executable} {lockstep.__file__} {seed} 30 {policy} {shapes}"
    if policy == "hybrid":
        # Fewer than wait, or it would be conservative.
        policy, driver = f"{policy} policy-params=reservation-depth=4", f"{driver} 4"
    done = start("--test-size=4", f"-Ssched.module={scheduler}", f"{prepare}{policy} && {driver}")
    assert done.rc == 0, done.err
    orders = json.loads(done.out)
    assert orders["live"] == orders["simulated"], f"seed {seed}"
    # Of no worth if jobs merely started as they came.
    assert orders["simulated"] != sorted(orders["simulated"])
    assert (orders["backfilled"] > 0) == (policy != "fcfs")
    assert not done.left
