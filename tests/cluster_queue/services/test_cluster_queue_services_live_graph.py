"""Matches for other schedulers on the live graph: what they hold, over restarts, until they are cancelled."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from simulated_cluster import Cluster

from headrace.cluster_queue import client
from headrace.cluster_queue.cycle import external
from headrace.cluster_queue.model.entry import LATENCY
from headrace.cluster_queue.names import FLUXJOBS, FLUXQUEUES, NAMESPACES, NODES, QUEUE
from headrace.cluster_queue.services import live_graph
from headrace.cluster_queue.services.backend import Matched, Pods, Unanswerable
from headrace.cluster_queue.services.live_graph import Grpc, LiveGraph, LiveServices
from headrace.k8s.objects.kinds import Kind
from headrace.k8s.objects.timestamps import seconds_of, text_of
from headrace.k8s.runtime.api import ApiError, Listing, Unreachable
from waiting import until_in_loop

Object = dict[str, Any]


class Controller:
    """Writes the FluxJobs of matches into a cluster in memory."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.cycle = cluster.queue
        self.begun = asyncio.Event()
        self.failure: Exception | None = None

    async def make_external(self, fluxjob: Object, now: float) -> Object:
        if self.failure:
            raise self.failure
        made = self.cluster.put(FLUXJOBS, fluxjob)
        made["status"] = external.status_of(made, now)
        return self.cluster.put(FLUXJOBS, made)

    async def list_objects(self, kind: Kind, namespace: str = "") -> Listing:
        """As an API server does, for `client`."""
        return Listing(self.cluster.all(kind), "1")

    async def unmake_external(self, fluxjob: Object) -> None:
        if fluxjob["metadata"]["name"] not in {one["metadata"]["name"] for one in self.cluster.all(FLUXJOBS)}:
            raise ApiError(404, "NotFound", "")
        self.cluster.drop(FLUXJOBS, fluxjob)


class Live:
    """A cluster of two nodes with four cores each, and the services on it. The simulated time is long past."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, policy: str = "fcfs", placement: str = "pin") -> None:
        self.cluster = Cluster(nodes=2, cores=4, policy=policy, placement=placement)
        self.cluster.settle()
        monkeypatch.setattr("time.time", lambda: self.cluster.now)
        self.begin()

    def begin(self) -> None:
        self.controller: Any = Controller(self.cluster)
        self.graph = LiveGraph(self.controller, "default")

    def match(self, jobspec: object, reserves: bool = False) -> Matched:
        text = jobspec if isinstance(jobspec, str) else json.dumps(jobspec)
        return asyncio.run(self.graph.match(text, reserves))

    def pods(self, number: int = 1, cores: int = 1, **more: Any) -> Matched:
        return asyncio.run(self.graph.match_pods(Pods("g", number, cores, **more)))

    def cancel(self, jobid: int) -> None:
        asyncio.run(self.graph.cancel(jobid))

    def runs(self, name: str, pods: int, cores: int, duration: str = "") -> None:
        """A Job of some pods, and some seconds for it to start."""
        marks = {"fluxqueue/duration": duration} if duration else {}
        self.cluster.job(name, pods, cores, annotations=marks)
        self.cluster.settle(5)

    def told(self, jobid: int) -> Object:
        """The status of the FluxJob of a match."""
        return dict(self.cluster.one(FLUXJOBS, f"match-{jobid}-external", "own")["status"])

    def free(self) -> dict[str, tuple[int, tuple[str, ...]]]:
        """By node, the free cores and the jobs, as `kubectl fluxqueue nodes` has them."""
        seen = asyncio.run(client.nodes_seen(self.controller, ""))
        return {one.name: ((one.free or {})["cpu"] // 1000, one.jobs) for one in seen.lines}


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


def test_a_match_of_whole_nodes_with_nothing_of_some_resource_survives_the_queue(live: Live) -> None:
    """Kubelets tell of huge pages that a node has none."""
    for name in ("n0", "n1"):
        node = live.cluster.one(NODES, name, "")
        node["status"]["allocatable"]["hugepages-2Mi"] = "0"
        live.cluster.put(NODES, node)
    live.cluster.settle(5)
    whole = {"type": "slot", "count": 1, "label": "a", "with": [{"type": "node", "count": 1}]}
    jobspec = {"version": 1, "resources": [whole], "attributes": {"system": {"duration": 3600}}}
    matched = live.match(jobspec)
    live.cluster.settle(5)
    (fluxjob,) = live.cluster.all(FLUXJOBS)
    assert "hugepages-2Mi" not in fluxjob["spec"]["resources"]["nodes"][0]["amounts"]
    live.cluster.restart()
    live.begin()
    live.cluster.settle(5)
    assert live.match(jobspec).cores != matched.cores
    with pytest.raises(Unanswerable, match="no room now"):
        live.match(slots(1, 1))


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_match_has_of_a_node_goes_with_it_to_another_queue(live: Live, restarts: bool) -> None:
    cluster = live.cluster

    def label(node: str, pool: str) -> None:
        item = cluster.one(NODES, node, "")
        item["metadata"]["labels"] = {"pool": pool}
        cluster.put(NODES, item)

    label("n0", "a")
    label("n1", "b")
    default = cluster.one(FLUXQUEUES, "default", "")
    default["spec"]["nodeSelector"] = {"pool": "a"}
    cluster.put(FLUXQUEUES, default)
    cluster.put(FLUXQUEUES, {"metadata": {"name": "two"}, "spec": {"nodeSelector": {"pool": "b"}}})
    cluster.settle(2)
    matched = live.match(slots(1, 4))
    cluster.settle(2)
    label("n0", "b")
    if restarts:
        cluster.restart()
        live.begin()
    cluster.settle(2)
    cluster.put(NAMESPACES, {"metadata": {"name": "ns", "labels": {QUEUE: "two"}}})
    cluster.job("wide", 2, 4)
    cluster.settle(5)
    assert cluster.state("wide") == "Held"
    live.cancel(matched.jobid)
    cluster.settle(5)
    assert cluster.state("wide") == "Running"


def test_a_match_gets_no_node_with_a_taint_unless_it_asks_for_nodes_itself(live: Live) -> None:
    tainted = live.cluster.node("n0", taints=[{"key": "gpu", "value": "", "effect": "NoSchedule"}])
    tainted["metadata"]["labels"] = {"gpu": "yes"}
    live.cluster.put(NODES, tainted)
    live.cluster.settle(2)
    assert live.match(slots(1, 3)).cores == (("n1", 3),)
    with pytest.raises(Unanswerable):
        live.match(slots(1, 3))
    asked = slots(1, 3)
    asked["attributes"]["system"]["constraints"] = {"properties": ["gpu=yes"]}
    assert live.match(asked).cores == (("n0", 3),)


def test_matches_of_one_group_are_added_up(live: Live) -> None:
    found = live.pods(2)
    assert live.graph.groups() == {"g": 2}
    live.cluster.settle()
    live.pods(3)
    assert live.graph.groups() == {"g": 5}
    live.cancel(found.jobid)
    live.cluster.settle()
    assert live.graph.groups() == {"g": 3}


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_match_whose_fluxjob_somebody_deletes_is_over(live: Live, is_seen: bool) -> None:
    """Also where the core hears of it and of its end at once."""
    found = live.pods(2, 4)
    if is_seen:
        live.cluster.settle()
    live.cluster.drop(FLUXJOBS, live.cluster.one(FLUXJOBS, f"match-{found.jobid}-external", "own"))
    live.cluster.settle()
    assert live.graph.groups() == {}
    with pytest.raises(Unanswerable, match=f"there is no job {found.jobid}"):
        live.cancel(found.jobid)
    again = live.pods(2, 4)
    assert again.cores
    assert list(live.graph._made) == [again.jobid]


def test_a_match_that_cannot_be_written_down_holds_nothing(live: Live) -> None:
    live.controller.failure = ApiError(500, "", "the disk is full")
    with pytest.raises(Unanswerable, match="the FluxJob of the match could not be created: the disk is full"):
        live.match(slots(2, 4))
    live.controller.failure = None
    assert live.match(slots(2, 4)).cores


class FailingController(Controller):
    """The API server is slow to make an object or to answer (`gates`), loses an answer, and refuses some deletions."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        # What is waited for before the object is made, and after that.
        self.gates: dict[str, asyncio.Event] = {}
        self.is_at = ""
        # "late": the object is made after the answer is lost.
        self.loses_answer = ""
        self.late: list[Object] = []
        self.refusals: list[Exception] = []

    async def make_external(self, fluxjob: Object, now: float) -> Object:
        await self._pass("before")
        if self.loses_answer == "late":
            self.late.append(fluxjob)
            raise Unreachable("timed out")
        made = await super().make_external(fluxjob, now)
        await self._pass("after")
        if self.loses_answer:
            raise Unreachable("timed out")
        return made

    async def _pass(self, gate: str) -> None:
        self.is_at = gate
        if gate in self.gates:
            await self.gates[gate].wait()

    async def unmake_external(self, fluxjob: Object) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        if self.late:
            # It is made after the first deletion of it.
            self.cluster.put(FLUXJOBS, self.late.pop())
            raise ApiError(404, "NotFound", "")
        there = {one["metadata"]["name"]: one for one in self.cluster.all(FLUXJOBS)}
        await super().unmake_external(there.get(fluxjob["metadata"]["name"], fluxjob))


@pytest.fixture
def failing(live: Live, monkeypatch: pytest.MonkeyPatch) -> Live:
    live.controller = FailingController(live.cluster)
    live.graph = LiveGraph(live.controller, "default")
    monkeypatch.setattr(live_graph, "_RETRY", 0.02)
    monkeypatch.setattr(live_graph, "_REQUEST_TIMEOUT", 0.2)
    return live


async def ends(tasks: set[asyncio.Task[Any]]) -> None:
    """Until what the services have begun by themselves is over."""
    while tasks:
        await asyncio.wait(tasks)


async def match_of_all(live: Live) -> Matched:
    return await live.graph.match(json.dumps(slots(2, 4)), False)


async def match_without_client(live: Live, gate: str) -> None:
    """A match whose client is gone when the API server is at a gate, which then opens."""
    live.controller.gates, live.controller.is_at = {gate: asyncio.Event()}, ""
    call = asyncio.create_task(match_of_all(live))
    await until_in_loop(lambda: live.controller.is_at == gate)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    live.controller.gates[gate].set()


@pytest.mark.parametrize("gate", ["before", "after"])
def test_a_match_whose_client_is_gone_holds_nothing(failing: Live, gate: str) -> None:
    """Also where that is before the FluxJob is made, or before its deletion succeeds."""
    failing.controller.refusals = [Unreachable("timed out"), ApiError(500, "", "later")]

    async def scenario() -> None:
        await match_without_client(failing, gate)
        await ends(failing.graph._tasks)

    asyncio.run(scenario())
    assert failing.cluster.all(FLUXJOBS) == [] and failing.controller.refusals == []
    failing.cluster.settle()
    failing.controller.gates = {}
    assert failing.match(slots(2, 4)).cores


@pytest.mark.parametrize("loses", ["in time", "late"])
def test_a_match_whose_answer_of_the_api_server_is_lost_holds_nothing(failing: Live, loses: str) -> None:
    """Also where the API server makes the FluxJob only after that."""
    failing.controller.loses_answer = loses

    async def scenario() -> None:
        with pytest.raises(Unanswerable, match="the FluxJob of the match could not be created: timed out"):
            await match_of_all(failing)
        await ends(failing.graph._tasks)

    asyncio.run(scenario())
    assert failing.cluster.all(FLUXJOBS) == []
    failing.cluster.settle()
    failing.controller.loses_answer = ""
    assert failing.match(slots(2, 4)).cores


def test_what_the_services_have_begun_ends_with_them(
    failing: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A FluxJob that may be left is named."""
    monkeypatch.setattr(live_graph, "_GRACE", 0.2)

    async def scenario() -> set[asyncio.Task[Any]]:
        await match_without_client(failing, "before")
        await failing.graph.close()
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(scenario()) == set()
    assert failing.cluster.all(FLUXJOBS) == [] and not caplog.messages
    failing.cluster.settle()
    failing.controller.refusals = [Unreachable("timed out") for _ in range(99)]
    assert asyncio.run(scenario()) == set()
    (left,) = failing.cluster.all(FLUXJOBS)
    assert caplog.messages[-1] == f"FluxJob {left['metadata']['name']} of a failed match may remain: delete it"


def test_a_cancel_that_fails_may_be_tried_again(failing: Live) -> None:
    found = failing.match(slots(2, 4))
    failing.controller.refusals = [Unreachable("timed out")]
    with pytest.raises(Unanswerable, match="the FluxJob of the match could not be deleted: timed out"):
        failing.cancel(found.jobid)
    failing.cancel(found.jobid)
    assert failing.cluster.all(FLUXJOBS) == []


@pytest.mark.parametrize("reserves", [False, True])
@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (slots(3, 4), "need 12 cpu, the whole system has 8"),
        (
            slots(1, 1, constraints={"properties": ["x=y"]}),
            "no node has property x=y",
        ),
        (
            slots(1, 1) | {"attributes": {"system": {"duration": 2**53 - 1}}},
            f"attributes.system.duration: must be at most {2**52 - 1_800_000_000} seconds here, not {2**53 - 1}",
        ),
    ],
)
def test_what_can_never_be_met_is_told_as_such(live: Live, asked: Object, why: str, reserves: bool) -> None:
    live.runs("endless", 2, 4)
    live.cluster.now = 1_800_000_000
    with pytest.raises(Unanswerable) as caught:
        live.match(asked, reserves)
    assert str(caught.value) == f"unsatisfiable request: {why}"


def test_what_cordoned_nodes_could_serve_is_not_told_to_be_impossible(live: Live) -> None:
    node = live.cluster.one(NODES, "n1", "")
    live.cluster.put(NODES, {**node, "spec": {**node.get("spec", {}), "unschedulable": True}})
    live.cluster.settle()
    with pytest.raises(Unanswerable, match=r"^no room while 1 eligible .* or cordoned \(n1\): it needs 2 pods of"):
        live.match(slots(2, 4))
    with pytest.raises(Unanswerable, match=r"^unsatisfiable request: need 12 cpu"):
        live.match(slots(3, 4))


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


def test_amounts_may_have_units_and_be_ranges(live: Live) -> None:
    node = live.cluster.one(NODES, "n0", "")
    node["status"]["allocatable"]["memory"] = "4Gi"
    live.cluster.put(NODES, node)
    live.cluster.settle()
    slot = {"type": "slot", "count": 1, "label": "a"}
    cores = {"type": "core", "count": {"min": 1, "max": 3}}
    found = live.match({"resources": [{**slot, "with": [cores, {"type": "memory", "count": 1, "unit": "GB"}]}]})
    assert found.cores == (("n0", 3),)
    (told,) = live.cluster.one(FLUXJOBS, f"match-{found.jobid}-external", "own")["spec"]["resources"]["nodes"]
    assert told["amounts"] == {"cpu": 3000, "memory": 954, "pod": 1}
    assert live.match({"resources": [{**slot, "with": [{"type": "core", "count": "1"}]}]}).cores == (("n0", 1),)
    with pytest.raises(Unanswerable, match=r"^jobspec: resources\[0\].with\[0\].unit: 'W' cannot be converted"):
        live.match({"resources": [{**slot, "with": [{"type": "memory", "count": 1, "unit": "W"}]}]})


@pytest.mark.parametrize("label", ["", "topology.kubernetes.io/zone", "topology.kubernetes.io/rack"])
def test_a_zone_is_asked_for_also_where_nodes_have_no_label_of_one(live: Live, label: str) -> None:
    for name in ("n0", "n1"):
        node = live.cluster.one(NODES, name, "")
        node["metadata"]["labels"] = {label: "here"} if label else {}
        live.cluster.put(NODES, node)
    live.cluster.settle()
    assert live.pods(2, 2, in_zone=True).cores == (("n0", 4),)
    with pytest.raises(Unanswerable, match="unsatisfiable request"):
        live.pods(5, 1, in_zone=True)
    subnet = {"type": "subnet", "count": 1, "with": [{"type": "node", "count": 1, "with": slots(2, 2)["resources"]}]}
    assert live.match({"resources": [subnet]}).cores == (("n1", 4),)


def test_a_jobspec_that_no_fluxjob_could_hold_is_refused(live: Live) -> None:
    with pytest.raises(Unanswerable, match=r"jobspec: must have at most 1048576 characters \(the limit of a FluxJob\)"):
        live.match({**slots(1, 1), "name": "x" * 2**20})


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
    other = LiveGraph(live.controller, "none")
    for asks in (other.resources, lambda: asyncio.run(other.match_pods(Pods("g", 1, 1)))):
        with pytest.raises(Unanswerable, match="there is no FluxQueue none"):
            asks()


@pytest.mark.parametrize("resources", [None, {"nodes": 1}, {"nodes": [1, {"name": "n0", "amounts": {"cpu": "x"}}]}])
def test_a_fluxjob_that_somebody_made_up_holds_nothing(live: Live, resources: object) -> None:
    spec = {"type": 10, "queue": "default", "resources": resources}
    live.cluster.put(
        FLUXJOBS, {"metadata": {"name": "x", "namespace": "own", "labels": {"fluxqueue/jobid": "7"}}, "spec": spec}
    )
    live.cluster.settle(1)
    assert live.match(slots(2, 4)).cores


def test_a_fluxqueue_that_is_not_there_is_told_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    live = Live(monkeypatch)
    live.graph.tell_unknown_queue()
    assert not caplog.messages
    LiveGraph(live.controller, "zz").tell_unknown_queue()
    assert caplog.messages == ["there is no FluxQueue zz for gRPC to match; there are default"]


def test_a_match_that_finds_room_starts_now_also_with_reservation(live: Live) -> None:
    found = live.match(slots(2, 4), reserves=True)
    assert (found.is_reserved, found.at) == (False, int(live.cluster.now))
    fluxjob = live.cluster.one(FLUXJOBS, f"match-{found.jobid}-external", "own")
    assert (fluxjob["spec"]["reservation"], fluxjob["status"]["state"]) == (False, "Running")


@pytest.mark.parametrize(
    ("policy", "placement"),
    [("fcfs", "pin"), ("easy", "pin"), ("conservative", "pin"), ("hybrid", "pin"), ("easy", "bind")],
)
def test_a_reservation_gets_its_nodes_at_its_time(monkeypatch: pytest.MonkeyPatch, policy: str, placement: str) -> None:
    live = Live(monkeypatch, policy, placement)
    live.runs("first", 2, 3, "100s")
    end = int(seconds_of(live.cluster.status("first")["startedAt"])) + 100 + LATENCY
    found = live.match(slots(2, 4), reserves=True)
    assert (found.is_reserved, found.at, sorted(found.cores)) == (True, end, [("n0", 4), ("n1", 4)])
    told = live.told(found.jobid)
    assert (told["state"], told["estimatedStart"], told["reason"]) == ("Held", text_of(end), "reserved on n[0-1]")
    assert {"nodes", "startedAt"}.isdisjoint(told)
    # Until then, all that ends before it may run there, and nothing else.
    assert live.free() == {"n0": (1, ("ns/first",)), "n1": (1, ("ns/first",))}
    live.cluster.end_all("first")
    live.runs("short", 2, 3, "30s")
    live.runs("endless", 1, 1)
    live.runs("long", 1, 1, "10m")
    assert [live.cluster.state(name) for name in ("short", "endless", "long")] == ["Running", "Held", "Held"]
    assert live.cluster.status("endless")["reason"].startswith("resources are free now, but not until it would end")
    live.cluster.end_all("short")
    live.cluster.settle(found.at - 1 - live.cluster.now)
    assert live.free() == {"n0": (4, ()), "n1": (4, ())}
    assert live.told(found.jobid)["state"] == "Held"
    live.cluster.settle(1)
    told = live.told(found.jobid)
    assert (told["state"], told["nodes"], told["startedAt"]) == ("Running", "n[0-1]", text_of(end))
    assert {"estimatedStart", "reason"}.isdisjoint(told)
    name = f"own/match-{found.jobid}"
    assert live.free() == {"n0": (0, (name,)), "n1": (0, (name,))}
    # It has them until Cancel, as any match.
    live.cluster.settle(500)
    assert live.cluster.state("endless") == "Held"
    live.cancel(found.jobid)
    live.cluster.settle(5)
    assert [live.cluster.state(name) for name in ("endless", "long")] == ["Running", "Running"]


def test_a_reservation_that_is_cancelled_before_its_time_is_in_nobodys_way(live: Live) -> None:
    live.runs("first", 2, 3, "100s")
    found = live.match(slots(2, 4), reserves=True)
    after = live.match(slots(2, 4), reserves=True)
    assert after.at == found.at + 60
    live.runs("endless", 2, 1)
    assert live.cluster.state("endless") == "Held"
    live.cancel(found.jobid)
    again = live.match(slots(2, 4), reserves=True)
    assert again.at == found.at
    live.cluster.settle(5)
    assert live.cluster.state("endless") == "Held"
    for jobid in (after.jobid, again.jobid):
        live.cancel(jobid)
    live.cluster.settle(5)
    assert live.cluster.state("endless") == "Running"
    # None of them has run.
    told = [one for one in live.cluster.records if one.facts.kind == "External"]
    assert sorted((one.facts.state.value, one.is_gone) for one in told) == [("Held", False)] * 3 + [("Held", True)] * 3


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_reservations_survive_the_queue(monkeypatch: pytest.MonkeyPatch, policy: str, is_before: bool) -> None:
    """It stops before or at the time of a reservation, of whose status nothing was written yet."""
    live = Live(monkeypatch, policy)
    live.runs("first", 2, 4, "100s")
    found = live.match(slots(2, 4, duration=500), reserves=True)
    fluxjob = live.cluster.one(FLUXJOBS, f"match-{found.jobid}-external", "own")
    live.cluster.put(FLUXJOBS, {key: of for key, of in fluxjob.items() if key != "status"})
    live.cluster.end_all("first")
    if is_before:
        live.cluster.settle(5)
        live.cluster.restart()
    else:
        live.cluster.now = found.at + 1.0
        live.cluster.restart()
    live.begin()
    live.cluster.pod("waits", 1)
    live.cluster.settle(5)
    assert live.cluster.state("waits") == "Held"
    assert live.match(slots(1, 1, duration=200), reserves=True).at == found.at + 500
    live.cluster.settle(100)
    told = live.told(found.jobid)
    assert (told["state"], told["startedAt"], told["nodes"]) == ("Running", text_of(found.at), "n[0-1]")
    live.cancel(found.jobid)
    live.cluster.settle(5)
    assert live.cluster.state("waits") == "Running"


def test_without_a_time_that_is_known_a_reservation_is_refused(live: Live) -> None:
    live.runs("endless", 2, 3)
    why = "no room now: insufficient resources: .*; jobs without a known end hold the requested resources"
    with pytest.raises(Unanswerable, match=why):
        live.match(slots(1, 4), reserves=True)
    with pytest.raises(Unanswerable, match="unsatisfiable request: need 9 cpu, the whole system has 8"):
        live.match(slots(9, 1), reserves=True)
    assert not live.match(slots(2, 1), reserves=True).is_reserved


def test_a_reservation_delays_no_start_that_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    live = Live(monkeypatch, "easy")
    live.runs("first", 2, 3, "100s")
    live.runs("next", 2, 4, "50s")
    planned = seconds_of(live.cluster.status("next")["estimatedStart"])
    found = live.match(slots(1, 4), reserves=True)
    assert found.at == planned + 50 + LATENCY
    live.cluster.settle(planned - live.cluster.now)
    live.cluster.end_all("first")
    live.cluster.settle(5)
    assert live.cluster.state("next") == "Running"


@pytest.mark.parametrize("start", [7, "soon", "0001-01-01T00:00:00", "9999-12-31T23:59:59Z", None])
def test_a_time_that_somebody_made_up_does_no_harm(live: Live, start: object) -> None:
    resources = {"nodes": [{"name": "n0", "amounts": {"cpu": 4000}}], "start": start}
    spec = {"type": 10, "queue": "default", "duration": 60, "resources": resources}
    live.cluster.put(
        FLUXJOBS, {"metadata": {"name": "x", "namespace": "own", "labels": {"fluxqueue/jobid": "7"}}, "spec": spec}
    )
    live.cluster.settle(1)
    assert sorted(live.match(slots(1, 4)).cores) == [("n0" if str(start).startswith("9999") else "n1", 4)]


def test_that_a_reservation_runs_is_asked_for_until_it_is_written(live: Live) -> None:
    live.runs("first", 2, 4, "100s")
    found = live.match(slots(2, 4), reserves=True)
    live.cluster.settle()
    core, about = live.cluster.queue, f"own/match-{found.jobid}-external"
    assert core.step([], found.at - 1.0).wake_at <= found.at

    def asked() -> int:
        return len(core.step([], found.at + 0.5).writes.get(about, ()))

    assert [asked(), asked()] == [1, 0]
    core.context.touch(about)
    assert [asked(), asked()] == [1, 0]


def test_the_services_end_what_they_have_begun_when_they_stop(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    async def close() -> None:
        closed.append(True)

    monkeypatch.setattr(live.graph, "close", close)
    listens: list[int] = []
    monkeypatch.setattr(live_graph.log, "info", lambda text, extra: listens.append(extra["port"]))

    async def scenario() -> None:
        live.graph.begun.set()
        work = asyncio.create_task(LiveServices(live.graph, Grpc(address="127.0.0.1:0")).work())
        await until_in_loop(lambda: bool(listens))
        assert not closed
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    asyncio.run(scenario())
    assert closed
