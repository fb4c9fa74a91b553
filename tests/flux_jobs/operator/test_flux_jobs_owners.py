"""The processes of a TrainJob's cluster: read of the TrainJob, once, by an operator that may."""

from __future__ import annotations

from typing import Any

import pytest
from labelled_world import ID, JobsWorld, admitted

from headrace.flux_jobs.operator import objects
from headrace.k8s.objects.kinds import JOBSETS, TRAINJOBS, Kind
from headrace.k8s.runtime.api import ApiError

Object = dict[str, Any]

STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}


def owned(kind: Kind, name: str) -> Object:
    found = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": f"uid-of-{name}"}
    return {"ownerReferences": [{**found, "controller": True}]}


def trained(
    procs: object = 2, options: str = "", labels: Object = STEP, cpus: str = "", **more: Any
) -> tuple[JobsWorld, Object]:
    """A Job of a JobSet of a TrainJob with `numProcPerNode`, and the world in which it is."""
    world = JobsWorld()
    trainer = {} if procs is None else {"trainer": {"numProcPerNode": procs}}
    world.server.add(TRAINJOBS, "ns", {"metadata": {"name": "train"}, "spec": trainer})
    world.server.add(JOBSETS, "ns", {"metadata": {"name": "set", **owned(TRAINJOBS, "train")}, "spec": {}})
    container: Object = {"name": "node", "command": ["hostname"], **more}
    if cpus:
        container["resources"] = {"limits": {"cpu": cpus}}
    job = admitted(options, pod={"containers": [container]})
    job["metadata"] = {**job["metadata"], **owned(JOBSETS, "set")}
    job["metadata"]["labels"] = {**job["metadata"]["labels"], **labels}
    return world, job


def tasks(world: JobsWorld, job: Object) -> int:
    """The tasks on each node, once the operator has made the plan."""
    world.create(job)
    world.settle()
    secret = world.server.one("secrets", f"headrace-{ID}")
    assert secret is not None
    return objects.plan_in(secret).tasks_per_node


def reads(world: JobsWorld) -> list[tuple[str, str, str]]:
    kinds = (JOBSETS.plural, TRAINJOBS.plural)
    return [one for one in world.server.requests if one[1] in kinds]


def test_processes_are_read_of_the_trainjob_once() -> None:
    world, job = trained(3)
    assert tasks(world, job) == 3
    assert reads(world) == [("get", "jobsets", "set"), ("get", "trainjobs", "train")]
    world.server.run_pods("hello")
    world.settle()
    assert len(reads(world)) == 2


def test_another_operator_makes_the_same_plan() -> None:
    world, job = trained(3)
    assert tasks(world, job) == 3
    before = world.server.one("secrets", f"headrace-{ID}")
    world.restart()
    world.settle()
    assert world.server.one("secrets", f"headrace-{ID}") == before


@pytest.mark.parametrize(
    ("procs", "more", "wanted"),
    [
        (None, {}, 1),
        (None, {"env": [{"name": "PET_NPROC_PER_NODE", "value": "5"}]}, 5),
        (2, {"env": [{"name": "PET_NPROC_PER_NODE", "value": "5"}]}, 2),
        ("4", {}, 4),
        ("auto", {"cpus": "3"}, 3),
    ],
)
def test_a_number_that_the_trainjob_lacks_is_the_pods_then_1(procs: object, more: Object, wanted: int) -> None:
    assert tasks(*trained(procs, **more)) == wanted


def test_nothing_is_read_of_a_job_that_says_it_or_is_no_step() -> None:
    for options, labels in (("{procsPerNode: 4}", STEP), ("", {})):
        world, job = trained(2, options, labels)
        assert tasks(world, job) == (4 if options else 1)
        assert reads(world) == []


def test_a_jobset_without_a_trainjob_is_all_there_is() -> None:
    world, job = trained()
    found = world.server.one("jobsets", "set")
    assert found is not None
    found["metadata"]["ownerReferences"] = []
    assert tasks(world, job) == 1


def test_an_owner_that_is_gone_takes_the_job_with_it() -> None:
    world, job = trained()
    del world.server.objects["trainjobs", "ns", "train"]
    assert tasks(world, job) == 1


def test_a_number_that_is_none_is_told_and_nothing_starts() -> None:
    world, job = trained(0)
    world.create(job)
    world.settle()
    assert set(world.events()) == {("Invalid", "TrainJob.spec.trainer.numProcPerNode: must be 1 or more, not 0")}
    assert world.server.all("secrets") == []


def test_an_operator_that_may_not_read_says_what_to_do() -> None:
    world, job = trained()
    world.server.refuse["get", "jobsets"] = ApiError(403, "Forbidden", 'cannot get resource "jobsets"')
    assert tasks(world, job) == 1
    (event,) = [text for reason, text in world.events() if reason == "OwnerNotRead"]
    assert event.endswith('cannot get resource "jobsets". Install the operator with --trainer')
