"""The core is killed between any two of its writes, or before it hears of one: the next one ends where one that was
never killed does, and starts nothing twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from simulated_cluster import OWN, Cluster

from headrace.cluster_queue.cycle import external
from headrace.cluster_queue.model import nodes, resources
from headrace.cluster_queue.model.fluxjobs import is_external, jobid_in
from headrace.cluster_queue.model.request import Refusal
from headrace.cluster_queue.names import FLUXJOBS, NODES
from headrace.cluster_queue.workloads import KINDS
from headrace.k8s.objects.kinds import JOBS, PODS
from headrace.k8s.objects.timestamps import seconds_of
from headrace.sched.graph import parse_jobspec
from sizes import size


def crashes(plain: Cluster) -> Iterator[tuple[int, bool]]:
    """When to kill the core, as `crash_at` and `crash_after`: at writes of a life without crashes, in a soak at all."""
    step = size("writes_between")
    for at in range(0, len(plain.writes), step):
        yield from ((at, after) for after in ((False, True) if size("sides") > 1 else (bool(at // step % 2),)))


def a_life(cluster: Cluster) -> None:
    """Jobs come, run and end; one is deleted while it waits, one while it runs, one is suspended by its user."""
    cluster.job("a", pods=2, cores=2, completions=3)
    cluster.settle(5)
    cluster.job("b", pods=2, cores=4)
    cluster.settle(5)
    for name in "cde":
        cluster.pod(name, 2)
        cluster.settle(5)
    cluster.pod("foreign", 1, namespace="other")
    cluster.settle(40)
    cluster.delete(PODS, "d")
    cluster.settle(5)
    for _ in range(3):
        cluster.end(next(one for one in cluster.pods_of("a") if one["status"]["phase"] == "Running"))
        cluster.settle(5)
    cluster.end(cluster.one(PODS, "foreign", "other"))
    cluster.settle(5)
    job = cluster.one(JOBS, "b")
    job["spec"]["suspend"] = True
    cluster.put(JOBS, job)
    cluster.settle(5)
    cluster.delete(JOBS, "b")
    cluster.settle(5)
    cluster.end_all("c")
    cluster.settle(5)


def a_life_of_replicas(cluster: Cluster) -> None:
    """A Deployment and a StatefulSet grow, shrink, lose pods and are rolled out, with a pod that waits beside them."""
    cluster.replicas("Deployment", "web", 3)
    cluster.settle(5)
    cluster.replicas("StatefulSet", "db", 2, cores=2)
    cluster.settle(5)
    cluster.pod("waits", 3)
    cluster.settle(5)
    cluster.change("Deployment", "web", replicas=5)
    cluster.settle(5)
    cluster.end(cluster.pods_of("db")[0], "Failed")
    cluster.settle(5)
    cluster.change("Deployment", "web", replicas=1)
    cluster.settle(5)
    cluster.change("Deployment", "web", cores=2)
    cluster.settle(30)
    cluster.change("StatefulSet", "db", replicas=1)
    cluster.settle(5)
    cluster.end_all("waits")
    cluster.settle(5)


@pytest.mark.soak
def test_a_crash_at_any_write_about_replicas_changes_nothing_of_what_comes_of_it():
    def what_runs(cluster: Cluster) -> Any:
        pods = [(one["metadata"]["labels"].get("job", "") if "labels" in one["metadata"] else "",
                 str(one["spec"]["containers"]), one["status"]["phase"]) for one in cluster.all(PODS)]  # fmt: skip
        states = {flux["metadata"]["name"]: flux["status"]["state"] for flux in cluster.all(FLUXJOBS)}
        waits = [flux["status"].get("waits") for flux in cluster.all(FLUXJOBS)]
        return sorted(pods), states, waits

    plain = Cluster()
    a_life_of_replicas(plain)
    expected = what_runs(plain)
    assert set(expected[1].values()) == {"Running", "Finished"}
    for crash_at, after in crashes(plain):
        cluster = Cluster()
        cluster.crash_at, cluster.crash_after = crash_at, after
        a_life_of_replicas(cluster)
        assert what_runs(cluster) == expected, (crash_at, after)


def a_life_of_lost_nodes(cluster: Cluster) -> None:
    """Nodes die under pods of a Deployment, a Job and a StatefulSet, some of which are lost twice, and come back."""
    cluster.replicas("Deployment", "web", 2, cores=2)
    cluster.settle(5)
    cluster.job("a", pods=2, cores=2)
    cluster.settle(5)
    cluster.replicas("StatefulSet", "db", 2, cores=1)
    cluster.settle(5)
    cluster.pod("waits", 4)
    cluster.settle(5)
    cluster.lose("n0")
    cluster.settle(40)
    cluster.node("n3", 4)
    cluster.settle(5)
    for name in ("web", "a"):
        cluster.end(cluster.pods_of(name)[-1], "Failed")
        cluster.settle(5)
    cluster.lose("n3")
    cluster.settle(5)
    cluster.bring_back("n0")
    cluster.settle(40)
    cluster.bring_back("n3")
    cluster.settle(5)
    cluster.end_all("a")
    cluster.settle(5)


@pytest.mark.soak
@pytest.mark.parametrize("placement", ["pin", "bind"])
def test_a_crash_at_any_write_loses_no_place_of_a_pod_whose_node_dies(placement: str):
    plain = Cluster(nodes=3, placement=placement)
    a_life_of_lost_nodes(plain)
    states = {flux["metadata"]["name"]: flux["status"]["state"] for flux in plain.all(FLUXJOBS)}
    assert states == dict.fromkeys(("web-deployment", "db-statefulset", "waits-pod"), "Running") | {"a-job": "Finished"}
    for crash_at, after in crashes(plain):
        cluster = Cluster(nodes=3, placement=placement)
        cluster.crash_at, cluster.crash_after = crash_at, after
        a_life_of_lost_nodes(cluster)
        assert cluster.restarts == 2, (crash_at, after)
        assert outcome(cluster)[0] == outcome(plain)[0], (crash_at, after)


def a_life_of_sets(cluster: Cluster) -> None:
    """Kinds whose pods ask for different things wait, start, lose pods, are suspended by their users, end and go."""
    cluster.node("g0", 4, {"gpu": "yes"})
    cluster.node("g1", 4, {"gpu": "yes"})
    gpu = {"gpu": "yes"}
    cluster.sets("JobSet", "js", driver=(1, 1, 1, None), worker=(2, 2, 2, gpu))
    cluster.settle(5)
    cluster.sets("MPIJob", "mpi", launcher=(0, 1, 1, None), worker=(0, 2, 3, None))
    cluster.settle(5)
    cluster.sets("TrainJob", "tj", initializer=(1, 1, 1, None), node=(1, 2, 4, gpu))
    cluster.settle(5)
    cluster.sets("MiniCluster", "mc", brokers=(1, 2, 2, None), gpus=(1, 1, 3, gpu))
    cluster.settle(5)
    for name in ("js", "mpi"):
        cluster.end(cluster.pods_of(name)[-1], "Failed")
        cluster.settle(5)
    cluster.suspend("MPIJob", "mpi")
    cluster.settle(5)
    for pod in cluster.pods_of("js"):
        if pod["metadata"]["labels"]["set"] == "worker" and pod["status"]["phase"] == "Running":
            cluster.end(pod)
            cluster.settle(5)
    cluster.end_all("js")
    cluster.settle(5)
    cluster.end_all("tj")
    cluster.settle(5)
    cluster.delete(KINDS["TrainJob"].kind, "tj")
    cluster.settle(5)


@pytest.mark.soak
def test_a_crash_at_any_write_about_sets_changes_nothing_of_what_comes_of_it():
    plain = Cluster()
    a_life_of_sets(plain)
    expected = outcome(plain)
    assert {name: one["state"] for name, one in expected[0].items()} == {
        **{"js-jobset": "Finished", "mpi-mpijob": "Running", "mc-minicluster": "Running"}
    }
    for crash_at, after in crashes(plain):
        cluster = Cluster()
        cluster.crash_at, cluster.crash_after = crash_at, after
        a_life_of_sets(cluster)
        assert cluster.restarts == 2, (crash_at, after)
        assert outcome(cluster) == expected, (crash_at, after)


def reserve(cluster: Cluster, pods: int, cores: int, seconds: int) -> int:
    """A match for another scheduler, now or later; its job id. Raises Refusal."""
    jobspec = resources.jobspec("a", "", pods, {"cpu": 1000 * cores, "pod": 1}, seconds)
    jobid, selection, start = cluster.queue.externals.match(
        "default", jobspec, parse_jobspec(jobspec), cluster.now, True
    )
    amounts, later = nodes.amounts_in(selection), start if start > cluster.now else 0
    made = cluster.put(FLUXJOBS, external.made_of(jobid, OWN, "default", amounts, jobspec, seconds, later))
    made["status"] = external.status_of(made, cluster.now)
    cluster.put(FLUXJOBS, made)
    return jobid


def cancel(cluster: Cluster, jobid: int) -> None:
    cluster.delete(FLUXJOBS, f"match-{jobid}-external", OWN)
    cluster.queue.externals.drop(jobid)


def a_life_of_reservations(cluster: Cluster) -> None:
    """Other schedulers reserve nodes for after a job's end, and jobs run before, between and after these times."""
    cluster.job("a", pods=2, cores=4, annotations={"fluxqueue/duration": "60"})
    cluster.settle(5)
    first = reserve(cluster, 2, 4, 40)
    second = reserve(cluster, 1, 3, 30)
    cluster.pod("endless", 2)
    cluster.settle(5)
    cluster.pod("short", 2, annotations={"fluxqueue/duration": "20"})
    cluster.settle(5)
    cluster.end_all("a")
    cluster.settle(15)
    cluster.end_all("short")
    cluster.settle(40)
    cancel(cluster, first)
    cluster.settle(40)
    cluster.pod("late", 2, annotations={"fluxqueue/duration": "20"})
    cluster.settle(5)
    cancel(cluster, second)
    cluster.settle(5)


@pytest.mark.soak
def test_a_crash_at_any_write_leaves_each_reservation_its_time() -> None:
    plain = Cluster(policy="easy")
    a_life_of_reservations(plain)
    expected = outcome(plain)
    assert {name: one["state"] for name, one in expected[0].items()} == {
        name: "Finished" if name in ("a-job", "short-pod") else "Running"
        for name in ("a-job", "short-pod", "endless-pod", "late-pod")
    }
    assert [line for line in plain.log if "external" in line and "Running" in line] == [
        line for line in plain.log if line.startswith("match-")
    ]
    for crash_at, after in crashes(plain):
        cluster = Cluster(policy="easy")
        cluster.crash_at, cluster.crash_after = crash_at, after
        a_life_of_reservations(cluster)
        assert cluster.restarts == 2, (crash_at, after)
        assert outcome(cluster) == expected, (crash_at, after)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(size("histories") // 3))
def test_reservations_have_their_nodes_at_their_time_in_random_histories_with_crashes(seed: int) -> None:
    """What has a duration ends with it, as do matches."""
    rng = random.Random(seed)
    policy = rng.choice(("fcfs", "easy", "hybrid", "conservative"))
    cluster = Cluster(nodes=3, cores=4, policy=policy)
    later = 0
    for turn in range(60):
        if rng.random() < 0.3:
            cluster.crash_at, cluster.crash_after = rng.randrange(4), rng.random() < 0.5
        choice = rng.random()
        if choice < 0.5:
            lasts = {"fluxqueue/duration": f"{rng.randint(5, 60)}"} if rng.random() < 0.8 else {}
            cluster.job(f"j{turn}", rng.randint(1, 4), rng.randint(1, 3), annotations=lasts)
        elif choice < 0.75:
            try:
                jobid = reserve(cluster, rng.randint(1, 3), rng.randint(1, 4), rng.randint(5, 60))
                later += external.reserved_start(cluster.one(FLUXJOBS, f"match-{jobid}-external", OWN)) > 0
            except Refusal:
                pass
        elif choice < 0.8:
            matches = [flux for flux in cluster.all(FLUXJOBS) if is_external(flux)]
            if matches:
                cancel(cluster, jobid_in(rng.choice(matches)))
        elif choice < 0.9:
            for flux in cluster.all(FLUXJOBS):
                if not flux["spec"].get("duration"):
                    cluster.end_all(flux["spec"]["name"])
        for _ in range(rng.choice((1, 5, 20))):
            cluster.settle(1)
            what_is_over_ends(cluster)
            nobody_has_what_is_reserved(cluster)
    assert later


def what_is_over_ends(cluster: Cluster) -> None:
    for flux in cluster.all(FLUXJOBS):
        spec, told = flux["spec"], flux.get("status") or {}
        if told.get("state") == "Running" and 0 < spec["duration"] <= cluster.now - seconds_of(told["startedAt"]):
            if is_external(flux):
                cancel(cluster, jobid_in(flux))
            else:
                cluster.end_all(spec["name"])


def nobody_has_what_is_reserved(cluster: Cluster) -> None:
    """What jobs and matches have of a node is no more than it has; a match has its nodes once its time has come."""
    used = dict.fromkeys(cluster.queue.context.queues["default"].nodes, 0)
    for job in cluster.queue.context.entries.values():
        for place in job.slots:
            used[place.node] += place.amounts.get("cpu", 0)
    for flux in cluster.all(FLUXJOBS):
        if is_external(flux) and external.start_of(flux) <= cluster.now:
            for node, amounts in external.amounts_of(flux):
                used[node] += amounts["cpu"]
    assert max(used.values()) <= 4000, used


def outcome(cluster: Cluster) -> Any:
    """What all has come to, and all starts."""
    statuses = {}
    for flux in cluster.all(FLUXJOBS):
        status = dict(flux["status"])
        statuses[flux["metadata"]["name"]] = {key: status.get(key) for key in ("state", "nodes", "reason", "queuedAt")}
    placed = sorted(
        (one["metadata"].get("labels", {}).get("job", one["metadata"]["name"]), one["spec"].get("nodeName"))
        for one in cluster.all(PODS)
    )
    starts = sorted(line for line in cluster.log if line.endswith(" Released"))
    return statuses, placed, starts


@pytest.mark.soak
@pytest.mark.parametrize("placement", ["pin", "bind"])
def test_a_crash_at_any_write_changes_nothing_of_what_comes_of_it(placement):
    plain = Cluster(placement=placement)
    a_life(plain)
    expected = outcome(plain)
    assert expected[2] == ["a-job Released", "b-job Released", "b-job Released", "c-pod Released", "e-pod Released"]
    for crash_at, after in crashes(plain):
        cluster = Cluster(placement=placement)
        cluster.crash_at, cluster.crash_after = crash_at, after
        a_life(cluster)
        assert cluster.restarts == 2, (crash_at, after)
        assert outcome(cluster) == expected, (crash_at, after)


def a_life_of_larger_pods(cluster: Cluster) -> None:
    """Pods have a sidecar more than their templates. At first both Jobs get places that are too small."""
    cluster.sidecar = lambda: 1
    cluster.pod("first", 3)
    cluster.settle(5)
    for name in "ab":
        cluster.job(name, pods=1, cores=1, completions=2)
        cluster.settle(5)
    cluster.end_all("first")
    cluster.settle(5)
    for _ in range(2):
        for name in "aabb":
            cluster.end_all(name)
            cluster.settle(5)
    cluster.replicas("ReplicaSet", "set", 1, cores=1)
    cluster.settle(5)


@pytest.mark.soak
@pytest.mark.parametrize("placement", ["pin", "bind"])
def test_a_crash_at_any_write_overcommits_no_node_where_pods_are_larger_than_their_templates(placement: str):
    plain = Cluster(nodes=1, cores=3, placement=placement)
    a_life_of_larger_pods(plain)
    for crash_at, after in crashes(plain):
        cluster = Cluster(nodes=1, cores=3, placement=placement)
        cluster.crash_at, cluster.crash_after = crash_at, after
        a_life_of_larger_pods(cluster)
        states = {name: one["state"] for name, one in outcome(cluster)[0].items()}
        expected = {"first-pod": "Finished", "a-job": "Finished", "b-job": "Finished", "set-replicaset": "Running"}
        assert states == expected, (crash_at, after)


# Kinds with two sets of pods, and the names of these.
SETS = [
    *(("JobSet", "driver", "worker"), ("TrainJob", "initializer", "node")),
    *(("MPIJob", "launcher", "worker"), ("MiniCluster", "brokers", "gpus")),
]


# In the last ones a pod larger than its template was bound where its node had no room for it, and the nodes of a job of
# several sets that wants pods of the second alone were taken for those of the first.
@pytest.mark.soak
@pytest.mark.parametrize("seed", [*range(size("histories")), 1045, 1149, 2053])
def test_random_histories_with_crashes_promise_no_node_twice(seed):
    a_random_history(random.Random(seed))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3003, 3003 + size("histories") // 4))
def test_random_histories_with_crashes_and_nodes_that_die_promise_no_node_twice(seed: int):
    a_random_history(random.Random(seed), deaths=random.Random(-seed))


def a_random_history(rng: random.Random, deaths: random.Random | None = None) -> None:
    policy = rng.choice(("fcfs", "easy", "hybrid", "conservative"))
    placement = rng.choice(("pin", "bind"))
    cluster = Cluster(nodes=3, cores=4, policy=policy, placement=placement)
    gpu = {"gpu": "yes"}
    cluster.node("n2", 4, gpu)
    larger = rng.choice((0, 0, 0.2, 1))
    cluster.sidecar = lambda: int(rng.random() < larger)
    names: list[str] = []
    sets: list[tuple[str, str]] = []
    several: list[tuple[str, str]] = []
    for turn in range(60):
        if rng.random() < 0.3:
            cluster.crash_at, cluster.crash_after = rng.randrange(6), rng.random() < 0.5
        name = f"w{turn}"
        choice = rng.random()
        annotations = {"fluxqueue/duration": f"{rng.randint(1, 200)}"} if rng.random() < 0.7 else {}
        if choice < 0.1:
            kind, first, second = rng.choice(SETS)
            shapes = [(1, rng.randint(1, 2), rng.randint(1, 3), rng.choice((None, gpu))) for _ in range(2)]
            cluster.sets(kind, name, annotations, **{first: (1, 1, *shapes[0][2:]), second: shapes[1]})
            several.append((kind, name))
        elif choice < 0.3:
            pods = rng.randint(1, 4)
            cluster.job(name, pods, rng.randint(1, 3), completions=rng.randint(pods, 6), annotations=annotations)
            names.append(name)
        elif choice < 0.5:
            cluster.pod(name, rng.randint(0, 4), annotations=annotations)
            names.append(name)
        elif choice < 0.54:
            kind = rng.choice(("Deployment", "ReplicaSet", "StatefulSet"))
            cluster.replicas(kind, name, rng.randint(0, 3), rng.randint(1, 2), **annotations)
            sets.append((kind, name))
        elif choice < 0.58 and sets:
            cluster.change(*rng.choice(sets), replicas=rng.randint(0, 5))
        elif choice < 0.6:
            a_pod_of_others(cluster, f"f{turn}", rng)
        elif choice < 0.85:
            running = [pod for pod in cluster.all(PODS) if pod["status"]["phase"] == "Running"]
            if running:
                cluster.end(rng.choice(running), rng.choice(("Succeeded", "Succeeded", "Failed")))
        elif choice < 0.88 and several:
            change = (
                cluster.suspend if rng.random() < 0.6 else lambda kind, name: cluster.delete(KINDS[kind].kind, name)
            )
            which = several.pop(rng.randrange(len(several)))
            change(*which)
        elif choice < 0.92 and names:
            gone = names.pop(rng.randrange(len(names)))
            for kind in (JOBS, PODS):
                if (kind.plural, "ns", gone) in cluster.items:
                    cluster.delete(kind, gone)
        else:
            cordon_or_uncordon(cluster, f"n{rng.randrange(3)}")
        if rng.random() < 0.03:
            cluster.now -= rng.choice((0.5, 30, 3600))
        if deaths and deaths.random() < 0.2:
            deaths.choice((cluster.lose, cluster.bring_back))(f"n{deaths.randrange(3)}")
        cluster.settle(rng.choice((0, 1, 10, 100)))
        no_node_is_promised_twice(cluster)
    cluster.crash_at = None
    for kind, name in sets:
        cluster.delete(KINDS[kind].kind, name)
    for index in range(3):
        cluster.bring_back(f"n{index}")
    all_that_waits_comes_to_its_turn(cluster, gpu)


def cordon_or_uncordon(cluster: Cluster, name: str) -> None:
    node = cluster.one(NODES, name, "")
    node["spec"] = {} if node["spec"] else {"unschedulable": True}
    cluster.put(NODES, node)


def a_pod_of_others(cluster: Cluster, name: str, rng: random.Random) -> None:
    """One that ends by itself, or goes on until somebody ends it."""
    pod = cluster.pod(name, rng.randint(1, 3), namespace="other")
    pod["spec"]["restartPolicy"] = rng.choice(("Always", "Never"))
    cluster.put(PODS, pod)


def all_that_waits_comes_to_its_turn(cluster: Cluster, gpu: dict[str, str]) -> None:
    """What runs ends, on nodes that are all usable."""
    for index in range(3):
        cluster.node(f"n{index}", 4, gpu if index == 2 else {})
    cluster.settle(5)
    for _ in range(200):
        running = [pod for pod in cluster.all(PODS) if pod["status"]["phase"] == "Running"]
        if not running:
            break
        for pod in running:
            cluster.end(pod)
        cluster.settle(5)
    left = {flux["metadata"]["name"]: flux["status"] for flux in cluster.all(FLUXJOBS)}
    waiting = {name: one for name, one in left.items() if one["state"] not in ("Finished", "Failed")}
    # Four pods of three cores each are more than three nodes of four cores could have.
    assert all("no node could ever serve it" in one.get("reason", "") for one in waiting.values()), waiting


def no_node_is_promised_twice(cluster: Cluster) -> None:
    """What jobs with nodes have of a node is no more than it has, without what pods of others have taken since."""
    core = cluster.queue
    for node in cluster.all(NODES):
        name = node["metadata"]["name"]
        promised = sum(
            place.amounts.get("cpu", 0)
            for job in core.context.entries.values()
            for place in job.slots
            if place.node == name
        )
        assert promised <= 4000, (name, promised)
