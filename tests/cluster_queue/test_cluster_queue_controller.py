"""The edge: what it reads of objects, and what it does when a write fails."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from simulated_cluster import Cluster, Stale, _merged, _patch

from headrace.cluster_queue.controller import (
    FluxqueueController,
    gathering_after,
    trimmed_fluxjob,
    trimmed_pod,
    trimmed_workload,
)
from headrace.cluster_queue.cycle.cycle import Cycle
from headrace.cluster_queue.model import resources
from headrace.cluster_queue.names import FLUXJOBS, FLUXQUEUES
from headrace.cluster_queue.services.backend import Pods, Unanswerable
from headrace.cluster_queue.services.live_graph import LiveGraph
from headrace.formats.exposition.metrics import Metrics
from headrace.k8s.objects.kinds import EVENTS, PODS, Kind
from headrace.k8s.runtime.api import ApiError, Listing, Unreachable
from headrace.k8s.runtime.controller import Shared
from waiting import until_in_loop

Object = dict[str, Any]


class Api:
    """The objects of a simulated cluster as an API. `failures` are raised by the next writes, before they are done."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.failures: list[Exception] = []
        self.writes: list[str] = []
        self.events: list[Object] = []
        self._watchers: dict[str, asyncio.Queue[tuple[str, Object]]] = {}

    async def list_objects(
        self,
        kind: Kind,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        trim: Callable[[Object], Object] = lambda item: item,
    ) -> Listing:
        return Listing([trim(one) for one in copy.deepcopy(self.cluster.all(kind))], "1")

    async def watch(self, kind: Kind, version: str, *selected: str) -> AsyncIterator[tuple[str, Object]]:
        self._watchers[kind.plural] = asyncio.Queue()
        while True:
            yield await self._watchers[kind.plural].get()

    async def create(self, kind: Kind, namespace: str, body: Object, dry_run: bool = False) -> Object:
        self._begin("create", kind)
        if kind == EVENTS:
            self.events.append(body)
            return body
        return self._put(kind, copy.deepcopy(body))

    async def merge(self, kind: Kind, namespace: str, name: str, body: Object, subresource: str = "") -> Object:
        self._begin("merge", kind)
        item = self.cluster.one(kind, name, namespace)
        if (
            body["metadata"].get("resourceVersion", item["metadata"]["resourceVersion"])
            != item["metadata"]["resourceVersion"]
        ):
            raise ApiError(409, "Conflict", "the object has been modified")
        return self._put(kind, _merged(item, body))

    async def patch(self, kind: Kind, namespace: str, name: str, operations: tuple[Object, ...]) -> Object:
        self._begin("patch", kind)
        item = copy.deepcopy(self.cluster.one(kind, name, namespace))
        try:
            _patch(item, operations)
        except Stale:
            raise ApiError(422, "Invalid", "a test failed") from None
        return self._put(kind, item)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str = "") -> None:
        self._begin("delete", kind)
        if name not in {one["metadata"]["name"] for one in self.cluster.all(kind)}:
            raise ApiError(404, "NotFound", f"{name} is not there")
        item = self.cluster.one(kind, name, namespace)
        self.cluster.drop(kind, item)
        self.tell(kind, "DELETED", item)

    def tell(self, kind: Kind, event: str, item: Object) -> None:
        self._watchers[kind.plural].put_nowait((event, copy.deepcopy(item)))

    def _begin(self, verb: str, kind: Kind) -> None:
        self.writes.append(f"{verb} {kind.plural}")
        if self.failures:
            raise self.failures.pop(0)

    def _put(self, kind: Kind, item: Object) -> Object:
        self.tell(kind, "MODIFIED", self.cluster.put(kind, item))
        return copy.deepcopy(item)


def work(cluster: Cluster, *failures: Exception, until: Any) -> Api:
    """Have a controller work on a cluster until something holds."""
    api = Api(cluster)
    api.failures += failures

    async def scenario() -> None:
        shared = Shared(api, Metrics(), "headrace-fluxqueue")  # type: ignore[arg-type]
        FluxqueueController(shared, "own")
        tasks = [asyncio.create_task(shared.watches.run()), asyncio.create_task(shared.work())]
        while not until():
            await asyncio.sleep(0.01)
            for task in tasks:
                if task.done():
                    task.result()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(asyncio.wait_for(scenario(), 120))
    return api


def test_a_match_for_another_scheduler_is_written_down_before_it_is_answered():
    cluster = Cluster(nodes=2)
    api = Api(cluster)
    pods = Pods("g", 2, 4)

    async def scenario() -> None:
        shared = Shared(api, Metrics(), "headrace-fluxqueue")  # type: ignore[arg-type]
        controller = FluxqueueController(shared, "own")
        graph = LiveGraph(controller, "default")
        tasks = [asyncio.create_task(shared.watches.run()), asyncio.create_task(shared.work())]
        await controller.begun.wait()
        assert list(controller.cycle.context.queues["default"].nodes) == ["n0", "n1"]
        found = await graph.match_pods(pods)
        assert [one for one in api.writes if "fluxjobs" in one] == ["create fluxjobs", "merge fluxjobs"]
        told = cluster.one(FLUXJOBS, f"match-{found.jobid}-external", "own")["status"]
        assert (told["state"], told["nodes"], told["jobid"]) == ("Running", "n[0-1]", str(found.jobid))
        with pytest.raises(Unanswerable, match="no room now"):
            await graph.match_pods(pods)
        # Before and after the core has observed it.
        await graph.cancel(found.jobid)
        again = await graph.match_pods(pods)
        await until_in_loop(lambda: list(controller.cycle.context.snapshot.externals) == [again.jobid])
        await graph.cancel(again.jobid)
        api.failures.append(Unreachable("nobody answers"))
        with pytest.raises(Unanswerable, match="could not be created: nobody answers"):
            await graph.match_pods(pods)
        create = api.create

        async def lost(*arguments: Any) -> Object:
            await create(*arguments)
            raise Unreachable("no answer")

        api.create = lost  # type: ignore[method-assign]
        with pytest.raises(Unanswerable, match="could not be created: no answer"):
            await graph.match_pods(pods)
        api.create = create  # type: ignore[method-assign]
        assert cluster.all(FLUXJOBS)
        await until_in_loop(lambda: not cluster.all(FLUXJOBS) and not controller.cycle.context.snapshot.externals)
        assert (await graph.match_pods(pods)).cores == (("n0", 4), ("n1", 4))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(asyncio.wait_for(scenario(), 120))


def is_pinned(cluster: Cluster) -> bool:
    return cluster.pods_of("a")[0]["metadata"].get("annotations", {}).get("fluxqueue/fluxion-nodes") == "n0"


def test_a_pod_is_shown_told_its_node_and_pinned():
    cluster = Cluster(nodes=1)
    cluster.pod("a")
    api = work(cluster, until=lambda: is_pinned(cluster))
    about = [one for one in api.writes if "queues" not in one and "events" not in one]
    assert about == ["create fluxjobs", "merge fluxjobs", "patch pods"]
    assert cluster.status("a")["nodes"] == "n0"


@pytest.mark.parametrize(
    "failure",
    [
        Unreachable("nobody answers"),
        ApiError(409, "Conflict", "the object has been modified"),
        ApiError(500, "InternalError", "etcd"),
        ApiError(403, "Forbidden", "no"),
        RuntimeError("a defect"),
    ],
)
@pytest.mark.parametrize("before", range(5))
def test_a_write_that_fails_is_asked_for_again(failure, before):
    cluster = Cluster(nodes=1)
    cluster.pod("a")
    # Writes until then succeed: an Event more is told again by its name alone.
    api = work(cluster, *[failure] * (before + 1), until=lambda: is_pinned(cluster))
    assert not api.failures
    assert cluster.status("a")["nodes"] == "n0"
    assert len(cluster.all(FLUXJOBS)) == 1


def test_what_the_api_server_does_not_take_is_told_and_what_has_changed_since_it_was_seen_is_not(caplog):
    cluster = Cluster(nodes=1)
    cluster.settle()
    cluster.pod("a")
    refused = ApiError(422, "Invalid", "spec.nodes: Invalid value: 0")
    api = work(cluster, refused, until=lambda: is_pinned(cluster))
    (told,) = [one for one in api.events if one["reason"] == "NotQueued"]
    assert (told["involvedObject"]["kind"], told["involvedObject"]["name"]) == ("Pod", "a")
    assert "the API server rejected its FluxJob a-pod" in told["message"]
    assert "spec.nodes: Invalid value: 0" in told["message"]
    assert [one for one in caplog.messages if "rejected a write" in one and "spec.nodes" in one]
    caplog.clear()
    # Of a group, one pod is told.
    cluster = Cluster(nodes=1)
    cluster.settle()
    for name in "abc":
        marks = {"labels": {"fluxqueue/group": "g"}, "annotations": {"fluxqueue/group-size": "3"}}
        cluster.pod(name, **marks)
    api = work(cluster, refused, until=lambda: is_pinned(cluster))
    assert [one["involvedObject"]["name"] for one in api.events if one["reason"] == "NotQueued"] == ["a"]
    caplog.clear()
    # A test of a patch that fails says that the pod has changed, as a conflict does.
    cluster = Cluster(nodes=1)
    cluster.settle()
    cluster.pod("a")
    work(cluster, ApiError(409, "Conflict", "the object has been modified"), until=lambda: is_pinned(cluster))
    assert not [one for one in caplog.messages if "refuses" in one or "again in" in one]


def test_the_first_queue_is_made_where_there_is_none():
    cluster = Cluster(nodes=1)
    cluster.delete(FLUXQUEUES, "default", "")
    cluster.pod("a")
    work(cluster, Unreachable("nobody answers"), until=lambda: is_pinned(cluster))
    assert cluster.one(FLUXQUEUES, "default", "")["spec"] == {}


def test_the_loop_goes_on_while_the_core_takes_in_all_that_there_is(monkeypatch):
    turned, step = threading.Event(), Cycle.step

    def first(self, *arguments):
        # Only the loop of the scenario sets it.
        assert turned.wait(60)
        return step(self, *arguments)

    monkeypatch.setattr(Cycle, "step", first)
    cluster = Cluster(nodes=1)
    cluster.pod("a")

    def goes_on() -> bool:
        turned.set()
        return is_pinned(cluster)

    work(cluster, until=goes_on)


def test_steps_take_at_most_a_tenth_of_a_core_and_none_is_put_off_for_more_than_a_second():
    for milliseconds in range(1, 1000):
        took = milliseconds / 1000
        gathering = gathering_after(took)
        assert 0.05 <= gathering <= 1
        assert gathering == 1 or took / (took + gathering) < 0.101


def test_of_pods_and_jobs_is_kept_what_is_read():
    container = {"name": "main", "image": "i", "env": [], "resources": {"requests": {"cpu": "1"}}, "command": ["x"]}
    spec = {"containers": [container], "volumes": [{}], "nodeName": "n", "schedulingGates": [{"name": "fluxqueue"}]}
    pod = {"metadata": {"name": "a", "managedFields": []}, "spec": spec, "status": {"phase": "Running", "podIP": "x"}}
    kept = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}
    gates = {"nodeName": "n", "schedulingGates": [{"name": "fluxqueue"}]}
    assert trimmed_pod(pod) == {"metadata": {"name": "a"}, "spec": {**gates, **kept}, "status": {"phase": "Running"}}
    job = {"metadata": {"name": "a"}, "spec": {"parallelism": 2, "template": {"metadata": {}, "spec": {**spec}}}}
    assert trimmed_workload(job)["spec"] == {"parallelism": 2, "template": {"metadata": {}, "spec": {**gates, **kept}}}


def test_objects_that_wait_share_what_they_have_in_common():
    def job() -> Object:
        template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}
        return {"metadata": {"labels": {"team": "a"}}, "spec": {"template": template}, "status": {"ready": 0}}

    a, b = trimmed_workload(job()), trimmed_workload(job())
    assert a["metadata"]["labels"] is b["metadata"]["labels"]
    assert a["spec"]["template"]["spec"] is b["spec"]["template"]["spec"]
    assert a["status"] is b["status"]
    told = {"metadata": {"name": "f"}, "status": {"state": "Held", "conditions": [{"type": "Quota"}]}}
    kept = [trimmed_fluxjob(copy.deepcopy(told)) for _ in range(2)]
    assert kept[0] == told and kept[0]["status"]["conditions"] is kept[1]["status"]["conditions"]


@pytest.mark.parametrize("reason", ["Infeasible", "Deferred"])
def test_a_trimmed_pod_takes_what_the_whole_one_does_while_it_is_resized(reason: str):
    def container(name: str, cpu: str, **more: str) -> Object:
        return {"name": name, "image": "none", "resources": {"requests": {"cpu": cpu}}, **more}

    def told(name: str, cpu: str) -> Object:
        return {"name": name, "imageID": "x", "allocatedResources": {"cpu": cpu}, "state": {"running": {}}}

    spec = {"containers": [container("main", "8")], "initContainers": [container("side", "1", restartPolicy="Always")]}
    status = {
        "phase": "Running",
        "containerStatuses": [told("main", "2")],
        "initContainerStatuses": [told("side", "3")],
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "PodResizePending", "status": "True", "reason": reason},
        ],
    }
    kept = trimmed_pod({"metadata": {"name": "a"}, "spec": spec, "status": status})
    whole = resources.amounts_of(spec, status)
    assert resources.amounts_of(kept["spec"], kept["status"]) == whole
    assert whole["cpu"] == {"Infeasible": 5000, "Deferred": 11000}[reason]
    assert "Ready" not in str(kept) and "imageID" not in str(kept) and "running" not in str(kept)


def test_the_end_of_a_pod_that_comes_while_a_write_is_asked_for_again_is_not_missed():
    cluster = Cluster(nodes=1)
    cluster.pod("a")
    api = Api(cluster)

    async def scenario() -> None:
        shared = Shared(api, Metrics(), "headrace-fluxqueue")  # type: ignore[arg-type]
        controller = FluxqueueController(shared, "own")
        tasks = [asyncio.create_task(shared.watches.run()), asyncio.create_task(shared.work())]
        while cluster.status("a").get("state") != "Released" or not is_pinned(cluster):
            await asyncio.sleep(0.01)
        pod = copy.deepcopy(cluster.pods_of("a")[0])
        pod["spec"]["nodeName"], pod["status"] = "n0", {"phase": "Succeeded"}
        api.tell(PODS, "MODIFIED", cluster.put(PODS, pod))
        # The watch is read, and then a failed write comes to its turn, before the next step.
        while not controller._changes:
            await asyncio.sleep(0)
        controller.queue.add(pod["metadata"]["uid"])
        while cluster.status("a")["state"] != "Finished":
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(asyncio.wait_for(scenario(), 120))
