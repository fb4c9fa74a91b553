"""Controllers of any kind: the kind of `hostfiles`, of under 60 lines, and what several controllers share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import hostfiles
import pytest
from simulated_api import Server

from headrace.formats.exposition.metrics import Metrics
from headrace.k8s.objects.kinds import CONFIG_MAPS, JOBS, SERVICES
from headrace.k8s.runtime.api import ApiError
from headrace.k8s.runtime.controller import TAKEN_RETRY, Controller, Shared, Watch, owners_of
from headrace.k8s.runtime.steps import Observed, Outcome
from headrace.k8s.runtime.watches import Selection
from waiting import until_in_loop

Object = dict[str, Any]
KEY = ("ns", "sum")


def job(name: str = "sum", **spec: Any) -> Object:
    return {"metadata": {"name": name, "labels": {hostfiles.LABEL: ""}}, "spec": {"parallelism": 2, **spec}}


def shared_on(server: Any) -> Shared:
    return Shared(server, Metrics(), "some-operator")


def working(
    server: Server, scenario: Callable[[Shared], Coroutine[Any, Any, None]], build: Callable[[Shared], object]
) -> Shared:
    """Carry out a scenario while the controllers that `build` makes work."""

    async def run() -> Shared:
        shared = shared_on(server)
        build(shared)
        tasks = [asyncio.create_task(one) for one in (shared.watches.run(), shared.work())]
        try:
            await until_in_loop(lambda: shared.watches.synced)
            await scenario(shared)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return shared

    return asyncio.run(run())


def idle(shared: Shared) -> bool:
    return all(not one.queue and not one.queue._working for one in shared.controllers)


def hosts(server: Server) -> str:
    found = server.one("configmaps", "sum-hosts")
    return found["data"]["hostfile"] if found else ""


def writes(server: Server) -> list[tuple[str, str]]:
    return [(verb, plural) for verb, plural, _ in server.requests if verb not in ("list", "watch", "get")]


def test_a_kind_takes_less_than_60_lines() -> None:
    assert len(Path(hostfiles.__file__).read_text().splitlines()) < 60


def test_a_kind_follows_its_objects() -> None:
    server = Server()
    server.add(JOBS, "ns", job())

    async def scenario(shared: Shared) -> None:
        await until_in_loop(lambda: hosts(server) == "sum-0\nsum-1\n" and idle(shared))
        assert writes(server) == [("create", "configmaps"), ("create", "events")]
        (event,) = server.all("events")
        assert (event["involvedObject"]["kind"], event["reason"]) == ("Job", "HostfileMade")
        assert event["source"] == {"component": "some-operator"}
        # The object has changed, then its ConfigMap, by somebody else, and then that is gone.
        server.requests.clear()
        server._merge(JOBS, "ns", "sum", {"spec": {"parallelism": 1}}, "")
        await until_in_loop(lambda: hosts(server) == "sum-0\n")
        server._merge(CONFIG_MAPS, "ns", "sum-hosts", {"data": {"hostfile": "junk"}}, "")
        await until_in_loop(lambda: hosts(server) == "sum-0\n")
        server.remove(server.one("configmaps", "sum-hosts") or {})
        await until_in_loop(lambda: hosts(server) == "sum-0\n" and idle(shared))
        assert writes(server)[:3] == [("apply", "configmaps"), ("apply", "configmaps"), ("create", "configmaps")]
        server.requests.clear()
        # A change that asks for nothing.
        server._merge(JOBS, "ns", "sum", {"metadata": {"labels": {"a": "b"}}}, "")
        reconciles = shared.metrics.total(shared.reconciles)
        await until_in_loop(lambda: shared.metrics.total(shared.reconciles) > reconciles and idle(shared))
        assert server.requests == []

    shared = working(server, scenario, hostfiles.build)
    assert 'some_operator_errors_total{controller="jobs"} 0\n' in shared.metrics.text()
    assert 'some_operator_queue_length{controller="jobs"} 0\n' in shared.metrics.text()


def test_the_next_process_repeats_nothing() -> None:
    server = Server()
    server.add(JOBS, "ns", job())

    async def scenario(shared: Shared) -> None:
        await until_in_loop(lambda: hosts(server) and idle(shared) and server.all("events"))

    working(server, scenario, hostfiles.build)
    server.requests.clear()

    async def again(shared: Shared) -> None:
        await until_in_loop(lambda: shared.metrics.total(shared.reconciles) and idle(shared))

    working(server, again, hostfiles.build)
    assert writes(server) == []


def test_a_name_that_somebody_else_has_is_left_alone_and_told() -> None:
    server = Server()
    server.add(CONFIG_MAPS, "ns", {"metadata": {"name": "sum-hosts"}, "data": {"mine": ""}})
    server.add(JOBS, "ns", job())

    async def scenario(shared: Shared) -> None:
        (controller,) = shared.controllers
        await until_in_loop(lambda: controller.queue.next_due() is not None and idle(shared))
        due = controller.queue.next_due()
        assert due is not None and 0 < due - controller.queue._clock() <= TAKEN_RETRY

    working(server, scenario, hostfiles.build)
    assert server.all("configmaps")[0]["data"] == {"mine": ""}
    (event,) = server.all("events")
    assert event["message"] == "ConfigMap/sum-hosts exists but does not belong to this Job"


def test_a_refusal_is_counted_and_tried_again() -> None:
    server = Server()
    server.refuse["create", "configmaps"] = ApiError(500, "InternalError", "etcd is away")
    server.add(JOBS, "ns", job())

    async def scenario(shared: Shared) -> None:
        await until_in_loop(lambda: shared.metrics.total(shared.errors) == 2)
        server.refuse.clear()
        await until_in_loop(lambda: hosts(server))

    working(server, scenario, hostfiles.build)


def test_a_namespace_that_is_being_deleted_is_no_error() -> None:
    server = Server()
    details = {"causes": [{"reason": "NamespaceTerminating"}]}
    server.refuse["create", "configmaps"] = ApiError(403, "Forbidden", "it is being terminated", details)
    server.add(JOBS, "ns", job())

    async def scenario(shared: Shared) -> None:
        await until_in_loop(lambda: writes(server) and idle(shared))
        assert shared.controllers[0].queue.next_due() is None

    assert working(server, scenario, hostfiles.build).metrics.total("some_operator_errors_total") == 0


def test_an_object_that_is_being_deleted_is_left_to_the_garbage_collector() -> None:
    server = Server()
    body = job()
    body["metadata"]["finalizers"] = ["example.org/wait"]
    server.remove(server.add(JOBS, "ns", body))
    working(server, lambda shared: until_in_loop(lambda: idle(shared)), hostfiles.build)
    assert writes(server) == []


# --- several controllers


def nothing(observed: Observed, now: float) -> Outcome:
    return Outcome()


def test_controllers_share_the_watch_of_one_selection() -> None:
    server = Server()

    def build(shared: Shared) -> None:
        one = Controller(shared, Selection(JOBS), (Selection(SERVICES),), nothing)
        other = Controller(shared, Selection(JOBS), (Selection(SERVICES, "a=b"),), nothing, name="others")
        assert one.objects is other.objects and one.owned["Service"] is not other.owned["Service"]

    async def scenario(shared: Shared) -> None:
        await until_in_loop(lambda: len([one for one in server.requests if one[0] == "watch"]) == 3)
        server.add(JOBS, "ns", job())
        await until_in_loop(lambda: all(one.objects.get(*KEY) for one in shared.controllers) and idle(shared))

    shared = working(server, scenario, build)
    assert sorted(plural for verb, plural, _ in server.requests if verb == "watch") == ["jobs", "services", "services"]
    for name in ("jobs", "others"):
        assert f'some_operator_reconciles_total{{controller="{name}"}} 1\n' in shared.metrics.text()


def test_objects_that_are_not_owned_concern_others_at_once_or_later() -> None:
    server = Server()
    shared = shared_on(server)

    def concerned(item: Object) -> list[tuple[tuple[str, str], float]]:
        return [(("ns", "now"), 0.0), (("ns", "later"), 3.0)]

    controller = Controller(shared, Selection(JOBS), (), nothing, watches=(Watch(Selection(SERVICES), concerned),))
    (watched,) = [one for selection, one in shared.watches._watched.items() if selection.kind == SERVICES]
    before = controller.queue._clock()
    watched.changed({"metadata": {"name": "x"}})
    assert controller.queue.take() == ("ns", "now") and controller.queue.take() is None
    due = controller.queue.next_due()
    assert due is not None and before + 3.0 <= due <= controller.queue._clock() + 3.0


@pytest.mark.parametrize(("requeue_at", "seconds"), [(1007.0, 7.0), (900.0, 0.5), (None, None)])
def test_a_reconcile_is_repeated_when_it_asks_for_it_and_never_without_a_pause(
    requeue_at: float | None, seconds: float | None
) -> None:
    server = Server()
    shared = shared_on(server)
    controller = Controller(shared, Selection(JOBS), (), lambda observed, now: Outcome(requeue_at=requeue_at))
    controller.objects.put(server.add(JOBS, "ns", job()))
    before = controller.queue._clock()
    asyncio.run(controller.reconcile_key(KEY, 1000.0))
    due = controller.queue.next_due()
    if seconds is None:
        assert due is None
    else:
        assert due is not None and before + seconds <= due <= controller.queue._clock() + seconds


def test_an_object_that_is_gone_is_forgotten() -> None:
    gone: list[object] = []
    controller = Controller(shared_on(Server()), Selection(JOBS), (), nothing, forget=gone.append)
    asyncio.run(controller.reconcile_key(KEY, 0.0))
    assert gone == [KEY]


def test_a_status_is_written_if_it_differs() -> None:
    server = Server()
    controller = Controller(shared_on(server), Selection(JOBS), (), lambda observed, now: Outcome(status={"active": 1}))
    controller.objects.put(server.add(JOBS, "ns", job(suspend=True)))
    asyncio.run(controller.reconcile_key(KEY, 0.0))
    asyncio.run(controller.reconcile_key(KEY, 0.0))
    assert writes(server) == [("patch", "jobs")]
    assert (server.one("jobs", "sum") or {})["status"] == {"active": 1}


def test_an_owner_is_of_the_group_and_the_kind() -> None:
    def owned(**reference: Any) -> list[object]:
        meta = {"name": "x", "namespace": "ns", "ownerReferences": [{"name": "sum", "uid": "1", **reference}]}
        return list(owners_of({"metadata": meta}, JOBS))

    assert owned(kind="Job", apiVersion="batch/v1", controller=True) == [KEY]
    assert owned(kind="Job", apiVersion="other.io/v1", controller=True) == []
    assert owned(kind="Job", apiVersion="batch/v1") == owned(kind="CronJob", apiVersion="batch/v1", controller=True)
