"""Matches for other schedulers on the live graph: what they hold, over restarts, until they are cancelled."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from simulated_cluster import Cluster

from headrace.fluxqueue.names import FLUXJOBS
from headrace.fluxqueue.services.backend import Matched, Pods, Unanswerable
from headrace.fluxqueue.services.live_graph import LiveGraph
from headrace.kube.runtime.api import ApiError

Object = dict[str, Any]


class Controller:
    """Writes the FluxJobs of matches into a cluster in memory."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.core = cluster.queue
        self.begun = asyncio.Event()
        self.failure: Exception | None = None

    async def make_external(self, fluxjob: Object, now: float) -> Object:
        if self.failure:
            raise self.failure
        return self.cluster.put(FLUXJOBS, fluxjob)

    async def unmake_external(self, fluxjob: Object) -> None:
        self.cluster.drop(FLUXJOBS, fluxjob)


class Live:
    """A cluster of two nodes with four cores each, and the services on it. The simulated time is long past."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = Cluster(nodes=2, cores=4)
        self.cluster.settle()
        monkeypatch.setattr("time.time", lambda: self.cluster.now)
        self.begin()

    def begin(self) -> None:
        self.controller: Any = Controller(self.cluster)
        self.graph = LiveGraph(self.controller, "own", "default")

    def match(self, jobspec: object) -> Matched:
        text = jobspec if isinstance(jobspec, str) else json.dumps(jobspec)
        return asyncio.run(self.graph.match(text, False))

    def pods(self, number: int = 1, cores: int = 1, **more: Any) -> Matched:
        return asyncio.run(self.graph.match_pods(Pods("g", number, cores, **more)))

    def cancel(self, jobid: int) -> None:
        asyncio.run(self.graph.cancel(jobid))


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Live:
    return Live(monkeypatch)


def slots(count: int, cores: int, **more: object) -> Object:
    slot = {"type": "slot", "count": count, "label": "a", "with": [{"type": "core", "count": cores}]}
    return {"version": 1, "resources": [slot], "attributes": {"system": {"duration": 60, **more}}}


def test_a_match_holds_its_nodes_until_it_is_cancelled(live: Live) -> None:
    found = live.match(slots(2, 3))
    assert sorted(found.cores) == [("n0", 3), ("n1", 3)]
    vertices = [one["metadata"] for one in found.allocation["graph"]["nodes"]]
    assert sorted(one["basename"] for one in vertices if one["type"] == "node") == ["n0", "n1"]
    live.cluster.pod("waits", 2)
    live.cluster.settle(5)
    assert live.cluster.state("waits") == "Held"
    with pytest.raises(Unanswerable, match="no room now: insufficient resources: "):
        live.match(slots(1, 2))
    live.cancel(found.jobid)
    live.cluster.settle(5)
    assert live.cluster.state("waits") == "Running"
    with pytest.raises(Unanswerable, match=f"there is no job {found.jobid}"):
        live.cancel(found.jobid)


def test_matches_survive_the_queue_and_end_with_their_fluxjobs(live: Live) -> None:
    found = live.pods(2, 4)
    live.cluster.restart()
    live.begin()
    live.cluster.pod("waits", 1)
    live.cluster.settle(5)
    assert live.cluster.state("waits") == "Held"
    assert live.graph.groups() == {"g": 2}
    # Another id, though the time has not moved on.
    (fluxjob,) = [one for one in live.cluster.all(FLUXJOBS) if one["spec"]["type"] == 10]
    assert fluxjob["metadata"]["labels"]["fluxqueue/jobid"] == str(found.jobid)
    live.cluster.drop(FLUXJOBS, fluxjob)
    live.cluster.settle(5)
    assert live.cluster.state("waits") == "Running"
    assert live.graph.groups() == {}
    assert live.pods().jobid != found.jobid


def test_a_match_that_cannot_be_written_down_holds_nothing(live: Live) -> None:
    live.controller.failure = ApiError(500, "", "the disk is full")
    with pytest.raises(Unanswerable, match="the match could not be written down: the disk is full"):
        live.match(slots(2, 4))
    live.controller.failure = None
    assert live.match(slots(2, 4)).cores


def test_what_a_match_asks_for_is_part_of_a_pool_and_a_pod(live: Live) -> None:
    assert live.pods(3, 1).cores == (("n0", 3),)
    assert live.match(slots(1, 1)).cores == (("n0", 1),)
    text = (
        "resources: [{type: node, count: 1, with: [{type: slot, count: 1, label: a, with: [{type: core, count: 4}]}]}]"
    )
    assert live.match(text).cores == (("n1", 4),)
    fluxjob = live.cluster.all(FLUXJOBS)[-1]
    (node,) = fluxjob["spec"]["resources"]["nodes"]
    assert node["amounts"]["pod"] == 1 and node["amounts"]["cpu"] in (1000, 3000, 4000)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "[",
            "resources: 1",
            "resources: [1]",
            "resources: [{type: core}]",
            "resources: [{type: core, count: x}]",
        ),
        *(json.dumps(slots(1, 1, constraints={"zork": []})), "resources: [{type: zork, count: 1}]"),
        "resources: [{type: slot, count: 1, label: a, with: [{type: {}, count: 1}]}]",
    ],
)
def test_wrong_jobspecs_are_refused(live: Live, text: str) -> None:
    with pytest.raises(Unanswerable):
        live.match(text)


def test_the_graph_is_that_of_the_cluster(live: Live) -> None:
    assert asyncio.run(live.graph.init("first", "{}")) is False
    names = {one["metadata"].get("name") for one in json.loads(live.graph.resources())["graph"]["nodes"]}
    assert {"n0", "n1"} <= names
    other = LiveGraph(live.controller, "own", "none")
    for asks in (other.resources, lambda: asyncio.run(other.match_pods(Pods("g", 1, 1)))):
        with pytest.raises(Unanswerable, match="there is no FluxQueue none"):
            asks()


@pytest.mark.parametrize("resources", [None, {"nodes": 1}, {"nodes": [1, {"name": "n0", "amounts": {"cpu": "x"}}]}])
def test_a_fluxjob_that_somebody_made_up_holds_nothing(live: Live, resources: object) -> None:
    spec = {"type": 10, "queue": "default", "resources": resources}
    live.cluster.put(
        FLUXJOBS, {"metadata": {"name": "x", "namespace": "ns", "labels": {"fluxqueue/jobid": "7"}}, "spec": spec}
    )
    live.cluster.settle(1)
    assert live.match(slots(2, 4)).cores


def test_a_fluxqueue_that_is_not_there_is_told_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    live = Live(monkeypatch)
    live.graph.tell_unknown_queue()
    assert not caplog.messages
    LiveGraph(live.controller, "own", "zz").tell_unknown_queue()
    assert caplog.messages == ["there is no FluxQueue zz for gRPC to match; there are default"]
