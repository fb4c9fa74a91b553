"""When the operator looks at a MiniCluster: at once where it or its lead has changed, for its other pods together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import pytest
from operator_world import World, minicluster
from simulated_api import NOW

from headrace.formats.exposition.metrics import Metrics
from headrace.k8s.objects.kinds import LEASES, Kind
from headrace.k8s.runtime.api import ApiError, Listing
from headrace.k8s.runtime.controller import Shared
from headrace.minicluster.operator import controller as operator_module
from headrace.minicluster.operator.controller import POD_GATHERING, Operator, Options
from waiting import until_in_loop

KEY = ("ns", "hello")


@pytest.fixture
def world() -> World:
    """A MiniCluster of four pods that run."""
    world = World()
    world.apply(minicluster(size=4))
    world.settle()
    world.server.run_pods("hello")
    world.settle()
    assert len(world.operator.pods) == 4
    # What the looks have left to be done later is of no concern here.
    world.restart()
    world.see()
    return world


def change(world: World, indices: range) -> None:
    for pod in world.operator.pods:
        if int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]) in indices:
            world.changed(world.operator.pods, pod)


def test_changes_of_pods_are_gathered(world: World) -> None:
    queue, before = world.operator.controller.queue, time.monotonic()
    change(world, range(1, 4))
    assert queue.take() is None
    due = queue.next_due()
    assert due is not None
    assert before < due <= time.monotonic() + POD_GATHERING
    change(world, range(1, 4))
    assert queue.next_due() == due, "further changes must not put the look off"
    queue._clock = lambda: due
    assert queue.take() == KEY
    queue.done(KEY)
    assert queue.take() is None
    assert queue.next_due() is None


def test_a_change_of_the_lead_is_looked_at_at_once(world: World) -> None:
    change(world, range(1))
    assert world.operator.controller.queue.take() == KEY


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "given back"])
def test_one_that_stands_back_is_looked_at_when_the_other_operator_has_gone(is_deleted: bool) -> None:
    world = World()
    spec = {"holderIdentity": "go", "leaseDurationSeconds": 15, "renewTime": "2023-11-14T22:13:20.000000Z"}
    lease = {"metadata": {"name": "14dde902.flux-framework.org"}, "spec": spec}
    world.server.add(LEASES, "operator-system", lease)
    world.apply(minicluster())
    world.look()
    # What the look has left to be done when the Lease runs out is of no concern here.
    world.restart()
    world.see()
    queue = world.operator.controller.queue
    with mock.patch.object(operator_module.time, "time", lambda: NOW + 1):
        world.changed(world.operator.leases, lease)
        assert queue.take() is None, "it has been renewed"
        if is_deleted:
            world.operator.leases.replace([])
        else:
            given_back = [{**one, "spec": {**spec, "holderIdentity": ""}} for one in world.operator.leases]
            world.operator.leases.replace(given_back)
        world.changed(world.operator.leases, lease)
    assert queue.take() == KEY


LEASE = "14dde902.flux-framework.org"
HELD = {"holderIdentity": "go", "leaseDurationSeconds": 15, "renewTime": "2023-11-14T22:13:20.000000Z"}


class Listed:
    """An API server where the Flux Operator holds its Lease in operator-system. Its objects do not change.

    `leases` has (namespace, field selector) of each listing of Leases.
    """

    def __init__(self, refused: str = "nowhere") -> None:
        self.leases: list[tuple[str, str]] = []
        self._refused = refused

    async def list_objects(
        self, kind: Kind, namespace: str = "", labels: str = "", fields: str = "", *_trim: Any
    ) -> Listing:
        if kind is not LEASES:
            return Listing([], "1")
        self.leases.append((namespace, fields))
        if namespace == self._refused:
            raise ApiError(403, "Forbidden", "may not list leases")
        metadata = {"name": LEASE, "namespace": "operator-system", "uid": "1", "resourceVersion": "1"}
        there = namespace in ("", "operator-system")
        return Listing([{"metadata": metadata, "spec": HELD}] if there else [], "1")

    async def watch(self, *_args: str) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield


def synced(options: Options, api: Listed) -> Operator:
    """An operator whose caches have been filled."""
    shared = Shared(api, Metrics(), "headrace-operator", options.namespaces)  # type: ignore[arg-type]
    operator = Operator(shared, options)

    async def fill() -> None:
        watching = asyncio.create_task(shared.watches.run())
        await until_in_loop(lambda: shared.watches.synced)
        watching.cancel()

    asyncio.run(fill())
    return operator


@pytest.mark.parametrize(
    ("options", "places"),
    [
        (Options(), [""]),
        (Options(namespaces=("a", "b")), ["a", "b", "operator-system"]),
        (Options(namespaces=("a",), flux_operator_namespace="flux"), ["a", "flux"]),
        (Options(namespaces=("a", "operator-system")), ["a", "operator-system"]),
        (Options(namespaces=("a",), flux_operator_namespace=""), ["a"]),
    ],
)
def test_the_lease_of_the_other_operator_is_seen_where_it_may_be(options: Options, places: list[str]) -> None:
    api = Listed()
    operator = synced(options, api)
    assert sorted(api.leases) == [(place, f"metadata.name={LEASE}") for place in places]
    is_seen = operator._other_operator_seconds(NOW) > 0
    assert is_seen == bool({"", "operator-system"} & set(places))


def test_an_operator_that_may_not_see_the_other_ones_lease_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    operator = synced(Options(namespaces=("a",)), Listed(refused="operator-system"))
    assert operator._other_operator_seconds(NOW) <= 0
    (told,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert told == (
        "no watch of leases in operator-system, MiniClusters do not wait for the Flux Operator there: "
        "may not list leases"
    )


def test_a_minicluster_tells_that_another_program_has_the_metrics() -> None:
    world = World()
    world.apply(minicluster())
    told = []
    for owner in ("others/adapter", ""):
        world.operator.metrics_elsewhere("v1beta2.custom.metrics.k8s.io", owner)
        world.settle()
        conditions = world.status["conditions"]
        told.append(next(one for one in conditions if one["type"] == "MetricsElsewhere"))
    assert [(one["status"], one["reason"]) for one in told] == [("True", "OtherAdapter"), ("False", "OurAdapter")]
    assert told[0]["message"] == "v1beta2.custom.metrics.k8s.io: others/adapter"


def test_a_minicluster_tells_why_metrics_are_refused() -> None:
    world = World()
    world.apply(minicluster())
    told = []
    for why in ("there is no ConfigMap", ""):
        world.operator.metrics_unanswered(why)
        world.settle()
        told.append(next(one for one in world.status["conditions"] if one["type"] == "MetricsUnanswered"))
    assert [(one["status"], one["reason"], one["message"]) for one in told] == [
        ("True", "AggregationLayerUnknown", "there is no ConfigMap"),
        ("False", "AggregationLayerKnown", ""),
    ]
