"""The life of MiniClusters, looked at step by step on a simulated API server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from operator_world import World, minicluster
from simulated_api import NOW, TIME

from headrace.kube.api import CONFIG_MAPS, JOBS, LEASES, SERVICES, ApiError


def running(**spec: Any) -> World:
    """A MiniCluster whose brokers are up."""
    world = World()
    world.apply(minicluster(**spec))
    world.settle()
    world.server.run_pods("hello")
    world.settle()
    assert world.status["phase"] == "Running"
    return world


def condition(world: World, kind: str) -> str:
    return next((one["status"] for one in world.status["conditions"] if one["type"] == kind), "absent")


def test_objects_are_made_once_the_job_last() -> None:
    world = World()
    world.apply(minicluster())
    world.settle()
    made = [plural for verb, plural, _ in world.server.requests if verb == "create" and plural != "events"]
    assert made == ["secrets", "configmaps", "services", "jobs"]
    assert world.status["phase"] == "Pending"
    assert world.status["ready"] == "0/2"
    assert condition(world, "JobRequested") == "True"


def test_a_run_from_start_to_end() -> None:
    world = running()
    assert world.status["ready"] == "2/2"
    assert world.status["brokersUp"] == 2
    assert condition(world, "JobMiniClusterReady") == "True"
    world.server.end_lead("hello", 0)
    world.settle()
    assert world.status["phase"] == "Finished"
    assert world.status["exitCode"] == 0
    assert world.status["times"]["finished"] == TIME
    assert condition(world, "JobFinished") == "True"
    assert world.events() == sorted(["ViewReplaced", "Running", "Finished"], key=world.events().index)


def test_no_more_than_25_requests_from_create_to_finish() -> None:
    world = running(size=8)
    world.server.end_lead("hello", 0)
    world.settle()
    assert len(world.server.requests) <= 25


def test_a_look_at_what_has_settled_makes_no_request() -> None:
    world = running()
    before = len(world.server.requests)
    for _ in range(3):
        world.now += 100
        world.look()
    assert len(world.server.requests) == before


def test_the_exit_code_and_reason_are_the_jobs_own() -> None:
    world = running()
    world.server.end_lead("hello", 3, json.dumps({"exit": 3, "reason": "task 0 ended with status 3"}))
    world.settle()
    assert world.status["phase"] == "Failed"
    assert world.status["exitCode"] == 3
    assert world.status["reason"] == "the job ended with status 3: task 0 ended with status 3"
    assert condition(world, "Failed") == "True"


def test_ignore_failure_finishes_and_still_tells_the_code() -> None:
    world = running(ignoreFailure=True)
    world.server.end_lead("hello", 0, json.dumps({"exit": 3, "reason": ""}))
    world.settle()
    assert (world.status["phase"], world.status["exitCode"]) == ("Finished", 3)
    assert "ignoreFailure" in world.status["reason"]


def test_the_exit_code_outlives_the_pods() -> None:
    world = running()
    world.server.end_lead("hello", 5)
    world.settle()
    for pod in world.server.pods_of("hello"):
        world.server.remove(pod)
    world.restart()
    world.settle()
    assert (world.status["phase"], world.status["exitCode"]) == ("Failed", 5)


def test_rules_broken_are_told_and_nothing_is_made() -> None:
    world = World()
    world.apply(minicluster(size=0))
    world.settle()
    assert world.status["phase"] == "Invalid"
    assert world.status["reason"] == "spec.size: must be 1 or more, not 0"
    assert world.names("jobs") == []
    world.edit(size=2)
    world.settle()
    assert world.status["phase"] == "Pending"
    assert condition(world, "Invalid") == "False"
    assert world.names("jobs") == ["hello"]


def test_an_invalid_change_of_a_live_one_leaves_it_running() -> None:
    world = running(maxSize=4)
    world.edit(size=9)
    world.settle()
    assert world.status["phase"] == "Running"
    assert condition(world, "Invalid") == "True"
    job = world.server.one("jobs", "hello")
    assert job is not None and job["spec"]["parallelism"] == 2


@pytest.mark.parametrize("kind", [CONFIG_MAPS, SERVICES, JOBS], ids=lambda kind: str(kind.kind))
def test_what_has_our_name_and_is_not_ours_is_left_alone(kind: Any) -> None:
    world = World()
    name = "hello-entrypoint" if kind is CONFIG_MAPS else "hello"
    foreign = world.server.add(kind, "ns", {"metadata": {"name": name}, "spec": {"parallelism": 7}})
    version = foreign["metadata"]["resourceVersion"]
    world.apply(minicluster())
    world.look()
    world.look()
    assert world.status["phase"] == "Pending"
    assert world.status["reason"] == f"{kind.kind}/{name} exists and is not this MiniCluster's"
    assert condition(world, "Foreign") == "True"
    assert foreign["metadata"]["resourceVersion"] == version
    world.server.remove(foreign)
    world.now += 31
    world.look()
    assert world.names("jobs") == ["hello"]
    world.settle()
    assert condition(world, "Foreign") == "False"


def test_what_was_deleted_by_hand_is_made_again() -> None:
    world = running()
    for plural, name in (("configmaps", "hello-entrypoint"), ("services", "hello")):
        found = world.server.one(plural, name)
        assert found is not None
        world.server.remove(found)
    world.settle()
    assert world.names("configmaps") == ["hello-entrypoint"]
    assert world.names("services") == ["hello"]


def test_what_was_changed_by_hand_is_set_right() -> None:
    world = running()
    found = world.server.one("configmaps", "hello-entrypoint")
    assert found is not None
    plan = found["data"]["plan.json"]
    found["data"]["plan.json"] = "{}"
    world.server._touch(found)
    world.settle()
    assert found["data"]["plan.json"] == plan


def test_growth_and_shrinking_of_the_job() -> None:
    world = World()
    world.apply(minicluster(maxSize=8))
    world.settle()
    world.edit(size=5)
    world.settle()
    assert len(world.server.pods_of("hello")) == 5
    assert world.status["size"] == 5
    world.edit(size=1)
    world.settle()
    assert len(world.server.pods_of("hello")) == 1


def test_running_pods_are_not_taken_away_without_the_leads_word() -> None:
    world = running(size=4)
    world.edit(size=2)
    world.settle()
    assert len(world.server.pods_of("hello")) == 4
    assert "waits for a connection to the lead" in world.status["reason"]


def test_a_change_that_needs_another_job_makes_one() -> None:
    world = running()
    before = world.server.one("jobs", "hello")
    world.edit(containers=[{"image": "busybox", "command": "echo bye"}])
    world.settle()
    after = world.server.one("jobs", "hello")
    assert before is not None and after is not None
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert "Recreating" in world.events()


def test_another_version_of_the_operator_changes_no_live_job(monkeypatch: pytest.MonkeyPatch) -> None:
    world = running()
    versions = {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in world.server.objects.values()}
    world.restart()
    build = world.operator._settings.build

    def newer(*args: Any) -> list[dict[str, Any]]:
        made = build(*args)
        for one in made:
            one["metadata"]["labels"]["version"] = "2"
            if "data" in one:
                one["data"]["plan.json"] += " "
        return made

    world.operator._settings = type(world.operator._settings)(build=newer)
    world.settle()
    assert {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in world.server.objects.values()} == (
        versions
    )


def test_suspend_and_resume() -> None:
    world = running()
    world.edit(suspend=True)
    world.settle()
    assert world.status["phase"] == "Suspended"
    assert world.server.pods_of("hello") == []
    world.edit(suspend=False)
    world.settle()
    world.server.run_pods("hello")
    world.settle()
    assert world.status["phase"] == "Running"
    assert world.events().count("Running") == 2


def test_made_suspended_it_has_no_pods_until_it_is_resumed() -> None:
    world = World()
    world.apply(minicluster(suspend=True))
    world.settle()
    assert (world.status["phase"], world.server.pods_of("hello")) == ("Suspended", [])
    world.edit(suspend=False)
    world.settle()
    assert len(world.server.pods_of("hello")) == 2


def test_a_job_that_somebody_else_suspended_stays_so() -> None:
    """Kueue suspends and admits Jobs that have its label."""
    world = running()
    job = world.server.one("jobs", "hello")
    assert job is not None
    job["spec"]["suspend"] = True
    world.server._touch(job)
    world.settle()
    assert job["spec"]["suspend"] is True
    assert world.status["phase"] == "Suspended"


def test_a_start_that_takes_too_long_fails_and_lets_its_pods_go() -> None:
    world = World()
    world.apply(minicluster(size=3, startTimeoutSeconds=60))
    world.settle()
    world.server.run_pods("hello", only={0, 1})
    message = (
        "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No preemption victims."
    )
    unfit = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    world.server.change(world.server.pods_of("hello")[2], conditions=[unfit])
    world.settle()
    assert (world.status["phase"], world.status["reason"]) == ("Starting", "2 of 3 pods, short of cpu on 2 nodes")
    world.now = NOW + 61
    world.settle()
    assert world.status["phase"] == "Failed"
    assert world.status["reason"] == "not all pods ran within spec.startTimeoutSeconds (60): short of cpu on 2 nodes"
    assert world.server.pods_of("hello") == []


def test_a_finished_one_is_deleted_after_its_time_to_live() -> None:
    world = running(ttlSecondsAfterFinished=100)
    world.server.end_lead("hello", 0)
    world.settle()
    assert world.names("miniclusters") == ["hello"]
    world.now = NOW + 101
    world.look()
    assert world.server.objects.keys() <= {key for key in world.server.objects if key[0] == "events"}


def test_cleanup_deletes_it_at_the_end() -> None:
    world = running(cleanup=True)
    world.server.end_lead("hello", 0)
    world.server.control_jobs()
    world.look()
    world.look()
    assert world.names("miniclusters") == []


def test_another_manager_is_left_to_its_work() -> None:
    world = World()
    world.apply(minicluster(managedBy="example.com/other"))
    world.settle()
    assert world.server.requests == []


def test_it_stands_back_while_the_go_operator_is_active() -> None:
    world = World()
    lease = {
        "metadata": {"name": "14dde902.flux-framework.org"},
        "spec": {"holderIdentity": "go", "leaseDurationSeconds": 15, "renewTime": "2023-11-14T22:13:20.000000Z"},
    }
    world.server.add(LEASES, "operator-system", lease)
    world.apply(minicluster())
    world.look()
    assert world.names("jobs") == []
    assert condition(world, "StandingBack") == "True"
    world.now = NOW + 16
    world.settle()
    assert world.names("jobs") == ["hello"]
    assert condition(world, "StandingBack") == "False"


def test_nothing_is_made_again_while_it_is_deleted_in_the_foreground() -> None:
    world = running()
    world.cluster["metadata"]["finalizers"] = ["foregroundDeletion"]
    world.server.remove(world.cluster, "Foreground")
    world.look()
    assert world.names("jobs") == []
    assert world.names("configmaps") == []


def test_a_finalizer_only_where_something_is_to_be_saved() -> None:
    assert "finalizers" not in running().cluster["metadata"]
    world = running(archive={"path": "/state/archive.tar"})
    assert world.cluster["metadata"]["finalizers"] == ["flux-framework.org/headrace-save"]
    world.server.remove(world.cluster)
    world.look()
    assert world.names("miniclusters") == ["hello"], "it waits for a connection to the lead"
    world.now = NOW + 61
    world.look()
    assert world.names("miniclusters") == []


def test_a_refusal_of_the_api_server_is_shown() -> None:
    world = World()
    world.apply(minicluster())
    world.server.refuse["create", "jobs"] = ApiError(403, "Forbidden", "exceeded quota: pods")
    for _ in range(2):
        with pytest.raises(ApiError):
            world.look()
    assert world.status["reason"] == "exceeded quota: pods"
    del world.server.refuse["create", "jobs"]
    world.settle()
    assert world.names("jobs") == ["hello"]
