"""Pods as processes of namespaces: a lead and its followers run a job and end with the job's own status."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pods import Pods, pods, told


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Pods]:
    with pods(tmp_path) as made:
        yield made


def test_two_pods_say_hello_and_end(world: Pods) -> None:
    lead, follower = world.start_all(told({"command": "hostname"}, tasks=0))
    assert (lead.wait(), follower.wait()) == (0, 0), (lead.output(), follower.output())
    assert sorted(lead.output()[0].split()) == ["c-0", "c-1"]
    message = lead.message()
    assert (message["exit"], message["reason"]) == (0, "")
    assert list(message["times"]) == ["start", "brokers", "run", "done", "end"]
