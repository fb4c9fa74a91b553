"""Streams of jobs whose pods run as long as they say, second by second: promises that policies make are kept."""

from __future__ import annotations

import heapq
import random
from typing import Any

import pytest
from simulated_cluster import Cluster

from headrace.cluster_queue.names import FLUXJOBS, NODES, PRIORITY_CLASSES
from headrace.k8s.objects.kinds import JOBS, PODS
from headrace.k8s.objects.timestamps import seconds_of

# Seconds by which a start may be later than the first estimate of it.
TOLERANCE = 3


class Stream:
    """Jobs of a cluster, whose pods end when their durations are over; `first_estimates` are of starts that the policy
    has reserved.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.first_estimates: dict[str, float] = {}
        self._ends: dict[str, float] = {}
        self._durations: dict[str, int] = {}

    def submit(self, name: str, pods: int, cores: int, seconds: int) -> None:
        self._durations[name] = seconds
        self.cluster.job(name, pods, cores, annotations={"fluxqueue/duration": f"{seconds}"})

    def second(self) -> None:
        """A second passes: what ends by then has ended."""
        self.cluster.now += 1
        for pod in self.cluster.all(PODS):
            uid, meta = pod["metadata"]["uid"], pod["metadata"]
            if pod["status"]["phase"] == "Running":
                runs = self._durations[meta["labels"]["job"]]
                if self.cluster.now >= self._ends.setdefault(uid, self.cluster.now - 1 + runs):
                    self.cluster.end(pod)
        self.cluster.settle()
        for flux in self.cluster.all(FLUXJOBS):
            name, status = flux["spec"]["name"], flux.get("status") or {}
            reserved = [one["status"] for one in status.get("conditions", ()) if one["type"] == "Reserved"]
            if status.get("estimatedStart") and reserved == ["True"]:
                self.first_estimates.setdefault(name, seconds_of(status["estimatedStart"]))
            if status.get("state") == "Finished":
                self.cluster.drop(JOBS, self.cluster.one(JOBS, name))

    def started(self, name: str) -> float:
        status = self.cluster.status(name)
        return seconds_of(status["startedAt"]) if status.get("startedAt") else 0


@pytest.mark.parametrize("seed", range(3))
def test_under_easy_a_wide_job_starts_at_its_first_estimate_in_an_endless_stream_of_small_ones(seed):
    rng = random.Random(seed)
    cluster = Cluster(nodes=6, cores=4, policy="easy")
    stream = Stream(cluster)
    for turn in range(240):
        if turn == 40:
            stream.submit("wide", 6, 4, 20)
        stream.submit(f"s{turn}", 1, rng.randint(1, 2), rng.randint(5, 40))
        stream.second()
        if stream.started("wide"):
            break
    assert stream.started("wide") <= stream.first_estimates["wide"] + TOLERANCE
    # Small ones were there that could have gone on for ever.
    assert sum(flux["status"]["state"] == "Held" for flux in cluster.all(FLUXJOBS)) > 3


@pytest.mark.parametrize("seed", range(2))
def test_under_conservative_no_job_starts_later_than_its_first_estimate(seed):
    rng = random.Random(seed)
    cluster = Cluster(nodes=4, cores=4, policy="conservative")
    stream = Stream(cluster)
    starts: dict[str, float] = {}
    for turn in range(150):
        if turn < 90 and rng.random() < 0.5:
            stream.submit(f"j{turn}", rng.randint(1, 4), rng.randint(1, 4), rng.randint(3, 30))
        stream.second()
        for flux in cluster.all(FLUXJOBS):
            name = flux["spec"]["name"]
            if stream.started(name):
                starts.setdefault(name, stream.started(name))
    late = {
        name: (start, stream.first_estimates[name])
        for name, start in starts.items()
        if name in stream.first_estimates and start > stream.first_estimates[name] + TOLERANCE
    }
    assert late == {}
    assert len(starts) > 20
    assert len(stream.first_estimates) > 10


@pytest.mark.parametrize("policy", ["fcfs", "easy", "hybrid", "conservative"])
def test_jobs_run_where_they_may_while_nodes_are_cordoned_tainted_drained_and_go_and_come(policy):
    rng = random.Random(policy)
    cluster = Cluster(nodes=4, cores=4, policy=policy)
    stream = Stream(cluster)
    states: dict[str, dict[str, Any]] = {f"n{index}": {} for index in range(4)}
    taints = [{"key": "repair", "effect": "NoSchedule"}]
    for turn in range(120):
        if rng.random() < 0.4:
            stream.submit(f"j{turn}", rng.randint(1, 3), rng.randint(1, 4), rng.randint(3, 20))
        name = f"n{rng.randrange(4)}"
        if rng.random() < 0.2 and (NODES.plural, "", name) in cluster.items:
            states[name] = rng.choice(({}, {"unschedulable": True}, {"taints": taints}))
            cluster.node(name, 4, **states[name])
        elif rng.random() < 0.1 and not any(pod["spec"].get("nodeName") == name for pod in cluster.all(PODS)):
            if (NODES.plural, "", name) in cluster.items:
                cluster.delete(NODES, name, "")
            else:
                cluster.node(name, 4, **states[name])
        before = {pod["metadata"]["uid"] for pod in cluster.all(PODS) if pod["spec"].get("nodeName")}
        stream.second()
        for pod in cluster.all(PODS):
            node = pod["spec"].get("nodeName")
            if node and pod["metadata"]["uid"] not in before:
                assert not states[node].get("unschedulable")
        for name, spec in states.items():
            if (NODES.plural, "", name) in cluster.items and not spec:
                assert cluster.free(name) >= 0
    for name in states:
        states[name] = {}
        cluster.node(name, 4)
    for _ in range(400):
        stream.second()
        if not cluster.all(JOBS):
            return
    raise AssertionError([flux["status"] for flux in cluster.all(FLUXJOBS)])


@pytest.mark.parametrize("seed", range(2))
def test_under_conservative_no_start_comes_after_its_first_estimate_where_durations_are_exact(seed):
    chance = random.Random(seed)
    cluster = Cluster(nodes=10, cores=1, policy="conservative")
    begin, due = cluster.now, 0.0
    # By name: the width and seconds that it runs.
    jobs: dict[str, tuple[int, float]] = {}
    events: list[tuple[float, str]] = []
    for number in range(40):
        due += chance.expovariate(0.4)
        jobs[f"j{number}"] = chance.choice((1, 1, 2, 4, 8)), round(chance.lognormvariate(2, 1), 2)
        events.append((begin + due, f"j{number}"))
    estimates: dict[str, float] = {}
    started: dict[str, float] = {}
    while events:
        at = min(events[0][0], max(cluster._wake_at, cluster.now))
        cluster.settle(at - cluster.now)
        while events and events[0][0] <= cluster.now:
            _, name = heapq.heappop(events)
            width, seconds = jobs[name]
            if name in started:
                cluster.end_all(name)
            else:
                cluster.job(name, width, annotations={"fluxqueue/duration": f"{seconds}s"})
        cluster.settle()
        for name, (width, seconds) in jobs.items():
            told = cluster.status(name)
            if told.get("estimatedStart"):
                estimates.setdefault(name, seconds_of(told["estimatedStart"]))
            if (
                name not in started
                and len([p for p in cluster.pods_of(name) if p["status"]["phase"] == "Running"]) == width
            ):
                started[name] = cluster.now
                heapq.heappush(events, (cluster.now + seconds, name))
    assert len(started) == 40 and len(estimates) > 10
    assert not {name: started[name] - at for name, at in estimates.items() if started[name] > at + TOLERANCE}


@pytest.mark.parametrize("policy", ["fcfs", "easy", "hybrid", "conservative"])
@pytest.mark.parametrize(
    "what", ["a job runs late", "the first is on hold for a while", "the first gets shorter", "a class"]
)
def test_jobs_start_in_their_order_whoever_has_a_reservation(policy, what):
    """Of jobs that ask for the same, the first in the order starts first, whatever has happened meanwhile."""
    cluster = Cluster(nodes=1, cores=2, policy=policy)
    cluster.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 100})
    first = "first"
    for name in ("runs", "first", "second"):
        cluster.job(name, 1, 2, annotations={"fluxqueue/duration": "60s"})
        cluster.settle(5)
    job = cluster.one(JOBS, "first")
    if what == "a job runs late":
        cluster.settle(60)
    elif what == "the first is on hold for a while":
        for text in ("true", "false"):
            job["metadata"]["annotations"]["fluxqueue/hold"] = text
            cluster.put(JOBS, job)
            cluster.settle(5)
    elif what == "the first gets shorter":
        job["metadata"]["annotations"]["fluxqueue/duration"] = "50s"
        cluster.put(JOBS, job)
        cluster.settle(5)
    else:
        first = "urgent"
        spec = cluster.job("urgent", 1, 2, annotations={"fluxqueue/duration": "60s"}, suspend=True)["spec"]
        spec["template"]["spec"]["priorityClassName"] = "high"
        cluster.change("Job", "urgent", **{**spec, "suspend": False})
        cluster.settle(5)
    assert cluster.status(first)["position"] == 1
    cluster.end_all("runs")
    cluster.settle(5)
    running = [one["spec"]["name"] for one in cluster.all(FLUXJOBS) if one["status"]["state"] == "Running"]
    assert running == [first]
