"""Accounts of namespaces by themselves, and what quotas do in a cluster in memory."""

from __future__ import annotations

import random
from typing import Any

import pytest
from simulated_cluster import Cluster

from headrace.cluster_queue.model.quota import Account, quota_of
from headrace.cluster_queue.names import FLUXJOBS, FLUXQUEUES, NAMESPACES
from headrace.k8s.objects.kinds import JOBS, PODS

HOUR = {"fluxqueue/duration": "1h"}


def test_limits_are_in_the_units_of_requests():
    item = {"namespace": "ns", "cpu": "1500m", "memory": "1Gi", "gpu": 2, "pods": 3, "jobs": 4}
    assert quota_of(item) == {"cpu": 1500, "memory": 1024, "gpu": 2, "pod": 3, "job": 4}
    assert quota_of({"namespace": "ns", "cpu": 2}) == {"cpu": 2000}


def test_who_is_in_the_order_follows_from_what_waits_and_runs_alone():
    rng = random.Random(1)
    for _ in range(200):
        limits = {"cpu": rng.randint(0, 9), "job": rng.randint(0, 5)}
        account = Account("ns", limits)
        waits: dict[int, tuple[Any, dict[str, int]]] = {}
        runs: dict[int, dict[str, int]] = {}
        inside: set[int] = set()
        for jobid in rng.choices(range(12), k=40):
            amounts = {"cpu": rng.randint(0, 4), "job": 1}
            waits.pop(jobid, None)
            runs.pop(jobid, None)
            choice = rng.randrange(3)
            if choice == 0:
                runs[jobid] = amounts
                account.run(jobid, amounts)
            elif choice == 1:
                waits[jobid] = (rng.randint(-2, 0), rng.random(), jobid), amounts
                account.wait(jobid, *waits[jobid])
            else:
                account.forget(jobid)
            if rng.random() < 0.5:
                for told, is_within in account.review():
                    (inside.add if is_within else inside.discard)(told)
                inside &= waits.keys()
                used = {kind: sum(one[kind] for one in runs.values()) for kind in limits}
                for one, (_, asked) in sorted(waits.items(), key=lambda entry: entry[1][0]):
                    fits = all(not asked[kind] or used[kind] + asked[kind] <= limits[kind] for kind in limits)
                    assert (one in inside) is fits
                    assert (account.excess(one) == "") is fits
                    if fits:
                        used = {kind: used[kind] + asked[kind] for kind in limits}


def limited(nodes: int = 2, cores: int = 4, **quota: Any) -> Cluster:
    """A cluster whose namespace `ns` has a quota."""
    return Cluster(nodes, cores, quotas=[{"namespace": "ns", **quota}])


def condition(cluster: Cluster, name: str) -> dict[str, Any]:
    return next(one for one in cluster.status(name)["conditions"] if one["type"] == "Quota")


def states(cluster: Cluster, names: str) -> str:
    return " ".join(cluster.state(name) for name in names)


@pytest.mark.parametrize(
    ("quota", "told"),
    [
        ({"cpu": "5"}, "cpu 8 of 5 (3 over, 4 taken)"),
        ({"cpu": "5500m", "pods": 9}, "cpu 8 of 5500m (2500m over, 4 taken)"),
        ({"pods": 3}, "pods 4 of 3 (1 over, 2 taken)"),
        ({"jobs": 1}, "jobs 2 of 1 (1 over, 1 taken)"),
        (
            {"memory": "1Gi", "jobs": 1, "cpu": 5, "gpu": 0},
            "cpu 8 of 5 (3 over, 4 taken), jobs 2 of 1 (1 over, 1 taken)",
        ),
    ],
)
@pytest.mark.parametrize("policy", ["fcfs", "conservative"])
def test_a_job_over_its_quota_waits_outside_the_order_and_blocks_nobody(quota, told, policy):
    cluster = Cluster(2, 4, quotas=[{"namespace": "ns", **quota}], policy=policy)
    cluster.put(NAMESPACES, {"metadata": {"name": "free", "labels": {"fluxqueue/queue": "default"}}})
    cluster.job("a", pods=2, cores=2)
    cluster.settle()
    cluster.job("b", pods=2, cores=2)
    cluster.settle()
    cluster.pod("c", 2, namespace="free")
    cluster.settle(5)
    for _ in range(2):
        assert states(cluster, "ab") == "Running Held"
        assert cluster.one(PODS, "c", "free")["status"]["phase"] == "Running"
        status = cluster.status("b")
        assert "position" not in status
        assert status["reason"] == f"over the quota of namespace ns: {told}"
        assert (condition(cluster, "b")["status"], condition(cluster, "b")["reason"]) == ("False", "OverQuota")
        assert condition(cluster, "b")["message"] == status["reason"]
        assert condition(cluster, "a")["status"] == "True"
        before = len(cluster.writes)
        cluster.restart()
        cluster.settle(600)
        assert cluster.writes[before:] == []
    cluster.end_all("a")
    cluster.settle()
    assert states(cluster, "ab") == "Finished Running"
    assert (condition(cluster, "b")["status"], "message" in condition(cluster, "b")) == ("True", False)


def test_jobs_enter_the_order_by_priority_and_time_and_smaller_ones_pass_by():
    cluster = limited(cpu=3)
    cluster.pod("a", 2)
    cluster.settle(1)
    for name, cores in (("b", 2), ("c", 2), ("d", 1)):
        cluster.pod(name, cores)
        cluster.settle(1)
    assert states(cluster, "abcd") == "Running Held Held Running"
    urgent = cluster.one(PODS, "c")
    urgent["spec"]["priority"] = 100
    cluster.put(PODS, urgent)
    cluster.settle(1)
    cluster.end_all("a")
    cluster.settle(5)
    assert states(cluster, "bc") == "Held Running"


def test_a_job_of_higher_priority_takes_the_room_of_one_that_still_waits():
    cluster = limited(nodes=1, cores=2, jobs=1)
    cluster.put(NAMESPACES, {"metadata": {"name": "free", "labels": {"fluxqueue/queue": "default"}}})
    cluster.pod("full", 2, namespace="free")
    cluster.settle()
    cluster.pod("a")
    cluster.settle(5)
    assert cluster.status("a")["position"] == 1
    urgent = cluster.pod("b")
    urgent["spec"]["priority"] = 100
    cluster.put(PODS, urgent)
    cluster.settle(5)
    assert cluster.status("b")["position"] == 1
    assert cluster.status("a")["reason"] == "over the quota of namespace ns: jobs 2 of 1 (1 over, 1 taken)"
    assert "position" not in cluster.status("a")


def test_a_job_that_alone_is_over_its_quota_says_so_and_waits_without_writes():
    cluster = limited(cpu=3)
    cluster.pod("a", 4)
    for name in "bc":
        cluster.pod(name, 1)
        cluster.settle(1)
    cluster.settle(100)
    assert cluster.status("a")["reason"] == "it alone exceeds the quota of namespace ns: cpu 4 of 3 (1 over)"
    assert states(cluster, "abc") == "Held Running Running"
    before = len(cluster.writes)
    cluster.end_all("b")
    cluster.settle(600)
    assert not [one for one in cluster.writes[before:] if "a-pod" in str(one)]
    queue = cluster.one(FLUXQUEUES, "default", "")
    queue["spec"]["quotas"][0]["cpu"] = 5
    cluster.put(FLUXQUEUES, queue)
    cluster.settle(5)
    assert cluster.state("a") == "Running"


def test_what_runs_stays_when_quotas_change():
    cluster = Cluster()
    for name in "ab":
        cluster.pod(name, 2)
    cluster.settle()
    queue = cluster.one(FLUXQUEUES, "default", "")
    queue["spec"]["quotas"] = [{"namespace": "ns", "cpu": 3}]
    cluster.put(FLUXQUEUES, queue)
    cluster.pod("c", 1)
    cluster.settle(5)
    assert states(cluster, "abc") == "Running Running Held"
    assert cluster.status("c")["reason"].endswith("cpu 5 of 3 (2 over, 4 taken)")
    cluster.end_all("a")
    cluster.settle(5)
    assert states(cluster, "bc") == "Running Running"
    cluster.pod("d", 1)
    cluster.settle(5)
    assert cluster.state("d") == "Held"
    queue["spec"].pop("quotas")
    cluster.put(FLUXQUEUES, queue)
    cluster.settle(5)
    assert cluster.state("d") == "Running"


def test_amounts_of_a_waiting_job_are_told_at_leisure():
    """Ends write one status at once, that of the first job; those of the others each 30 s at most."""
    cluster = limited(nodes=4, pods=4)
    for index in range(4):
        cluster.pod(f"r{index}")
    cluster.settle(1)
    for name in "abcdef":
        cluster.job(name, pods=4)
    cluster.settle(5)
    before = len(cluster.log)
    cluster.end_all("r0")
    cluster.settle(5)
    assert [line for line in cluster.log[before:] if line.endswith("Held")] == ["a-job Held"]
    cluster.settle(60)
    for name in "abcdef":
        assert cluster.status(name)["reason"].endswith("pods 7 of 4 (3 over, 3 taken)")


@pytest.mark.parametrize("seed", range(20))
def test_random_histories_keep_the_quota_and_leave_none_of_it_unused(seed):
    rng = random.Random(seed)
    quota = {"cpu": rng.randint(3, 8), "jobs": rng.randint(2, 5)}
    cluster = Cluster(3, 4, policy=rng.choice(("fcfs", "easy", "conservative")), quotas=[{"namespace": "ns", **quota}])
    for turn in range(40):
        if rng.random() < 0.3:
            cluster.crash_at, cluster.crash_after = rng.randrange(6), rng.random() < 0.5
        choice = rng.random()
        if choice < 0.4:
            cluster.job(f"j{turn}", rng.randint(1, 3), rng.randint(1, 3), annotations=HOUR)
        elif choice < 0.6:
            cluster.pod(f"p{turn}", rng.randint(0, 4), annotations=HOUR)
        else:
            running = [pod for pod in cluster.all(PODS) if pod["status"]["phase"] == "Running"]
            if running:
                cluster.end(rng.choice(running))
        cluster.settle(rng.choice((0, 10, 100)))
        runs = [pod for pod in cluster.all(PODS) if pod["status"]["phase"] == "Running"]
        assert (
            sum(int(pod["spec"]["containers"][0]["resources"].get("requests", {}).get("cpu", 0)) for pod in runs)
            <= quota["cpu"]
        )
        states = [flux["status"]["state"] for flux in cluster.all(FLUXJOBS)]
        assert sum(state in ("Released", "Running") for state in states) <= quota["jobs"]
    cluster.crash_at = None
    for _ in range(100):
        for name in [pod for pod in cluster.all(PODS) if pod["status"]["phase"] == "Running"]:
            cluster.end(name)
        cluster.settle(5)
    left = [flux["status"] for flux in cluster.all(FLUXJOBS) if flux["status"]["state"] != "Finished"]
    assert all("it alone exceeds the quota" in one["reason"] for one in left), left
    assert len(cluster.all(JOBS)) + len(cluster.all(PODS)) > 10


def test_a_waiting_job_that_changes_gets_what_it_asks_for_now():
    cluster = Cluster(nodes=1, cores=4, quotas=[{"namespace": "ns", "cpu": 8}])
    cluster.job("before", cores=4)
    cluster.settle(1)
    cluster.job("a", cores=1)
    cluster.settle(1)
    cluster.change("Job", "a", cores=3)
    cluster.settle(1)
    cluster.pod("b", 2)
    cluster.settle(1)
    cluster.end_all("before")
    cluster.settle(5)
    assert [place.amounts["cpu"] for job in cluster.queue.context.entries.values() for place in job.slots] == [3000]
    assert (cluster.state("a"), cluster.state("b")) == ("Running", "Held")
