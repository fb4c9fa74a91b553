"""When the operator looks at a MiniCluster: at once where it or its lead has changed, for its other pods together."""

from __future__ import annotations

import time
from unittest import mock

import pytest
from operator_world import World, minicluster
from simulated_api import NOW

from headrace.kube import operator as operator_module
from headrace.kube.api import LEASES
from headrace.kube.operator import POD_GATHERING

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
            world.operator._pod_changed(pod)


def test_changes_of_pods_are_gathered(world: World) -> None:
    queue, before = world.operator.queue, time.monotonic()
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
    assert world.operator.queue.take() == KEY


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
    queue = world.operator.queue
    with mock.patch.object(operator_module.time, "time", lambda: NOW + 1):
        world.operator._lease_changed(lease)
        assert queue.take() is None, "it has been renewed"
        if is_deleted:
            world.operator.leases.replace([])
        else:
            given_back = [{**one, "spec": {**spec, "holderIdentity": ""}} for one in world.operator.leases]
            world.operator.leases.replace(given_back)
        world.operator._lease_changed(lease)
    assert queue.take() == KEY
