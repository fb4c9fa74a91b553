"""What the operator does for labelled Jobs, decided from what it observes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from labelled_world import ID, JobsWorld, admitted, written
from msgspec import structs
from simulated_api import CrashError

from headrace.flux_jobs.operator import objects
from headrace.k8s.objects.kinds import JOBS, SECRETS
from headrace.minicluster.operator.keys import fresh_keys

Object = dict[str, Any]


def started(options: str = "", **fields: Any) -> JobsWorld:
    """A Job whose brokers are up."""
    world = JobsWorld()
    world.create(admitted(options, **fields))
    world.settle()
    world.server.run_pods("hello")
    world.say(brokers_up=fields.get("size", 2))
    world.settle()
    return world


def plan_of(world: JobsWorld) -> Any:
    found = world.server.one("secrets", f"headrace-{ID}")
    assert found is not None
    return objects.plan_in(found)


def scale(world: JobsWorld, size: int) -> None:
    world.server._merge(JOBS, "ns", "hello", {"spec": {"parallelism": size, "completions": size}}, "")


def test_secret_and_service_are_made_once() -> None:
    world = started()
    made = [what for what in world.server.requests if what[0] in ("create", "patch") and what[1] != "events"]
    assert made == [("create", "secrets", f"headrace-{ID}"), ("create", "services", f"headrace-{ID}")]
    assert world.events() == [("BrokersUp", "2 of 2 brokers are up")]
    world.settle()
    assert len(world.events()) == 1


def test_the_end_is_told_at_the_job_by_annotation_and_event() -> None:
    world = started()
    world.server.end_lead("hello", 3, '{"exit": 3, "reason": "the job ended with exit code 3"}')
    world.settle()
    assert (world.told["exit"], world.told["reason"]) == (3, "the job ended with exit code 3")
    assert world.events()[-1] == ("Failed", "the job ended with exit code 3")


def test_few_requests_from_creation_to_end() -> None:
    world = started()
    world.server.end_lead("hello", 0, '{"exit": 0, "reason": ""}')
    world.settle()
    assert len(world.server.requests) <= 6, world.server.requests


def test_the_end_is_told_though_the_lead_is_gone_at_once() -> None:
    world = started()
    world.server.end_lead("hello", 4, '{"exit": 4, "reason": "why"}')
    world.see()
    (lead,) = [one for one in world.server.pods_of("hello") if one["status"]["phase"] == "Failed"]
    world.server.control_jobs()
    world.server.remove(lead)
    world.settle()
    assert world.told["exit"] == 4


def test_a_job_that_was_made_suspended_has_the_plan_of_the_size_that_it_is_resumed_with() -> None:
    world = JobsWorld()
    world.create(admitted(suspend=True))
    world.settle()
    assert world.server.all("pods") == world.server.all("secrets") == []
    world.server._merge(JOBS, "ns", "hello", {"spec": {"suspend": False, "parallelism": 3, "completions": 3}}, "")
    world.settle()
    assert (plan_of(world).size, plan_of(world).hosts) == (3, "hello-[0-2]")
    before = world.server.one("secrets", f"headrace-{ID}")
    for suspend in (True, False):
        world.server._merge(JOBS, "ns", "hello", {"spec": {"suspend": suspend}}, "")
        world.settle()
    assert world.server.one("secrets", f"headrace-{ID}") == before


def test_each_start_is_told() -> None:
    world = started()
    for suspend in (True, False):
        world.server._merge(JOBS, "ns", "hello", {"spec": {"suspend": suspend}}, "")
        world.links.said = None
        world.settle()
    world.server.run_pods("hello")
    world.say(brokers_up=2)
    world.settle()
    assert [reason for reason, _ in world.events()] == ["BrokersUp", "BrokersUp"]


def test_a_job_that_admission_has_not_seen_gets_a_warning_and_nothing_else() -> None:
    world = JobsWorld()
    world.create(written())
    world.settle()
    ((reason, message),) = world.events()
    assert (reason, "webhook" in message) == ("NotACluster", True)
    assert world.server.all("secrets") == world.server.all("services") == []
    world.restart()
    world.settle()
    assert len(world.events()) == 1


def test_a_scaled_job_tells_its_lead_and_its_next_pods() -> None:
    world = started("{maxSize: 4}")
    assert world.links.asked == [{"op": "resize", "size": 2}]
    world.say(resized={"": 2})
    scale(world, 3)
    world.settle()
    assert world.links.asked[-1] == {"op": "resize", "size": 3}
    assert (plan_of(world).size, plan_of(world).hosts) == (3, "hello-[0-3]")
    scale(world, 1)
    world.settle()
    assert world.links.asked[-1] == {"op": "resize", "size": 1}
    assert (plan_of(world).size, plan_of(world).quorum) == (1, "1")
    world.say(brokers_up=1, resized={"": 1}, left=("ƒA", "ƒB"))
    world.settle()
    assert ("JobsLost", "scaled to 1 pods while jobs ran on others: ƒA, ƒB") in world.events()


def test_a_lead_that_has_all_its_hosts_is_told_by_another_operator_alone() -> None:
    world = started()
    assert world.links.asked == []
    world.restart()
    world.say(brokers_up=2)
    world.settle()
    assert world.links.asked == [{"op": "resize", "size": 2}]


def test_pods_beyond_the_largest_size_are_told() -> None:
    world = started()
    scale(world, 3)
    world.settle()
    assert plan_of(world).size == 2
    reason, message = world.events()[-1]
    assert (reason, "maxSize" in message) == ("ScaledBeyond", True)


def test_an_option_that_has_become_wrong_is_told() -> None:
    world = started()
    annotations = {"flux-framework.org/headrace-options": "{run: fast}"}
    world.server._merge(JOBS, "ns", "hello", {"metadata": {"annotations": annotations}}, "")
    world.settle()
    assert world.events()[-1][0] == "Invalid"


def test_another_operator_finds_the_plan_that_is_there() -> None:
    world = started("{maxSize: 4}")
    scale(world, 3)
    world.settle()
    before = plan_of(world)
    world.restart()
    scale(world, 1)
    world.settle()
    assert (plan_of(world).hosts, plan_of(world).size) == (before.hosts, 1)


def test_another_version_of_the_operator_leaves_a_plan_as_it_is() -> None:
    world = started()
    secret = world.server.one("secrets", f"headrace-{ID}")
    assert secret is not None
    former = structs.replace(plan_of(world), attrs={"log-stderr-level": "7"})
    world.server._merge(SECRETS, "ns", f"headrace-{ID}", objects.changed_plan(former), "")
    world.restart()
    world.settle()
    assert plan_of(world) == former


def test_a_secret_of_another_job_is_not_taken() -> None:
    world = JobsWorld()
    other = admitted()
    other["metadata"]["name"] = "other"
    made = world.create(other)
    plan = objects.plan(objects.cluster_of(made, 0), service=f"headrace-{ID}", domain="cluster.local")
    world.server.add(SECRETS, "ns", objects.secret(made, fresh_keys(), plan))
    world.create(admitted())
    world.settle()
    assert world.events()[-1][0] == "NameTaken"
    assert len(world.server.all("secrets")) == 1


def a_life(world: JobsWorld) -> None:
    steps: list[Callable[[], object]] = [
        lambda: world.create(admitted("{maxSize: 3}")),
        lambda: world.server.run_pods("hello"),
        lambda: world.say(brokers_up=2),
        lambda: scale(world, 3),
        lambda: world.server.run_pods("hello"),
        lambda: scale(world, 1),
        lambda: world.server.end_lead("hello", 3, '{"exit": 3, "reason": "why"}'),
    ]
    for step in steps:
        step()
        while True:
            try:
                world.settle()
                break
            except CrashError:
                world.server.crash_at = None
                said = world.links.said
                world.restart()
                world.links.said = said


def outcome(world: JobsWorld) -> Object:
    kinds = ("secrets", "services", "jobs", "events")
    found: Object = {kind: [one["metadata"]["name"] for one in world.server.all(kind)] for kind in kinds[:3]}
    return {**found, "told": world.told, "events": sorted(set(world.events())), "plan": plan_of(world)}


@pytest.mark.parametrize("after", [False, True])
def test_an_operator_that_is_killed_at_any_write_is_followed_by_one_that_does_the_rest(after: bool) -> None:
    whole = JobsWorld()
    a_life(whole)
    wanted = outcome(whole)
    assert wanted["told"]["exit"] == 3
    writes = sum(what[0] in ("create", "patch") for what in whole.server.requests)
    assert writes > 5
    for number in range(writes):
        world = JobsWorld()
        world.server.crash_at, world.server.crash_after = number, after
        a_life(world)
        assert outcome(world) == wanted, number


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    world = started()
    world.job["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z"
    scale(world, 1)
    before = list(world.server.requests)
    world.look()
    assert world.server.requests == before
