"""When the operator looks at a MiniCluster: at once where it or its lead has changed, for its other pods together."""

from __future__ import annotations

import time

import pytest
from operator_world import World, minicluster

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
