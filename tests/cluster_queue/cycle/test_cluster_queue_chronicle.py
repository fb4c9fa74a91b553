"""What the core tells of jobs: each change once, and of a core that begins anew the same as of the one before."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_cluster import OWN, Cluster

from headrace.cluster_queue.cycle import external
from headrace.cluster_queue.cycle.chronicle import Record
from headrace.cluster_queue.cycle.cycle import Cycle
from headrace.cluster_queue.model.entry import State
from headrace.cluster_queue.names import FLUXJOBS
from headrace.k8s.objects.kinds import JOBS, PODS


def told(cluster: Cluster, name: str) -> list[str]:
    """The states of a job in the records, in order."""
    mine = [one for one in cluster.records if one.facts.name == name]
    return ["gone" if one.is_gone else one.facts.state.value for one in mine]


def test_a_job_is_told_of_at_each_change_of_its_state() -> None:
    cluster = Cluster(nodes=1)
    cluster.job("first", 1, 4)
    cluster.settle(5)
    cluster.job("second", 2, 2)
    # Positions and estimates change meanwhile.
    cluster.settle(100)
    cluster.end_all("first")
    cluster.settle(5)
    cluster.end_all("second")
    cluster.settle(5)
    assert told(cluster, "second") == ["Held", "Released", "Running", "Finished"]
    held, released, *_, over = [one.facts for one in cluster.records if one.facts.name == "second"]
    assert (held.width, held.held, held.kind, held.namespace, held.queue) == (2, 0, "Job", "ns", "default")
    assert (released.nodes, released.held, released.started_at) == ("n[0,0]", 2, over.started_at)
    assert over.queued_at < over.started_at < over.ended_at
    assert over.version > released.version > held.version


def test_an_object_that_is_deleted_is_told_of_unless_it_had_ended() -> None:
    cluster = Cluster(nodes=1)
    for name in ("ends", "runs", "waits"):
        cluster.pod(name, 2)
    cluster.settle(5)
    cluster.end_all("ends")
    cluster.delete(PODS, "runs")
    cluster.delete(PODS, "waits")
    cluster.settle(5)
    cluster.delete(PODS, "ends")
    cluster.settle(5)
    assert told(cluster, "ends")[-1] == "Finished"
    assert told(cluster, "runs")[-1] == told(cluster, "waits")[-1] == "gone"
    assert cluster.queue.chronicle.all_now(0) == []


def test_a_job_that_its_user_suspends_says_when_it_waits_anew() -> None:
    cluster = Cluster(nodes=1)
    cluster.job("a", 1, 4)
    cluster.settle(20)
    cluster.job("b", 1, 4)
    job = cluster.one(JOBS, "a")
    job["spec"]["suspend"] = True
    cluster.put(JOBS, job)
    suspended_at = cluster.now
    cluster.settle(5)
    # It is older, so it starts again at once.
    assert told(cluster, "a") == ["Released", "Running", "Held", "Released", "Running"]
    facts = [one.facts for one in cluster.records if one.facts.name == "a"]
    assert [one.requeued_at for one in facts] == [0, 0, suspended_at, 0, 0]
    assert facts[-1].queued_at == facts[0].queued_at
    assert facts[-1].started_at > facts[0].started_at


def test_a_fluxjob_that_is_deleted_by_hand_is_no_end() -> None:
    cluster = Cluster(nodes=1)
    cluster.pod("a", 1)
    cluster.settle(5)
    assert told(cluster, "a") == ["Released", "Running"]
    cluster.delete(FLUXJOBS, "a-pod")
    cluster.settle(5)
    assert "gone" not in told(cluster, "a")
    assert {one.facts.uid for one in cluster.records} == {cluster.one(PODS, "a")["metadata"]["uid"]}


def test_of_two_groups_of_one_name_each_is_a_job() -> None:
    cluster = Cluster(nodes=1)
    for _ in range(2):
        cluster.pod("a", 1, labels={"fluxqueue/group": "g"}, annotations={"fluxqueue/group-size": "1"})
        cluster.settle(5)
        cluster.delete(PODS, "a")
        cluster.settle(5)
    assert len({one.facts.uid for one in cluster.records}) == 2
    assert {one.facts.kind for one in cluster.records} == {"Group"}


@pytest.mark.parametrize("seconds", [0, 40])
def test_a_core_that_begins_anew_tells_the_same(seconds: int) -> None:
    cluster = Cluster(nodes=1)
    for name in "abc":
        cluster.job(name, 1, 2)
        cluster.settle(5)
    cluster.end_all("a")
    cluster.settle(5)

    def now(core: Cycle) -> dict[str, Any]:
        return {one.facts.uid: one.facts for one in core.chronicle.all_now(cluster.now)}

    before = now(cluster.queue)
    seen = len(cluster.records)
    cluster.restart()
    cluster.settle(seconds)
    assert now(cluster.queue) == before
    assert {one.state for one in before.values()} == {State.FINISHED, State.RUNNING}
    # What is seen for the first time is told by `all_now` alone.
    assert cluster.records[seen:] == []


def test_a_fluxjob_whose_object_went_while_no_core_ran_is_told_of() -> None:
    cluster = Cluster(nodes=1)
    cluster.pod("a", 1)
    cluster.settle(5)
    flux = cluster.one(FLUXJOBS, "a-pod")
    cluster.items = {key: one for key, one in cluster.items.items() if key[2] != "a"}
    cluster.restart()
    records: list[Record] = cluster.queue.step(cluster._changes, cluster.now).records
    assert [(one.facts.name, one.is_gone) for one in records] == [("a", True)]
    assert flux["status"]["state"] == "Running"


def test_a_job_of_another_scheduler_has_ended_when_its_fluxjob_is_gone() -> None:
    cluster = Cluster(nodes=1)
    cluster.settle(5)
    made = []
    for jobid in (1, 2):
        body = external.made_of(jobid, OWN, "default", {"n0": {"cpu": 1000}}, {}, 60)
        flux = cluster.put(FLUXJOBS, body)
        flux["status"] = external.status_of(flux, cluster.now)
        made.append(cluster.put(FLUXJOBS, flux))
        cluster.settle(5)
    cluster.drop(FLUXJOBS, made[0])
    cluster.settle(5)
    assert told(cluster, "match-1") == ["Running", "Finished"]
    assert told(cluster, "match-2") == ["Running"]
    running, over = [one.facts for one in cluster.records if one.facts.name == "match-1"]
    assert (running.kind, running.nodes, running.width, running.held) == ("External", "n0", 1, 1)
    assert (over.held, over.ended_at, over.version) == (0, over.started_at + 10, running.version)
    assert [one.facts.name for one in cluster.queue.chronicle.all_now(0)] == ["match-2"]
