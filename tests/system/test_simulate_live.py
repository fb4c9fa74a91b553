"""The same trace through the simulator and through an instance: jobs start in the same order."""

from __future__ import annotations

import json
import sys

import lockstep
import pytest
from instance import start

_LOAD = "flux module remove sched-graph && flux module load sched-graph match-policy=first queue-policy="


@pytest.mark.parametrize(
    ("policy", "seed"),
    [
        ("fcfs", 3),
        ("easy", 4),
        ("hybrid", 7),
        # Its first trace is one of those in which the hours count.
        ("conservative", 6),
    ],
)
def test_jobs_start_in_the_order_that_was_simulated(policy: str, seed: int) -> None:
    driver = f"{sys.executable} {lockstep.__file__} {seed} 30 {policy}"
    if policy == "hybrid":
        # Fewer than wait, or it would be conservative.
        policy, driver = f"{policy} policy-params=reservation-depth=4", f"{driver} 4"
    done = start("--test-size=4", f"{_LOAD}{policy} && {driver}")
    assert done.rc == 0, done.err
    orders = json.loads(done.out)
    assert orders["live"] == orders["simulated"], f"seed {seed}"
    # Of no worth if jobs merely started as they came.
    assert orders["simulated"] != sorted(orders["simulated"])
    assert (orders["backfilled"] > 0) == (policy != "fcfs")
    assert not done.left
