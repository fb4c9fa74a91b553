"""The page of the machine."""

from __future__ import annotations

from typing import Any

from headrace.service import instance
from headrace.service.pages.machine import nodes
from headrace.wire.query.resource_sets import Given, SchedulerResources
from html_pages import text_of
from waiting import until

R = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0-5", "children": {"core": "0-3", "gpu": "0"}}],
        "nodelist": ["n[0-5]"],
        "starttime": 0,
        "expiration": 0,
    },
}


def part(ranks: str, cores: str) -> dict[str, Any]:
    execution = {**R["execution"], "R_lite": [{"rank": ranks, "children": {"core": cores}}], "nodelist": ["n1", "n2"]}
    return {"version": 1, "execution": execution}


def sets(allocated: Any) -> SchedulerResources:
    return SchedulerResources(Given({"allocated": allocated}))


def test_each_node_has_a_state_and_its_jobs() -> None:
    drain = {"4": {"timestamp": 1.0, "reason": "fan"}, "2": {"timestamp": 1.0, "reason": ""}}
    status = {"R": R, "online": "0-4", "exclude": "0", "drain": drain}
    jobs = [{"id": 1, "name": "a", "userid": 0, "ranks": "1-2"}, {"id": 2, "name": "b", "userid": 0, "ranks": "1"}]
    found = nodes(instance.nodes(status, sets(part("1-2", "0-1"))), jobs)
    states = [node.state for node in found]
    assert states == ["excluded", "partly used", "draining", "free", "drained", "down"]
    assert found[1].cores == (2, 4) and found[1].gpus == (0, 1) and [job.name for job in found[1].tenants] == ["a", "b"]
    assert found[4].reason == "fan" and found[2].reason == "no reason given" and found[5].name == "n5"
    assert nodes(instance.nodes(status, sets(part("1-2", "0-3"))), [])[1].state == "full"
    assert nodes(instance.nodes({}, sets(None)), []) == []


def test_the_machine_shows_who_runs_where_and_what_is_drained(instance: Any, served: Any) -> None:
    client = served(instance)
    assert "○ 1 free" in text_of(client.get("/machine").text)
    instance.flux("submit", "--exclusive", "-N1", "--job-name=mine", "sleep", "1000")
    until(lambda: "● full" in text_of(client.get("/machine").text))
    assert "mine root" in text_of(client.get("/machine").text)
    instance.flux("resource", "drain", "0", "bad fan")
    until(lambda: "◍ draining bad fan" in text_of(client.get("/machine").text))
    assert "No node matches." in text_of(client.get("/machine?state=free&page=2").text)
