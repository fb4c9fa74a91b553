"""Refresh at jobs that wait: each is at some of them, and all have their turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from simulated_cluster import Cluster

from headrace.cluster_queue.cycle import refresh
from headrace.cluster_queue.cycle.refresh import Refresh
from headrace.cluster_queue.model.entry import Entry
from headrace.cluster_queue.names import FLUXQUEUES, HELD
from headrace.k8s.objects import kinds

JOBS = [f"w{number:02}" for number in range(40)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """One node that a job has, and forty that wait; a look is at two of them, and five others."""
    monkeypatch.setattr(refresh, "_HEAD", 2)
    monkeypatch.setattr(refresh, "_SLICE", 5)
    found = Cluster(nodes=1, policy="easy")
    for name in ("r", *JOBS):
        found.job(name, cores=4, annotations={"fluxqueue/duration": "1h"})
    found.settle(60)
    return found


def positions(cluster: Cluster, names: list[str]) -> list[int]:
    return [cluster.status(name)["position"] for name in names]


def test_a_refresh_covers_the_first_jobs_and_some_others(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[list[str]] = []
    refresh, update = Refresh.refresh, Refresh.update

    def begun(self: Refresh, now: float) -> Iterator[Entry]:
        looked.append([])
        yield from refresh(self, now)

    def seen(self: Refresh, job: Entry, now: int, expected: float = 0) -> None:
        looked[-1].append(job.item["metadata"]["name"])
        update(self, job, now, expected)

    monkeypatch.setattr(Refresh, "refresh", begun)
    monkeypatch.setattr(Refresh, "update", seen)
    cluster.end_all("r")
    cluster.settle(60)
    # In the step that sees the pod's end nothing of the order has changed yet.
    assert looked.pop(0) == []
    assert all(names[:2] == ["w01", "w02"] and len(names) <= 7 for names in looked)
    assert {name for names in looked for name in names} == set(JOBS[1:])


def test_all_positions_are_refreshed_in_turn(cluster: Cluster) -> None:
    assert positions(cluster, JOBS) == list(range(1, 41))
    for name in ("r", "w00", "w01"):
        cluster.end_all(name)
        cluster.settle(60)
    waiting = JOBS[3:]
    assert positions(cluster, waiting) == list(range(1, 38))
    starts = [cluster.status(name)["estimatedStart"] for name in waiting]
    assert starts == sorted(starts) and len(set(starts)) == len(waiting)


def test_a_queue_that_is_made_anew_amid_a_tour_tells_all_their_places(cluster: Cluster) -> None:
    cluster.end_all("r")
    cluster.settle(3)
    queue = cluster.one(FLUXQUEUES, "default", "")
    cluster.put(FLUXQUEUES, {**queue, "spec": {**queue["spec"], "matchPolicy": "first"}})
    cluster.job("last", cores=4, annotations={"fluxqueue/duration": "1h"})
    cluster.settle(120)
    assert positions(cluster, [*JOBS[1:], "last"]) == list(range(1, 41))


def test_a_job_behind_the_first_is_told_at_once_why_it_waits(cluster: Cluster) -> None:
    job = cluster.one(kinds.JOBS, "w30")
    assert "not known" not in cluster.status("w30")["reason"]
    cluster.put(kinds.JOBS, {**job, "metadata": {**job["metadata"], "annotations": {HELD: "true"}}})
    cluster.settle()
    assert "its duration is not known" in cluster.status("w30")["reason"]
