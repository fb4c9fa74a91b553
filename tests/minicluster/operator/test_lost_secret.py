"""A MiniCluster whose Secret was deleted: pods that start later must not get other keys than those that run."""

from __future__ import annotations

from typing import Any

from operator_world import World, minicluster

from headrace.k8s.objects.kinds import EVENTS, SECRETS
from headrace.k8s.objects.timestamps import text_of

Object = dict[str, Any]

GONE = (
    "Secret hello-curve was deleted, and new pods cannot start without it: restore it, or delete Job "
    "hello to recreate all pods"
)


def made(**spec: Any) -> World:
    world = World()
    world.apply(minicluster(**spec))
    world.settle()
    return world


def running(**spec: Any) -> World:
    world = made(**spec)
    for job in world.names("jobs"):
        world.server.run_pods(job)
    world.settle()
    assert world.status["phase"] == "Running"
    return world


def lose_secret(world: World) -> Object:
    secret = world.server.one("secrets", "hello-curve")
    assert secret is not None
    world.server.remove(secret)
    return secret


def pod_of(world: World, index: int, job: str = "hello") -> Object:
    label = "batch.kubernetes.io/job-completion-index"
    return next(one for one in world.server.pods_of(job) if one["metadata"]["labels"][label] == str(index))


def cannot_mount(world: World, pod: Object) -> None:
    """The pod has a node, whose kubelet does not find the Secret."""
    pod["spec"]["nodeName"] = "node-1"
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": text_of(world.now)}
    waits = {"name": "hello", "image": "busybox", "state": {"waiting": {"reason": "ContainerCreating"}}}
    world.server.change(pod, conditions=[scheduled], containerStatuses=[waits])
    message = 'MountVolume.SetUp failed for volume "hello-curve" : secret "hello-curve" not found'
    body = {"metadata": {"name": f"mount-{pod['metadata']['name']}"}, "type": "Warning", "reason": "FailedMount"}
    about = {"uid": pod["metadata"]["uid"]}
    world.server.add(EVENTS, "ns", {**body, "message": message, "involvedObject": about})
    world.now += 10


def notice(world: World) -> None:
    """What the operator reads of Events changes nothing on the server: it acts on that at the next look."""
    world.settle()
    world.settle()


def replace(world: World, index: int) -> None:
    """The pod was deleted, and its successor does not find the Secret."""
    world.server.remove(pod_of(world, index))
    world.settle()
    cannot_mount(world, pod_of(world, index))
    notice(world)


def uid_of_job(world: World) -> str:
    job = world.server.one("jobs", "hello")
    assert job is not None
    return str(job["metadata"]["uid"])


def test_a_secret_that_no_pod_has_mounted_is_made_again() -> None:
    world = made()
    job = uid_of_job(world)
    lost = lose_secret(world)
    for index in (0, 1):
        cannot_mount(world, pod_of(world, index))
    notice(world)
    secret = world.server.one("secrets", "hello-curve")
    assert secret is not None and secret["metadata"]["uid"] != lost["metadata"]["uid"]
    world.server.run_pods("hello")
    world.settle()
    assert (world.status["phase"], world.status["reason"], uid_of_job(world)) == ("Running", "", job)
    assert "KeysLost" not in world.events()


def test_all_pods_of_a_start_are_made_anew_where_some_have_the_lost_keys() -> None:
    world = made(size=3)
    job = uid_of_job(world)
    world.server.run_pods("hello", only={0, 1}, ready=False)
    world.settle()
    lose_secret(world)
    cannot_mount(world, pod_of(world, 2))
    notice(world)
    assert uid_of_job(world) != job
    assert world.names("secrets") == ["hello-curve"]
    (event,) = [one for one in world.server.all("events") if one["reason"] == "KeysLost"]
    assert event["message"] == (
        "Secret hello-curve was deleted, and only pods hello-[0-1] have its keys: recreating all"
    )
    world.server.run_pods("hello")
    world.settle()
    assert (world.status["phase"], world.status["ready"]) == ("Running", "3/3")


def test_a_pod_whose_image_is_being_pulled_has_its_keys_already() -> None:
    world = made()
    mounted = {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": text_of(world.now)}
    pod = pod_of(world, 0)
    pod["spec"]["nodeName"] = "node-1"
    world.server.change(pod, conditions=[mounted])
    lose_secret(world)
    cannot_mount(world, pod_of(world, 1))
    notice(world)
    assert world.events().count("KeysLost") == 1


def test_jobs_of_an_instance_that_runs_are_left_alone() -> None:
    world = running()
    job = uid_of_job(world)
    lose_secret(world)
    replace(world, 1)
    assert world.status["phase"] == "Running"
    assert world.status["reason"] == f"1 of 2 brokers up, {GONE}"
    assert (uid_of_job(world), world.names("secrets")) == (job, [])

    # As the text says.
    own = world.server.one("jobs", "hello")
    assert own is not None
    world.server.remove(own)
    world.settle()
    world.server.run_pods("hello")
    world.settle()
    assert (world.status["phase"], world.status["reason"]) == ("Running", "")


def test_a_secret_that_was_put_back_is_seen() -> None:
    world = running()
    lost = lose_secret(world)
    replace(world, 1)
    assert GONE in world.status["reason"]
    kept = {key: lost[key] for key in ("metadata", "data", "type") if key in lost}
    world.server.add(SECRETS, "ns", kept)
    world.server.run_pods("hello")
    world.settle()
    assert (world.status["phase"], world.status["reason"]) == ("Running", "")
    asked = world.server.requests.count(("get", "secrets", "hello-curve"))
    world.settle()
    assert world.server.requests.count(("get", "secrets", "hello-curve")) == asked


def test_a_lead_that_cannot_start_again_has_all_pods_made_anew() -> None:
    world = running()
    job = uid_of_job(world)
    lose_secret(world)
    replace(world, 0)
    assert uid_of_job(world) != job
    assert world.events().count("KeysLost") == 1


def test_followers_of_a_group_are_made_anew_with_the_job_that_was_deleted() -> None:
    world = running(groups=[{"name": "gpu", "size": 1}])
    group = world.server.one("jobs", "hello-gpu")
    assert group is not None
    lose_secret(world)
    replace(world, 1)
    own = world.server.one("jobs", "hello")
    assert own is not None
    world.server.remove(own)
    world.settle()
    again = world.server.one("jobs", "hello-gpu")
    assert again is not None and again["metadata"]["uid"] != group["metadata"]["uid"]
    assert world.names("secrets") == ["hello-curve"]


def test_another_operator_finds_out_that_the_secret_of_an_instance_is_gone() -> None:
    world = running()
    lose_secret(world)
    replace(world, 1)
    world.restart()
    world.links.address = lambda uid: ""  # type: ignore[method-assign]
    world.settle()
    assert world.status["phase"] == "Running"
    assert GONE in world.status["reason"]
