"""The life of MiniClusters, looked at step by step on a simulated API server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from operator_world import World, minicluster
from simulated_api import NOW, TIME

from headrace.k8s.objects.kinds import CONFIG_MAPS, JOBS, LEASES, SECRETS, SERVICES
from headrace.k8s.runtime.api import ApiError


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
    assert world.events() == ["Running", "Finished"]


def test_a_view_that_the_file_names_and_ours_replaces_is_told_once() -> None:
    image = "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy"
    assert sorted(running(flux={"container": {"image": image}}).events()) == ["Running", "ViewReplaced"]


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
    world.server.end_lead("hello", 3, json.dumps({"exit": 3, "reason": "task 0 ended with exit code 3"}))
    world.settle()
    assert world.status["phase"] == "Failed"
    assert world.status["exitCode"] == 3
    assert world.status["reason"] == "task 0 ended with exit code 3"
    assert condition(world, "Failed") == "True"


@pytest.mark.parametrize(
    ("exit_code", "cause", "reason"),
    [(3, "", "JobFailed"), (143, "cancel", "JobCancelled"), (142, "timeout", "JobTimedOut")],
)
def test_the_reason_of_a_failure_is_what_failed_and_stays_when_the_pods_are_gone(
    exit_code: int, cause: str, reason: str
) -> None:
    world = running()
    said = {"exit": exit_code, "reason": "in words", "cause": cause, "jobs": {"inactive": 1}}
    world.server.end_lead("hello", exit_code, json.dumps(said))
    world.settle()
    assert world.status["reason"] == "in words"
    for pod in world.server.pods_of("hello"):
        world.server.remove(pod)
    world.restart()
    world.settle()
    failed = next(one for one in world.status["conditions"] if one["type"] == "Failed")
    assert (failed["status"], failed["reason"], failed["message"]) == ("True", reason, "in words")


@pytest.mark.parametrize("message", ["", json.dumps({"exit": 1, "jobs": {"inactive": 3, "run": 0}})])
def test_no_job_is_told_to_run_in_an_instance_that_has_ended(message: str) -> None:
    world = running()
    world.say(jobs={"run": 1, "inactive": 2})
    world.settle()
    assert world.status["jobs"]["run"] == 1
    world.server.end_lead("hello", 1, message)
    world.settle()
    assert (world.status["jobs"]["run"], world.status["jobs"]["inactive"]) == (0, 3 if message else 2)


def test_a_run_between_two_looks_is_told_as_any_other() -> None:
    """A script that waits for JobRunning by a watch sees it true, and then false with when the job ran."""
    world = World()
    world.apply(minicluster())
    world.settle()
    world.server.run_pods("hello", ready=False)
    world.look()
    times = {"start": NOW, "run": NOW + 1, "end": NOW + 2}
    world.server.end_lead("hello", 0, json.dumps({"exit": 0, "times": times}))
    world.server.control_jobs()
    seen = []
    for _ in range(4):
        world.now += 3.0
        world.look()
        one = next(one for one in world.status["conditions"] if one["type"] == "JobRunning")
        seen.append((world.status["phase"], one["status"], one["reason"]))
    assert seen == [("Finished", "True", "HasRun"), *[("Finished", "False", "Ended")] * 3]
    assert one["message"] == "the job ran from 2023-11-14T22:13:21Z to 2023-11-14T22:13:20Z"


def test_a_run_that_was_told_is_not_told_again() -> None:
    world = running()
    world.server.end_lead("hello", 0, json.dumps({"exit": 0, "times": {"run": NOW}}))
    world.server.control_jobs()
    for _ in range(3):
        world.now += 3.0
        world.look()
        assert (world.status["phase"], condition(world, "JobRunning")) == ("Finished", "False")


def test_the_end_is_told_before_cleanup_deletes_the_minicluster() -> None:
    world = running(cleanup=True)
    world.server.end_lead("hello", 0)
    world.server.control_jobs()
    world.look()
    assert world.status["phase"] == "Finished"
    world.look()
    assert world.server.one("miniclusters", "hello") is None


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


@pytest.mark.parametrize("kind", [SECRETS, CONFIG_MAPS, SERVICES, JOBS], ids=lambda kind: str(kind.kind))
def test_what_has_our_name_and_is_not_ours_is_left_alone(kind: Any) -> None:
    world = World()
    name = {"ConfigMap": "hello-entrypoint", "Secret": "hello-curve"}.get(kind.kind, "hello")
    foreign = world.server.add(kind, "ns", {"metadata": {"name": name}, "spec": {"parallelism": 7}})
    version = foreign["metadata"]["resourceVersion"]
    world.apply(minicluster())
    world.look()
    world.look()
    assert world.status["phase"] == "Pending"
    assert world.status["reason"] == f"{kind.kind}/{name} exists but does not belong to this MiniCluster"
    assert condition(world, "Foreign") == "True"
    before = len(world.server.requests)
    world.look()
    assert len(world.server.requests) == before, "it is not tried again at once"
    assert foreign["metadata"]["resourceVersion"] == version
    world.server.remove(foreign)
    world.now += 31
    world.look()
    assert world.names("jobs") == ["hello"]
    world.settle()
    assert condition(world, "Foreign") == "False"


@pytest.mark.parametrize("gone_after", [3, 60])
def test_what_a_deleted_minicluster_of_the_name_leaves_is_waited_for(gone_after: int) -> None:
    """As after a deletion and an apply, with a garbage collector that is late."""
    world = World()
    owner = {"kind": "MiniCluster", "name": "hello", "uid": "former", "controller": True}
    meta = {"name": "hello-entrypoint", "ownerReferences": [owner]}
    left = world.server.add(CONFIG_MAPS, "ns", {"metadata": meta})
    world.apply(minicluster())
    for _ in range(gone_after):
        world.look()
        world.now += 1
    assert world.names("jobs") == []
    assert ("NameTaken" in world.events()) == (gone_after > 30)
    world.server.remove(left)
    world.now += 31 if gone_after > 30 else 1
    world.settle()
    assert world.names("jobs") == ["hello"]


def test_a_job_that_the_go_operator_has_left_is_not_adopted() -> None:
    world = World()
    cluster = world.apply(minicluster())
    owner = {"kind": "MiniCluster", "name": "hello", "uid": cluster["metadata"]["uid"], "controller": True}
    world.server.add(JOBS, "ns", {"metadata": {"name": "hello", "ownerReferences": [owner]}, "spec": {"suspend": True}})
    world.look()
    world.look()
    assert world.status["reason"] == "Job/hello exists but does not belong to this MiniCluster"


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
    assert "waits until the lead is connected" in world.status["reason"]


def test_a_change_that_needs_another_job_makes_one() -> None:
    world = running()
    before = world.server.one("jobs", "hello")
    world.edit(containers=[{"image": "busybox", "command": "echo bye"}])
    world.settle()
    after = world.server.one("jobs", "hello")
    assert before is not None and after is not None
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert "Recreating" in world.events()


@pytest.mark.parametrize(
    "flux",
    [
        {"container": {"disable": True}},
        {"bursting": {"leadBroker": {"address": "lead.example.org", "name": "base", "size": 2}}},
    ],
    ids=["own Flux", "lead outside"],
)
def test_nothing_waits_for_a_channel_that_there_is_not(flux: dict[str, Any]) -> None:
    world = World()
    world.apply(minicluster(size=3, flux=flux, archive={"path": "/state/archive"}))
    world.settle()
    world.server.run_pods("hello")
    world.edit(size=1)
    world.settle()
    assert len(world.server.pods_of("hello")) == 1
    before = world.server.one("jobs", "hello")
    world.edit(flux={**flux, "brokerConfig": "[queues.a]\n"})
    world.settle()
    after = world.server.one("jobs", "hello")
    assert before and after and before["metadata"]["uid"] != after["metadata"]["uid"], "it cannot be reloaded"
    world.server.run_pods("hello")
    world.edit(suspend=True)
    world.settle()
    assert world.status["phase"] == "Suspended"
    world.server.remove(world.cluster)
    world.settle()
    assert world.names("miniclusters") == []
    assert world.links.asked == []


def test_another_job_has_times_and_counts_of_its_own() -> None:
    world = running(startTimeoutSeconds=60)
    world.say(resized={"": 2}, jobs={"inactive": 4})
    world.settle()
    assert world.status["jobs"]["inactive"] == 4
    world.edit(containers=[{"image": "busybox", "command": "echo bye"}])
    world.look()
    world.look()
    job = world.server.one("jobs", "hello")
    assert job is not None
    job["metadata"]["creationTimestamp"] = "2023-11-14T22:14:00Z"
    world.server._touch(job)
    world.settle()
    assert world.status["times"] == {"requested": TIME, "created": "2023-11-14T22:14:00Z"}
    assert "jobs" not in world.status
    world.now = NOW + 100
    world.settle()
    assert world.status["phase"] == "Failed", "the time-out is of this start"


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
    world.now += 61
    world.look()
    assert world.names("miniclusters") == []


def test_services_that_do_not_start_are_told_while_the_rest_runs() -> None:
    world = running(services=[{"name": "db", "image": "nosuch:1"}])
    assert (world.status["reason"], condition(world, "ServicesDown")) == ("", "absent")
    (pod,) = (one for one in world.server.all("pods") if one["metadata"]["name"] == "hello-services")
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    status = {"name": "db", "image": "nosuch:1", "state": {"waiting": waiting}}
    pod["status"] = {"phase": "Pending", "containerStatuses": [status]}
    world.settle()
    text = "services: image nosuch:1 of container db cannot be pulled (ImagePullBackOff): no such image"
    assert (world.status["phase"], world.status["ready"], world.status["reason"]) == ("Running", "2/2", text)
    assert condition(world, "ServicesDown") == "True"
    pod["status"] = {"phase": "Running", "containerStatuses": [{"name": "db", "state": {"running": {}}}]}
    world.settle()
    assert (world.status["reason"], condition(world, "ServicesDown")) == ("", "False")
    assert world.events().count("ServicesDown") == 1


def test_nothing_keeps_a_minicluster_whose_instance_cannot_be_saved() -> None:
    world = World()
    world.apply(minicluster(archive={"path": "/state/archive.tar"}))
    world.settle()
    assert not world.cluster["metadata"].get("finalizers"), "no pod runs yet"
    world.server.run_pods("hello")
    world.settle()
    assert world.cluster["metadata"]["finalizers"] == ["flux-framework.org/headrace-save"]
    world.say(brokers_up=2)
    world.edit(suspend=True)
    world.settle()
    world.say(saved_at=world.now)
    world.settle()
    assert (world.status["phase"], world.cluster["metadata"].get("finalizers")) == ("Suspended", [])
    world.server.remove(world.cluster)
    assert world.names("miniclusters") == [], "it goes where no operator looks"


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


def test_the_services_of_another_network_stand_in_for_those_of_the_former() -> None:
    world = running(network={"headlessName": "old"})
    assert world.names("services") == ["old"]
    world.edit(network={"headlessName": "new"})
    world.settle()
    assert world.names("services") == ["new"]
    uid = world.server.all("services")[0]["metadata"]["uid"]
    world.edit(flux={"minimalService": True})
    world.settle()
    assert [one["metadata"]["uid"] != uid for one in world.server.all("services")] == [True]
    assert world.names("jobs") == ["hello"]


def test_a_services_pod_that_was_evicted_is_made_again() -> None:
    world = running(services=[{"name": "web", "image": "local/web:1"}])
    (pod,) = (one for one in world.server.all("pods") if one["metadata"]["name"] == "hello-services")
    world.server.change(pod, phase="Failed", reason="Evicted")
    world.settle()
    (after,) = (one for one in world.server.all("pods") if one["metadata"]["name"] == "hello-services")
    assert after["metadata"]["uid"] != pod["metadata"]["uid"]
    (text,) = [one["message"] for one in world.server.all("events") if one["reason"] == "ServicesFailed"]
    assert text == "pod hello-services of the services has failed (Evicted): it is recreated"


def test_the_services_pod_starts_anew_with_another_spec() -> None:
    world = running(services=[{"name": "web", "image": "local/web:1"}])
    (before,) = (one for one in world.server.all("pods") if one["metadata"]["name"] == "hello-services")
    world.edit(services=[{"name": "web", "image": "local/web:2"}])
    world.settle()
    (after,) = (one for one in world.server.all("pods") if one["metadata"]["name"] == "hello-services")
    assert before["metadata"]["uid"] != after["metadata"]["uid"]
    assert after["spec"]["containers"][0]["image"] == "local/web:2"
    world.edit(suspend=True)
    world.settle()
    assert world.server.all("pods") == []


# --- with a connection to the lead


def test_shrinking_waits_until_the_lead_has_drained_what_goes() -> None:
    world = running(size=4)
    world.say(resized={"": 4})
    world.edit(size=2)
    world.settle()
    assert world.links.asked == [{"op": "resize", "size": 2, "max_size": 2, "hosts": "hello-[0-1]"}]
    assert len(world.server.pods_of("hello")) == 4
    assert world.status["reason"] == "removing pods of hello (from 4 to 2) waits until no job runs on them"
    world.say(resized={"": 2})
    world.settle()
    assert len(world.server.pods_of("hello")) == 2


def test_growth_is_told_to_the_lead_with_the_hosts_that_may_join() -> None:
    world = running()
    world.say(resized={"": 2})
    world.edit(size=6, maxSize=8)
    world.settle()
    assert len(world.server.pods_of("hello")) == 6
    assert world.links.asked == [{"op": "resize", "size": 6, "max_size": 8, "hosts": "hello-[0-7]"}]


def test_a_growth_that_takes_a_shrinking_back_lets_the_hosts_take_jobs_again() -> None:
    world = running(size=4)
    world.say(resized={"": 4})
    world.edit(size=2)
    world.settle()
    world.edit(size=4)
    world.settle()
    world.say(resized={"": 2})
    world.settle()
    assert [one["size"] for one in world.links.asked] == [2, 4]


def test_a_group_has_a_size_of_its_own() -> None:
    group = {"name": "gpu", "size": 3, "maxSize": 4}
    world = World()
    world.apply(minicluster(groups=[group]))
    world.settle()
    assert world.names("jobs") == ["hello", "hello-gpu"]
    for name in ("hello", "hello-gpu"):
        world.server.run_pods(name)
    world.settle()
    assert (world.status["phase"], world.status["ready"]) == ("Running", "5/5")
    world.say(resized={"": 2, "gpu": 3})
    world.edit(groups=[{**group, "size": 1}])
    world.settle()
    assert [one["group"] for one in world.links.asked] == ["gpu"]
    world.say(resized={"": 2, "gpu": 1})
    world.settle()
    assert (len(world.server.pods_of("hello-gpu")), len(world.server.pods_of("hello"))) == (1, 2)


def test_the_size_follows_the_queue() -> None:
    world = running(size=1, maxSize=4, autoscale={"minSize": 1, "idleSeconds": 60})
    world.say(resized={"": 1}, demand_nodes=3, jobs={"sched": 3})
    world.settle()
    assert world.cluster["spec"]["size"] == 3
    assert len(world.server.pods_of("hello")) == 3
    idle = world.now
    world.say(resized={"": 3}, demand_nodes=0, idle_since=idle, jobs={"inactive": 3})
    world.settle()
    assert world.cluster["spec"]["size"] == 3
    world.now = idle + 61
    world.look()
    assert world.cluster["spec"]["size"] == 1
    assert world.events().count("Autoscaled") == 2


def test_hosts_keep_their_ranks_when_the_minicluster_or_a_group_grows() -> None:
    def hosts() -> str:
        found = world.server.one("configmaps", "hello-entrypoint")
        assert found is not None
        return str(json.loads(found["data"]["plan.json"])["hosts"])

    world = World()
    world.apply(minicluster(groups=[{"name": "gpu", "size": 1}]))
    world.settle()
    world.server.run_pods("hello")
    world.server.run_pods("hello-gpu")
    world.say(resized={"": 2, "gpu": 1})
    world.settle()
    assert hosts() == "hello-[0-1],hello-gpu-[0]"
    for change, wanted in (
        ({"size": 4}, "hello-[0-1],hello-gpu-0,hello-[2-3]"),
        ({"groups": [{"name": "gpu", "size": 2}]}, "hello-[0-1],hello-gpu-0,hello-[2-3],hello-gpu-1"),
    ):
        world.links.asked.clear()
        world.restart()
        world.say(resized={})
        world.edit(**change)
        world.settle()
        assert hosts() == wanted
        assert {one["hosts"] for one in world.links.asked} == {wanted}
        assert {one.get("group", "") for one in world.links.asked} == {"", "gpu"}
    # Another Job's pods are another instance.
    world.edit(containers=[{"image": "busybox", "command": "echo bye"}])
    world.settle()
    assert hosts() == "hello-[0-3],hello-gpu-[0-1]"


def test_a_group_that_fails_fails_the_minicluster() -> None:
    """The lead would wait for its brokers, and hold what it has."""
    world = World()
    world.apply(minicluster(groups=[{"name": "gpu", "size": 1}]))
    world.settle()
    world.server.run_pods("hello", ready=False)
    world.server.run_pods("hello-gpu", ready=False)
    (pod,) = world.server.pods_of("hello-gpu")
    told = json.dumps({"exit": 1, "reason": "this image has no shell"})
    ended = {"exitCode": 1, "reason": "Error", "startedAt": TIME, "finishedAt": TIME, "message": told}
    world.server.change(pod, phase="Failed", containerStatuses=[{"name": "hello", "state": {"terminated": ended}}])
    failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "lastTransitionTime": TIME}
    world.server.change(world.server.one("jobs", "hello-gpu"), conditions=[failed])
    world.settle()
    job = world.server.one("jobs", "hello")
    assert job is not None and job["spec"]["activeDeadlineSeconds"] == 1
    over = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "lastTransitionTime": TIME}
    world.server.change(job, conditions=[over])
    for one in world.server.pods_of("hello"):
        world.server.remove(one)
    world.settle()
    reason = "group gpu: pod hello-gpu-0: this image has no shell"
    assert (world.status["phase"], world.status["reason"]) == ("Failed", reason)
    told_of = next(one for one in world.status["conditions"] if one["type"] == "Failed")
    assert (told_of["status"], told_of["reason"]) == ("True", "GroupFailed")


def test_nodes_of_groups_are_no_demand_for_the_own_pods() -> None:
    group = {"name": "gpu", "size": 3}
    world = World()
    world.apply(minicluster(size=1, maxSize=8, groups=[group], autoscale={"minSize": 1}))
    world.settle()
    world.server.run_pods("hello")
    world.server.run_pods("hello-gpu")
    for nodes, size in ((1, 1), (4, 1), (6, 3)):
        world.say(resized={"": 1, "gpu": 3}, demand_nodes=nodes, jobs={"run": 1})
        world.settle()
        assert world.cluster["spec"]["size"] == size


def test_a_change_of_the_configuration_is_reloaded_by_the_brokers() -> None:
    world = running(flux={"brokerConfig": "[queues.a]\n"})
    job = world.server.one("jobs", "hello")
    world.edit(flux={"brokerConfig": "[queues.b]\n"})
    world.say(resized={"": 2})
    world.settle()
    assert [one["op"] for one in world.links.asked] == ["reload"]
    assert world.links.asked[0]["config"]["queues"] == {"b": {}}
    world.say(config=world.links.asked[0]["config"])
    world.settle()
    world.links.asked.clear()
    world.say(config=None)
    world.settle()
    assert world.links.asked == [], "it is not reloaded again"
    assert world.server.one("jobs", "hello") is job


def test_the_queue_is_saved_before_it_is_suspended() -> None:
    world = running(archive={"path": "/state/archive.tar"})
    world.say(resized={"": 2}, jobs={"sched": 2})
    world.edit(suspend=True)
    world.settle()
    assert world.links.asked == [{"op": "save", "path": "/state/archive.tar"}]
    assert len(world.server.pods_of("hello")) == 2
    world.say(saved_at=world.now)
    world.settle()
    assert (world.status["phase"], world.server.pods_of("hello")) == ("Suspended", [])
    world.links.said = None
    world.settle()
    assert "jobs" not in world.status, "no instance runs that could have some"
    needs = next(one for one in world.status["conditions"] if one["type"] == "JobWaitingForResources")
    assert (needs["status"], needs["reason"]) == ("False", "NoPods")
    assert "JobsLost" not in world.events()


def test_a_suspension_that_is_taken_back_after_the_save_lets_the_instance_go_on() -> None:
    world = running(archive={"path": "/state/archive.tar"})
    world.say(resized={"": 2}, jobs={"sched": 2})
    world.edit(suspend=True)
    world.settle()
    world.edit(suspend=False)
    world.links.asked.clear()
    world.say(saved_at=world.now, saved=True)
    world.settle()
    assert {"op": "go_on"} in world.links.asked
    world.links.asked.clear()
    world.say(saved=False)
    world.settle()
    assert world.links.asked == []
    assert (world.status["phase"], len(world.server.pods_of("hello"))) == ("Running", 2)


def test_the_queue_of_a_lead_that_the_kubelet_does_not_call_ready_yet_is_saved() -> None:
    world = World()
    world.apply(minicluster(archive={"path": "/state/archive.tar"}))
    world.settle()
    world.server.run_pods("hello", ready=False)
    world.say(brokers_up=2, resized={"": 2})
    world.settle()
    assert world.status["phase"] == "Running"
    world.edit(suspend=True)
    world.settle()
    assert world.links.asked == [{"op": "save", "path": "/state/archive.tar"}]
    assert world.status["phase"] == "Running"


def test_an_instance_whose_queue_cannot_be_saved_is_not_suspended() -> None:
    world = running(archive={"path": "/nowhere/archive.tar"})
    world.say(resized={"": 2}, jobs={"sched": 2})
    world.edit(suspend=True)
    world.settle()
    world.say(save_error="/nowhere: No such file or directory", save_failed=world.now)
    world.settle()
    text = (
        "the queue cannot be saved to /nowhere/archive.tar, so it is not suspended: /nowhere: No such file or directory"
    )
    assert (world.status["phase"], world.status["reason"]) == ("Running", text)
    assert [one["message"] for one in world.server.all("events") if one["reason"] == "NotSaved"] == [text]
    world.links.asked.clear()
    world.look()
    assert world.links.asked == [], "it is tried again after a while"
    world.now += 61
    world.look()
    assert world.links.asked == [{"op": "save", "path": "/nowhere/archive.tar"}]
    assert len(world.server.pods_of("hello")) == 2
    world.say(saved_at=world.now, save_error="")
    world.settle()
    assert world.status["phase"] == "Suspended"


def test_a_deletion_tries_at_once_to_save_what_a_suspension_could_not() -> None:
    world = running(archive={"path": "/state/archive.tar"})
    world.say(resized={"": 2}, save_error="no space left on device", save_failed=NOW - 1)
    world.server.remove(world.cluster)
    world.look()
    assert world.links.asked == [{"op": "save", "path": "/state/archive.tar"}]
    assert world.names("miniclusters") == ["hello"]


def test_a_deletion_tries_to_save_for_a_minute_and_says_what_is_lost() -> None:
    world = running(archive={"path": "/state/archive.tar"})
    world.say(resized={"": 2}, jobs={"sched": 3, "run": 1, "inactive": 7})
    world.server.remove(world.cluster)
    tries, began = 0, world.now
    while world.names("miniclusters") and world.now < began + 100:
        world.links.asked.clear()
        world.look()
        tries += len(world.links.asked)
        if world.links.asked:
            world.say(save_error="no space left on device", save_failed=world.now)
        world.now += 1
    assert 60 <= world.now - began <= 65
    assert 3 <= tries <= 7
    (told,) = [one["message"] for one in world.server.all("events") if one["reason"] == "QueueLost"]
    lost = "4 queued or running jobs are lost"
    assert told == f"the queue could not be saved: no space left on device; {lost}"


@pytest.mark.parametrize("skew", [-100, 400])
def test_a_deletion_that_is_older_than_the_operator_saves_the_queue(skew: int) -> None:
    """So does one by the clock of an API server that is ahead or behind."""
    world = running(archive={"path": "/state/archive.tar"})
    world.server.remove(world.cluster)
    world.restart()
    world.now += skew
    world.say(resized={"": 2}, jobs={"sched": 2})
    world.look()
    assert world.links.asked == [{"op": "save", "path": "/state/archive.tar"}]
    world.links.asked.clear()
    world.now += 1
    world.say(saved_at=world.now)
    world.settle()
    assert (world.links.asked, world.names("miniclusters")) == ([], [])
    assert "QueueLost" not in world.events()


def test_jobs_that_a_suspension_loses_are_told() -> None:
    world = running()
    world.say(resized={"": 2}, jobs={"sched": 2, "run": 1, "inactive": 7})
    world.edit(suspend=True)
    world.settle()
    lost = [one["message"] for one in world.server.all("events") if one["reason"] == "JobsLost"]
    assert lost == ["3 queued or running jobs are lost, because spec.archive.path is not set"]


def test_the_queue_is_saved_before_it_is_deleted() -> None:
    world = running(archive={"path": "/state/archive.tar"})
    world.say(resized={"": 2})
    world.server.remove(world.cluster)
    world.look()
    assert world.links.asked == [{"op": "save", "path": "/state/archive.tar"}]
    assert world.names("miniclusters") == ["hello"]
    world.say(saved_at=world.now)
    world.look()
    assert world.names("miniclusters") == []


def test_the_leads_word_of_brokers_comes_before_the_kubelets() -> None:
    world = World()
    world.apply(minicluster(size=3))
    world.settle()
    world.server.run_pods("hello", ready=False)
    world.settle()
    assert (world.status["phase"], world.status["reason"]) == ("Starting", "0 of 3 brokers up")
    world.say(resized={"": 3}, brokers_up=3)
    world.settle()
    assert (world.status["phase"], world.status["ready"]) == ("Running", "3/3")
    assert "brokersUp" in world.status["times"]
    world.say(brokers_up=2)
    world.settle()
    assert (world.status["phase"], world.status["reason"]) == ("Running", "2 of 3 brokers up")


def test_an_end_is_not_taken_for_another_start() -> None:
    world = running()
    world.say(resized={"": 2}, brokers_up=2)
    world.settle()
    assert world.status["phase"] == "Running"
    world.say(state="finished", brokers_up=0)
    for pod in world.server.pods_of("hello"):
        conditions = [{"type": "Ready", "status": "False"}]
        ended = {"exitCode": 0, "startedAt": TIME, "finishedAt": TIME}
        statuses = [{"name": "hello", "state": {"terminated": ended}}, {"name": "web", "state": {"running": {}}}]
        world.server.change(pod, conditions=conditions, containerStatuses=statuses)
    world.look()
    assert (world.status["phase"], world.status["reason"]) == ("Running", "the job has ended, its pods are stopping")


def test_jobs_by_state_are_those_the_lead_tells() -> None:
    world = running()
    world.say(resized={"": 2}, brokers_up=2, jobs={"run": 1, "sched": 4})
    world.settle()
    assert world.status["jobs"] == {"depend": 0, "priority": 0, "sched": 4, "run": 1, "cleanup": 0, "inactive": 0}


def test_a_queue_that_was_saved_before_is_saved_again_for_the_next_suspension() -> None:
    world = running(archive={"path": "/state/archive.tar"})
    world.say(resized={"": 2}, saved_at=world.now - 100)
    world.edit(suspend=True)
    world.settle()
    assert world.links.asked == [{"op": "save", "path": "/state/archive.tar"}]
    assert world.status["phase"] == "Running"
    world.say(saved_at=world.now)
    world.settle()
    assert world.status["phase"] == "Suspended"


def test_what_another_manages_now_keeps_no_finalizer_of_ours() -> None:
    world = running(archive={"path": "/state/archive.tar"})
    assert world.cluster["metadata"]["finalizers"] == ["flux-framework.org/headrace-save"]
    world.say(brokers_up=2)
    world.edit(managedBy="example.com/other")
    world.look()
    assert not world.cluster["metadata"]["finalizers"]
    world.look()
    assert world.links.said is None


def test_an_images_own_flux_saves_nothing_and_holds_nothing_up() -> None:
    world = running(archive={"path": "/state/archive.tar"}, flux={"container": {"disable": True}})
    assert not world.cluster["metadata"].get("finalizers")
    world.edit(suspend=True)
    world.settle()
    assert world.status["phase"] == "Suspended"
