"""The operator is killed between any two of its writes, or while it waits for an answer: the next one ends where an
operator that was never killed does, makes nothing twice, and touches nothing that is somebody else's.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
from operator_world import World, minicluster
from simulated_api import TIME, CrashError

from headrace.k8s.objects.kinds import CONFIG_MAPS, JOBS, SERVICES
from headrace.k8s.runtime.api import ApiError

Object = dict[str, Any]

# Of metadata, what differs from run to run by itself.
_VOLATILE = ("uid", "resourceVersion", "creationTimestamp", "ownerReferences")


def a_life(world: World) -> None:
    """From creation over growth, suspension, resumption and the loss of a lead to an end; steps that a crash broke off
    are repeated."""
    flux = {"completeWorkers": True}
    steps = [
        lambda: world.apply(minicluster(maxSize=4, archive={"path": "/a"}, flux=flux, backoffLimit=6)),
        lambda: None,
        lambda: world.server.run_pods("hello"),
        lambda: world.edit(size=3),
        lambda: world.server.run_pods("hello"),
        lambda: world.edit(suspend=True),
        # The save that is waited for takes too long.
        lambda: setattr(world, "now", world.now + 100),
        lambda: world.edit(suspend=False),
        lambda: world.server.run_pods("hello"),
        lambda: lose_lead(world),
        lambda: setattr(world, "now", world.now + 100),
        lambda: world.server.run_pods("hello"),
        lambda: world.server.end_lead("hello", 3),
    ]
    for step in steps:
        step()
        while True:
            try:
                world.settle(40)
                break
            except CrashError:
                world.server.crash_at = None
                world.restart()


def lose_lead(world: World) -> None:
    """The lead is replaced for the second time, where a follower has ended."""
    job = world.server.one("jobs", "hello")
    assert job is not None
    lead, follower, *_ = world.server.pods_of("hello")
    ended = {"name": "hello", "state": {"terminated": {"exitCode": 0, "startedAt": TIME, "finishedAt": TIME}}}
    world.server.change(follower, phase="Succeeded", containerStatuses=[ended])
    world.server.change(job, failed=2)
    world.server.remove(lead)
    world.server.control_jobs()


def outcome(world: World) -> list[tuple[str, Any]]:
    found = []
    for (plural, _, name), item in sorted(world.server.objects.items()):
        if plural == "events":
            # Names of events have the version of the MiniCluster in them.
            found.append(("events", (item["reason"], item["message"])))
        elif plural == "miniclusters":
            status = {
                key: item["status"][key] for key in ("phase", "reason", "exitCode", "size", "ready", "podFailures")
            }
            found.append((name, (item["spec"], status, item["metadata"].get("finalizers"))))
        elif plural != "pods":
            meta = {key: value for key, value in item["metadata"].items() if key not in _VOLATILE}
            # Keys are random.
            rest = {} if plural == "secrets" else {key: item[key] for key in ("spec", "data") if key in item}
            found.append((f"{plural}/{name}", (meta, rest)))
    return sorted(found, key=repr)


@pytest.fixture(scope="module")
def uncrashed() -> World:
    world = World()
    a_life(world)
    return world


def test_the_life_ends_as_meant(uncrashed: World) -> None:
    status = uncrashed.status
    assert (status["phase"], status["exitCode"], status["size"]) == ("Failed", 3, 3)
    job = uncrashed.server.one("jobs", "hello")
    assert job is not None
    assert (status["podFailures"], job["spec"]["backoffLimit"], uncrashed.events().count("LeadReplaced")) == (2, 4, 1)


def test_a_crash_at_any_write_changes_nothing_of_the_outcome(uncrashed: World) -> None:
    writes = sum(1 for verb, _, _ in uncrashed.server.requests if verb not in ("get", "list"))
    assert writes > 20
    wanted = outcome(uncrashed)
    for number in range(writes):
        for after in (False, True):
            world = World()
            world.server.crash_at, world.server.crash_after = number, after
            a_life(world)
            assert world.server.crash_at is None, "it did crash"
            assert outcome(world) == wanted, f"crash at write {number}, carried out: {after}"


@pytest.mark.parametrize("number", range(4))
def test_all_jobs_are_made_anew_wherever_a_crash_is(number: int) -> None:
    world = World()
    world.apply(minicluster(groups=[{"name": "gpu", "size": 1}, {"name": "old", "size": 1}]))
    world.settle()
    for job in ("hello", "hello-gpu", "hello-old"):
        world.server.run_pods(job)
    world.settle()
    container = {**world.cluster["spec"]["containers"][0], "image": "new"}
    world.edit(groups=[{"name": "gpu", "size": 1}], containers=[container])
    world.server.crash_at = number
    try:
        world.settle()
    except CrashError:
        world.restart()
    world.server.crash_at = None
    world.settle(40)
    images = {
        job["metadata"]["name"]: job["spec"]["template"]["spec"]["containers"][0]["image"]
        for job in world.server.all("jobs")
    }
    assert images == {"hello": "new", "hello-gpu": "new"}


def test_a_refusal_of_any_write_is_made_good(uncrashed: World) -> None:
    """As of an API server that is overloaded."""
    kinds = sorted({(verb, plural) for verb, plural, _ in uncrashed.server.requests if verb not in ("get", "list")})
    for kind in kinds:
        world = World()
        world.apply(minicluster(maxSize=4, archive={"path": "/a"}))
        world.server.refuse[kind] = ApiError(500, "InternalError", "etcd is slow")
        for _ in range(3):
            with contextlib.suppress(ApiError):
                world.look()
        world.server.refuse.clear()
        world.settle()
        world.server.run_pods("hello")
        world.settle()
        assert (world.status["phase"], world.status["ready"]) == ("Running", "2/2"), kind


@pytest.mark.parametrize("seed", range(30))
def test_random_lives_converge_and_touch_nothing_foreign(seed: int) -> None:
    dice = random.Random(seed)
    world = World()
    foreign = []
    for kind, name in ((JOBS, "hello-1"), (SERVICES, "other"), (CONFIG_MAPS, "hello-entrypoint2")):
        body = {"metadata": {"name": name}, "spec": {"parallelism": 0, "suspend": True}}
        foreign.append(world.server.add(kind, "ns", body))
    if dice.random() < 0.3:
        taken = dice.choice([(JOBS, "hello"), (SERVICES, "hello"), (CONFIG_MAPS, "hello-entrypoint")])
        foreign.append(world.server.add(taken[0], "ns", {"metadata": {"name": taken[1]}, "spec": {"suspend": True}}))
    versions = [one["metadata"]["resourceVersion"] for one in foreign]
    world.apply(minicluster(maxSize=6, startTimeoutSeconds=10_000))

    def delete_something() -> None:
        names = {"jobs": "hello", "services": "hello", "configmaps": "hello-entrypoint"}
        plural = dice.choice(list(names))
        found = world.server.one(plural, names[plural])
        if found is not None and found not in foreign:
            world.server.remove(found)

    changes = [
        lambda: world.edit(size=dice.randint(1, 6)),
        lambda: world.edit(size=dice.choice([0, 7, 99])),
        lambda: world.edit(suspend=dice.random() < 0.5),
        lambda: world.edit(tasks=dice.randint(1, 3)),
        lambda: world.server.run_pods("hello", ready=dice.random() < 0.7),
        world.server.control_jobs,
        world.restart,
        lambda: setattr(world.server, "crash_at", dice.randint(0, 4)),
        delete_something,
        world.look,
        world.look,
        lambda: setattr(world, "now", world.now + dice.choice([1, 40])),
    ]
    for _ in range(40):
        world.server.crash_after = dice.random() < 0.5
        try:
            dice.choice(changes)()
        except CrashError:
            world.server.crash_at = None
            world.restart()
    world.server.crash_at = None
    world.edit(size=2, suspend=False)
    world.say(resized={"": 2})
    for _ in range(40):
        # Pods that run have a lead that drains whatever it is asked to.
        world.now += 31
        world.look()
        # A name that is taken is told at the look after the one that found it so.
        world.look()
        world.say(resized={"": 2})
        world.server.control_jobs()
        world.server.run_pods("hello")
    assert [one["metadata"]["resourceVersion"] for one in foreign] == versions
    if any(one["metadata"]["name"] in ("hello", "hello-entrypoint") for one in foreign):
        assert (world.status["phase"], "exists but does not belong" in world.status["reason"]) == ("Pending", True)
    else:
        assert (world.status["phase"], world.status["ready"]) == ("Running", "2/2")
        owned = [
            f"{plural}/{name}"
            for (plural, _, name), one in world.server.objects.items()
            if one["metadata"].get("ownerReferences", [{}])[0].get("kind") == "MiniCluster"
        ]
        assert sorted(owned) == ["configmaps/hello-entrypoint", "jobs/hello", "secrets/hello-curve", "services/hello"]
