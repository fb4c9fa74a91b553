"""The files with the instance's R and hosts in each pod, also after the instance has grown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pods import Pod, Pods, pods, told

from waiting import until


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Pods]:
    with pods(tmp_path) as made:
        made.with_channel()
        yield made


def written(pod: Pod) -> dict[str, Any]:
    path = pod.mount / "config/etc/flux/system/R"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def hosts(pod: Pod) -> str:
    return (pod.mount / "config/etc/flux/system/hostlist").read_text()


def of_instance(lead: Pod) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lead.run("flux", "resource", "R").stdout)
    return found


def test_each_pod_has_the_resources_where_scripts_look_for_them(world: Pods) -> None:
    made = world.start_all(told({}, interactive=True))
    for pod in made:
        until(lambda pod=pod: written(pod), 60)  # type: ignore[misc]
    assert [written(pod) for pod in made] == [of_instance(made[0])] * 2


def test_each_pod_has_the_resources_of_hosts_that_came_later(world: Pods) -> None:
    lead, follower = world.start_all(told({}, interactive=True))
    with world.operator(lead) as operator:
        operator.ask("watch", until={"state": "running", "brokers_up": 2})
        assert operator.ask("resize", size=3, max_size=3, hosts="c-[0-2]") == {"drained": True}
    for pod in (lead, follower):
        until(lambda pod=pod: written(pod).get("execution", {}).get("nodelist") == ["c-[0-2]"], 60)  # type: ignore[misc]
    assert written(lead) == written(follower) == of_instance(lead)
    for pod in (lead, follower):
        until(lambda pod=pod: hosts(pod) == "c-[0-2]\n", 60)  # type: ignore[misc]
