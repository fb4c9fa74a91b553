"""A lead that is replaced, and what the status tells while leads end and come back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from operator_world import World, minicluster
from simulated_api import NOW, TIME

from headrace.k8s.objects.kinds import EVENTS
from headrace.k8s.objects.timestamps import text_of
from headrace.k8s.runtime.api import ApiError
from headrace.minicluster.operator.core.reconcile import restart_delay

Object = dict[str, Any]


def running(**spec: Any) -> World:
    """A MiniCluster whose brokers are up."""
    world = World()
    world.apply(minicluster(**spec))
    world.settle()
    for job in world.names("jobs"):
        world.server.run_pods(job)
    world.settle()
    assert world.status["phase"] == "Running"
    return world


def pod_of(world: World, index: int, job: str = "hello") -> Object:
    label = "batch.kubernetes.io/job-completion-index"
    return next(one for one in world.server.pods_of(job) if one["metadata"]["labels"][label] == str(index))


def end(world: World, pod: Object, code: int, message: str = "", at: str = TIME) -> None:
    """The container of a pod ends, and the pod with it."""
    ended = {"exitCode": code, "startedAt": TIME, "finishedAt": at, "message": message}
    containers = [{"name": "hello", "image": "busybox", "state": {"terminated": ended}}]
    conditions = [{"type": "Ready", "status": "False", "lastTransitionTime": at}]
    phase = "Failed" if code else "Succeeded"
    world.server.change(pod, phase=phase, containerStatuses=containers, conditions=conditions)


def replace_lead(world: World, at: str) -> None:
    world.server.remove(pod_of(world, 0))
    world.server.control_jobs()
    pod_of(world, 0)["metadata"]["creationTimestamp"] = at


def test_a_lead_that_is_replaced_where_followers_have_completed_has_all_pods_made_anew() -> None:
    """As with an image's own Flux, whose followers end with their lead however that ends."""
    world = running()
    job = world.server.one("jobs", "hello")
    assert job is not None
    end(world, pod_of(world, 1), 0)
    replace_lead(world, text_of(NOW + 10))
    world.look()
    # The status tells of it before the Job goes, which has the count of failures.
    assert world.names("jobs") == ["hello"]
    world.look()
    assert world.names("jobs") == []
    (event,) = [one for one in world.server.all("events") if one["reason"] == "LeadReplaced"]
    assert event["message"] == "pods hello-1 ended together with a former lead: all pods are recreated"
    world.settle()
    again = world.server.one("jobs", "hello")
    assert again is not None and again["metadata"]["uid"] != job["metadata"]["uid"]
    world.server.run_pods("hello")
    world.settle()
    assert (world.status["phase"], world.status["ready"]) == ("Running", "2/2")
    assert world.events().count("LeadReplaced") == 1


def test_an_instance_that_is_lost_with_its_lead_is_told_and_its_times_go() -> None:
    world = running()
    assert world.status["times"]["brokersUp"] == TIME
    world.server.remove(pod_of(world, 0))
    world.settle()
    assert world.status["phase"] == "Starting"
    assert "brokersUp" not in world.status["times"] and world.status["times"]["podsRunning"] == TIME
    (event,) = [one for one in world.server.all("events") if one["reason"] == "InstanceLost"]
    assert event["message"].startswith("the lead was lost, and a new one starts: 1 of 2 pods")
    world.server.run_pods("hello")
    world.settle()
    assert world.status["phase"] == "Running" and "brokersUp" in world.status["times"]
    assert world.events().count("InstanceLost") == 1


def test_memory_that_ran_out_is_told_beside_the_jobs_own_reason() -> None:
    world = running(size=2)
    ended = {"exitCode": 137, "startedAt": TIME, "finishedAt": TIME, "reason": "OOMKilled"}
    follower = pod_of(world, 1)
    containers = [{"name": "hello", "image": "busybox", "state": {"terminated": ended}}]
    world.server.change(follower, phase="Failed", containerStatuses=containers)
    end(world, pod_of(world, 0), 247, json.dumps({"exit": 137, "reason": "the job was ended by signal 9"}))
    world.settle()
    assert world.status["reason"] == "the job was ended by signal 9; out of memory (OOMKilled): hello-1"


def test_a_change_that_is_refused_is_told_while_the_instance_runs() -> None:
    world = running()
    world.edit(flux={"topology": "foo"})
    world.settle()
    assert world.status["phase"] == "Running"
    assert world.status["reason"].startswith("a change is not applied: spec.flux.topology: ")


def restart_lead(world: World, code: int, at: str) -> None:
    """The kubelet starts the lead's container again in its pod (restartPolicy OnFailure)."""
    ended = {"exitCode": code, "startedAt": TIME, "finishedAt": at, "message": json.dumps({"exit": code})}
    status = {"name": "hello", "restartCount": 1, "state": {"running": {"startedAt": at}}}
    world.server.change(pod_of(world, 0), containerStatuses=[{**status, "lastState": {"terminated": ended}}])


def test_followers_that_have_completed_are_made_anew_where_their_leads_container_is_restarted() -> None:
    world = running(pod={"restartPolicy": "OnFailure"})
    end(world, pod_of(world, 1), 0)
    restart_lead(world, 3, text_of(NOW + 10))
    for _ in range(2):
        world.look()
    assert world.names("jobs") == [] and world.events().count("LeadReplaced") == 1
    world.settle()
    job = world.server.one("jobs", "hello")
    assert job is not None and job["spec"]["backoffLimit"] == 99, "the restart counts"


def test_a_command_that_fails_too_often_ends_with_its_own_code() -> None:
    """Kubernetes kills the lead's container, which it has just restarted, when the limit is reached."""
    world = running(pod={"restartPolicy": "OnFailure"}, backoffLimit=1)
    restart_lead(world, 3, text_of(NOW + 1))
    lead = pod_of(world, 0)
    (status,) = lead["status"]["containerStatuses"]
    killed = {"exitCode": 143, "startedAt": text_of(NOW + 1), "finishedAt": text_of(NOW + 2)}
    world.server.change(lead, phase="Failed", containerStatuses=[{**status, "state": {"terminated": killed}}])
    job = world.server.one("jobs", "hello")
    assert job is not None
    limit = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": TIME}
    world.server.change(job, conditions=[limit])
    world.settle()
    assert (world.status["phase"], world.status["exitCode"]) == ("Failed", 3)
    assert world.status["reason"] == "the job ended with exit code 3"


def test_followers_of_a_group_that_have_completed_are_made_anew_with_the_next_lead() -> None:
    world = running(groups=[{"name": "gpu", "size": 1}])
    end(world, pod_of(world, 0, "hello-gpu"), 0)
    replace_lead(world, text_of(NOW + 10))
    world.look()
    world.now += 3
    world.look()
    assert world.names("jobs") == []


def lose_lead(world: World, failed: int) -> None:
    """The lead is killed where the follower ends with it, and Kubernetes makes another; `failed` pods have failed."""
    job = world.server.one("jobs", "hello")
    assert job is not None
    world.server.run_pods("hello")
    end(world, pod_of(world, 1), 0)
    world.server.change(job, failed=failed)
    replace_lead(world, text_of(NOW + 10))


def test_failures_of_pods_count_towards_one_limit_over_all_jobs() -> None:
    world = running(flux={"completeWorkers": True}, backoffLimit=4)
    lose_lead(world, failed=1)
    world.settle()
    assert world.status["podFailures"] == 1
    lose_lead(world, failed=2)
    world.settle()
    world.now += 60
    world.settle()
    job = world.server.one("jobs", "hello")
    assert job is not None
    assert (job["spec"]["backoffLimit"], world.status["podFailures"]) == (1, 3)
    # Kubernetes ends a Job with more failures than that.
    end(world, pod_of(world, 0), 137)
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": TIME}
    world.server.change(job, failed=2, conditions=[failed])
    world.settle()
    assert (world.status["phase"], world.status["reason"]) == (
        "Failed",
        "pods have failed more often than spec.backoffLimit allows",
    )
    condition = next(one for one in world.status["conditions"] if one["type"] == "Failed")
    assert condition["reason"] == "BackoffLimitExceeded"


def test_a_job_that_was_deleted_by_hand_starts_anew_without_former_failures() -> None:
    world = running(flux={"completeWorkers": True}, backoffLimit=1)
    lose_lead(world, failed=1)
    world.settle()
    job = world.server.one("jobs", "hello")
    assert job is not None
    assert (job["spec"]["backoffLimit"], world.status["podFailures"]) == (0, 1)
    world.server.remove(job)
    world.settle()
    job = world.server.one("jobs", "hello")
    assert job is not None
    assert job["spec"]["backoffLimit"] == 1
    assert "podFailures" not in world.status


def test_a_job_that_fails_again_and_again_is_told_with_its_own_code() -> None:
    """As a job does that is run again (restartPolicy: OnFailure)."""
    world = running()
    job = world.server.one("jobs", "hello")
    assert job is not None
    end(world, pod_of(world, 0), 3, json.dumps({"exit": 3, "reason": "the job ended with exit code 3"}))
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": TIME}
    world.server.change(job, failed=1, conditions=[failed])
    world.settle()
    assert (world.status["exitCode"], world.status["reason"]) == (3, "the job ended with exit code 3")


def test_a_lead_that_is_lost_again_and_again_is_made_again_ever_later() -> None:
    world = running(flux={"completeWorkers": True})
    lose_lead(world, failed=3)
    told = world.now
    world.settle()
    assert world.names("jobs") == []
    assert (world.status["phase"], world.status["reason"]) == (
        "Pending",
        f"the lead was lost, and pods have failed 3 times so far: all pods are recreated at {text_of(told + 33)}",
    )
    # Another operator goes by what the status tells.
    world.restart()
    world.now = told + 32
    world.look()
    assert world.names("jobs") == []
    world.now = told + 33
    world.look()
    assert world.names("jobs") == ["hello"]
    world.settle()
    assert "restartAt" not in world.status


@pytest.mark.parametrize(("failures", "seconds"), [(0, 0), (1, 0), (2, 10), (3, 30), (6, 310), (7, 350), (5000, 350)])
def test_the_wait_for_a_restart_doubles_to_a_bound(failures: int, seconds: float) -> None:
    """With the ten seconds of Kubernetes' own: 10, 20, 40 ..., 360."""
    assert restart_delay(failures) == seconds


@pytest.mark.parametrize(
    "flux", [{}, {"bursting": {"leadBroker": {"address": "else.where", "name": "home", "size": 1, "port": 8050}}}]
)
def test_followers_that_complete_while_their_lead_runs_stay_completed(flux: Object) -> None:
    world = running(flux={"completeWorkers": True, **flux})
    end(world, pod_of(world, 1), 0, at=text_of(NOW + 10))
    world.settle()
    assert world.names("jobs") == ["hello"]
    if flux:
        # Its index 0 is a follower as all others, whose lead is elsewhere.
        replace_lead(world, text_of(NOW + 20))
        world.settle()
        assert world.names("jobs") == ["hello"]


def test_a_failure_is_told_with_the_leads_code() -> None:
    """Kubernetes says that a Job will fail before the pods have ended that it ends for that."""
    world = running()
    job, lead = world.server.one("jobs", "hello"), pod_of(world, 0)
    assert job is not None
    reason = {"exit": 3, "reason": "the shell text before the brokers ended with exit code 3"}
    end(world, pod_of(world, 1), 3, json.dumps(reason))
    target = {"type": "FailureTarget", "status": "True", "reason": "PodFailurePolicy", "lastTransitionTime": TIME}
    world.server.change(job, conditions=[target])
    world.now += 3
    world.look()
    status = world.status
    assert (status["phase"], status["reason"]) == ("Running", "the job has ended, its pods are stopping")
    assert "exitCode" not in status and "finished" not in status["times"]
    end(world, lead, 143, json.dumps({"exit": 143, "reason": "the pod was told to end", "killed": True}))
    world.server.change(job, conditions=[target, {**target, "type": "Failed"}])
    world.now += 3
    world.look()
    told = (world.status["phase"], world.status["exitCode"], world.status["reason"])
    assert told == ("Failed", 3, "pod hello-1: the shell text before the brokers ended with exit code 3")


def test_a_start_that_timed_out_has_no_exit_code() -> None:
    world = World()
    world.apply(minicluster(startTimeoutSeconds=30))
    world.settle()
    world.server.run_pods("hello", only={0})
    world.now += 60
    world.look()
    end(world, pod_of(world, 0), 143, json.dumps({"exit": 143, "killed": True}))
    world.settle()
    assert world.status["phase"] == "Failed"
    assert world.status["reason"].startswith("not all pods ran within spec.startTimeoutSeconds (30)")
    assert "exitCode" not in world.status


def not_ready(world: World, pod: Object) -> None:
    statuses = [{**pod["status"]["containerStatuses"][0], "ready": False}]
    conditions = [{"type": "Ready", "status": "False", "lastTransitionTime": text_of(world.now)}]
    world.server.change(pod, containerStatuses=statuses, conditions=conditions)


def test_it_runs_until_its_end_is_told() -> None:
    """The brokers are down, the kubelet has noticed, and the Job's end is to come."""
    world = running()
    world.say(brokers_up=2)
    world.settle()
    for index in (0, 1):
        not_ready(world, pod_of(world, index))
    world.links.said = None
    world.settle()
    assert (world.status["phase"], world.status["reason"]) == ("Running", "the job has ended, its pods are stopping")


def test_a_lead_whose_node_does_not_answer_is_not_taken_for_one_that_ends() -> None:
    world = running()
    world.say(brokers_up=2)
    world.settle()
    lead = pod_of(world, 0)
    node = lead["spec"].setdefault("nodeName", "node-0")
    kinds = [{"type": "Ready", "status": "False", "lastTransitionTime": TIME}]
    world.server.change(lead, conditions=[*kinds, {"type": "ContainersReady", "status": "True"}])
    world.links.said = None
    world.settle()
    assert world.status["phase"] == "Running"
    assert world.status["reason"] == f"1 of 2 brokers up, node {node} does not answer"
    (event,) = [one for one in world.server.all("events") if one["reason"] == "Degraded"]
    assert event["message"] == world.status["reason"]


def test_a_lead_that_was_killed_does_not_run() -> None:
    world = running()
    end(world, pod_of(world, 0), 137)
    world.now += 3
    world.look()
    assert world.status["phase"] == "Starting"
    assert world.status["reason"] == "1 of 2 pods, container hello ended with status 137"


def test_pods_that_are_deleted_and_come_back_are_named() -> None:
    world = running(size=3)
    for index in (1, 2):
        pod_of(world, index)["metadata"]["deletionTimestamp"] = TIME
    world.now += 3
    world.look()
    assert (world.status["phase"], world.status["ready"]) == ("Running", "1/3")
    assert world.status["reason"] == "1 of 3 brokers up, pods hello-[1-2] are being deleted"
    (event,) = [one for one in world.server.all("events") if one["reason"] == "Degraded"]
    assert event["message"] == world.status["reason"]
    for index in (1, 2):
        world.server.remove(pod_of(world, index))
    job = world.server.one("jobs", "hello")
    assert job is not None
    world.server.change(job, failed=2)
    world.now += 3
    world.look()
    text = "1 of 3 brokers up, Kubernetes waits 10 s or more before it recreates pods hello-[1-2]"
    assert world.status["reason"] == text
    world.say(brokers_up=3)
    world.server.run_pods("hello")
    world.now += 3
    world.look()
    (degraded,) = [one for one in world.status["conditions"] if one["type"] == "Degraded"]
    assert (degraded["status"], degraded["reason"], degraded["message"]) == ("False", "BrokersUp", "")


def test_a_lead_of_hosts_outside_runs_when_they_are_there() -> None:
    world = World()
    world.apply(minicluster(flux={"bursting": {"clusters": [{"name": "cloud", "size": 2}]}}))
    world.settle()
    world.server.run_pods("hello")
    world.settle()
    assert (world.status["phase"], world.status["ready"], world.status["brokersUp"]) == ("Starting", "2/4", 2)
    assert world.status["reason"] == "2 of 4 brokers up"
    world.say(brokers_up=4)
    world.settle()
    assert (world.status["phase"], world.status["ready"], world.status["brokersUp"]) == ("Running", "4/4", 4)


def event(world: World, pod: Object, reason: str, kind: str, message: str, container: str = "hello") -> None:
    """What the kubelet tells of a pod."""
    about = {"uid": pod["metadata"]["uid"], "fieldPath": f"spec.containers{{{container}}}"}
    name = f"{reason.lower()}-{len(world.server.objects)}"
    body = {"metadata": {"name": name}, "type": kind, "reason": reason, "message": message, "involvedObject": about}
    world.server.add(EVENTS, "ns", body)


def starting() -> World:
    """A MiniCluster whose pods have nodes, and whose containers are to be made, some seconds later."""
    world = World()
    world.apply(minicluster())
    world.settle()
    for pod in world.server.pods_of("hello"):
        pod["spec"]["nodeName"] = "node-1"
        waits = {
            "name": "hello",
            "image": "big:1",
            "imageID": "",
            "state": {"waiting": {"reason": "ContainerCreating"}},
        }
        world.server.change(pod, containerStatuses=[waits])
    world.now += 10
    return world


def test_an_image_that_is_being_pulled_is_told() -> None:
    world = starting()
    for index in (0, 1):
        event(world, pod_of(world, index), "Pulling", "Normal", 'Pulling image "big:1"')
    world.settle()
    assert (world.status["phase"], world.status["reason"]) == (
        "Starting",
        "0 of 2 pods, image big:1 of container hello is being pulled",
    )
    world.server.run_pods("hello", only={0})
    world.settle()
    assert world.status["reason"] == "1 of 2 pods, image big:1 of container hello is being pulled"
    world.server.run_pods("hello")
    world.settle()
    assert (world.status["phase"], world.status["reason"]) == ("Running", "")


def test_what_kept_a_start_up_is_not_told_of_pods_that_run() -> None:
    world = starting()
    event(world, pod_of(world, 1), "FailedMount", "Warning", "no such volume")
    world.settle()
    assert world.status["reason"] == "0 of 2 pods, FailedMount: no such volume"
    world.server.run_pods("hello")
    world.settle()
    assert (world.status["phase"], world.status["reason"]) == ("Running", "")


def test_nothing_is_made_in_a_namespace_that_is_being_deleted(caplog: pytest.LogCaptureFixture) -> None:
    """The API server refuses that; the Job may be deleted there before the MiniCluster is."""
    world = running()
    job = world.server.one("jobs", "hello")
    assert job is not None
    world.server.remove(job)
    details = {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}
    world.server.refuse["create", "jobs"] = ApiError(403, "Forbidden", "is being terminated", details)
    before = world.status
    made = len(world.server.requests)
    for _ in range(3):
        world.now += 3
        world.look()
    assert world.server.requests[made:].count(("create", "jobs", "hello")) == 1
    assert not [one for one in caplog.records if one.levelname in ("WARNING", "ERROR")]
    assert world.status == before


def unresponsive(world: World) -> Object:
    return next(one for one in world.status["conditions"] if one["type"] == "Unresponsive")


def test_brokers_that_do_not_answer_are_told_once() -> None:
    world = running(size=3)
    world.say(brokers_up=2, brokers_silent=1, silent="hello-1")
    world.settle()
    text = "the broker of hello-1 does not answer"
    status = world.status
    assert (status["phase"], status["ready"], status["reason"]) == ("Running", "2/3", f"2 of 3 brokers up, {text}")
    assert (unresponsive(world)["status"], unresponsive(world)["message"]) == ("True", text)
    # Of a lead that hangs, its channel tells.
    world.say(brokers_up=0, brokers_silent=3, silent="hello-[0-2]")
    world.settle()
    text = "the brokers of hello-[0-2] do not answer"
    assert (world.status["phase"], world.status["reason"]) == ("Running", f"0 of 3 brokers up, {text}")
    world.restart()
    world.say(brokers_up=0, brokers_silent=3, silent="hello-[0-2]")
    world.settle()
    world.say(brokers_up=3, brokers_silent=0, silent="")
    world.settle()
    assert (world.status["ready"], world.status["reason"]) == ("3/3", "")
    assert unresponsive(world)["status"] == "False"
    assert world.events().count("Unresponsive") == 2


def test_a_start_tells_of_brokers_that_do_not_answer() -> None:
    world = World()
    world.apply(minicluster())
    world.settle()
    world.server.run_pods("hello", ready=False)
    world.say(brokers_up=1, brokers_silent=1, silent="hello-0")
    world.settle()
    told = (world.status["phase"], world.status["reason"])
    assert told == ("Starting", "1 of 2 brokers up, the broker of hello-0 does not answer")


@pytest.mark.parametrize("flux", [{}, {"bursting": {"clusters": [{"name": "cloud", "size": 2}]}}])
def test_another_operator_tells_of_as_many_brokers_before_it_hears_of_the_lead(flux: Object) -> None:
    world = World()
    world.apply(minicluster(flux=flux))
    world.settle()
    world.server.run_pods("hello", ready=False)
    up = 4 if flux else 2
    world.say(brokers_up=up)
    world.settle()
    assert world.status["ready"] == f"{up}/{up}"
    # The kubelet knows of the lead's broker alone.
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": text_of(NOW + 5)}
    world.server.change(pod_of(world, 0), conditions=[ready])
    world.restart()
    world.settle()
    assert (world.status["phase"], world.status["ready"]) == ("Running", f"{up}/{up}")
    not_ready(world, pod_of(world, 1))
    world.settle()
    assert (world.status["phase"], world.status["ready"]) == ("Running", f"{up - 1}/{up}")


def test_the_exit_code_is_known_of_a_lead_that_is_deleted_as_soon_as_it_has_ended() -> None:
    """As Kubernetes does with a lead that it ends since another pod has failed."""
    world = running()
    job, lead = world.server.one("jobs", "hello"), pod_of(world, 0)
    assert job is not None
    end(world, pod_of(world, 1), 3, json.dumps({"exit": 3, "reason": "in words"}))
    end(world, lead, 143, json.dumps({"exit": 143, "killed": True}))
    world.changed(world.operator.pods, lead)
    world.server.remove(lead)
    failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "lastTransitionTime": TIME}
    world.server.change(job, conditions=[failed])
    world.now += 3
    world.look()
    told = (world.status["phase"], world.status["exitCode"], world.status["reason"])
    assert told == ("Failed", 3, "pod hello-1: in words")


def test_of_many_brokers_that_do_not_answer_the_others_are_counted() -> None:
    world = running(size=3)
    world.say(brokers_up=2, brokers_silent=100, silent="hello-[1-64]")
    world.settle()
    assert world.status["reason"] == "2 of 3 brokers up, the brokers of hello-[1-64] and 36 others do not answer"


def test_a_lead_whose_channel_is_closed_has_an_event_and_goes_on_by_what_its_pods_say() -> None:
    world = running(size=3)
    world.say(brokers_up=3)
    world.settle()
    world.links.said, world.links.breach = None, "the lead sent more than 10 messages a second: until then"
    world.settle()
    told = {one["type"]: one for one in world.status["conditions"]}
    assert (told["ChannelClosed"]["status"], told["ChannelClosed"]["message"]) == ("True", world.links.breach)
    assert (world.status["phase"], world.status["ready"]) == ("Running", "3/3")
    world.links.breach = ""
    world.settle()
    assert {one["type"]: one for one in world.status["conditions"]}["ChannelClosed"]["status"] == "False"
    assert world.events().count("ChannelClosed") == 1
