"""What a lead tells of its instance, put together from what the broker says."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.minicluster.pod.instance import Instance, demand


@pytest.mark.parametrize(
    ("pending", "busy", "cores", "nodes"),
    [
        ([], 0, 4, 0),
        ([], 3, 4, 3),
        ([{"nnodes": 2, "ncores": 8}], 1, 4, 3),
        ([{"ncores": 5}], 0, 4, 2),
        ([{"ntasks": 3}, {"ncores": 1}], 0, 1, 4),
        ([{}], 0, 0, 1),
    ],
)
def test_demand_is_what_is_in_use_and_what_waiting_jobs_ask_for(
    pending: list[dict[str, Any]], busy: int, cores: int, nodes: int
) -> None:
    assert demand(pending, busy, cores) == nodes


def test_an_instance_is_idle_since_its_last_job_ended() -> None:
    times = iter([10.0, 20.0])
    changes: list[None] = []
    instance = Instance("local:///nowhere", lambda: changes.append(None), lambda: next(times))
    assert instance.snapshot.idle_since == 10.0
    instance._take_stats({"job_states": {"run": 1, "inactive": 4}})
    assert (instance.snapshot.idle_since, instance.snapshot.jobs["inactive"]) == (None, 4)
    instance._take_stats({"job_states": {"run": 0, "inactive": 5}})
    assert instance.snapshot.idle_since == 20.0
    instance.set_state("finished")
    instance.set_state("finished")
    assert (instance.snapshot.state, instance.snapshot.brokers_up, len(changes)) == ("finished", 0, 1)
