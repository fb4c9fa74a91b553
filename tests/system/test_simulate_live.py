"""The same trace through the simulator and through an instance: jobs start in the same order."""

from __future__ import annotations

import importlib.util
import json
import sys

import lockstep
import pytest
from instance import start

_GRAPH = "headrace.modules.sched_graph"
# What is done first in an instance, and the shapes of jobs: sched-simple places them on other cores than the graph
# does, so it is asked for single cores, of which it matters only how many are free.
SCHEDULERS = {
    "sched-simple": ("true", "cores"),
    "sched-graph": (
        "flux module remove sched-simple && flux module load sched-graph queue-policy=fcfs match-policy=first",
        "cores,wide,nodes",
    ),
}


@pytest.mark.parametrize(
    "scheduler",
    [
        "sched-simple",
        pytest.param(
            "sched-graph",
            marks=pytest.mark.skipif(importlib.util.find_spec(_GRAPH) is None, reason="there is no sched-graph yet"),
        ),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_jobs_start_in_the_order_that_was_simulated(scheduler: str, seed: int) -> None:
    prepare, shapes = SCHEDULERS[scheduler]
    done = start("--test-size=4", f"{prepare} && {sys.executable} {lockstep.__file__} {seed} 30 {shapes}")
    assert done.rc == 0, done.err
    orders = json.loads(done.out)
    assert orders["live"] == orders["simulated"], f"seed {seed}"
    # Of no worth if jobs merely started as they came.
    assert orders["simulated"] != sorted(orders["simulated"])
    assert not done.left
