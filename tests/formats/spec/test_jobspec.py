"""Reading jobspecs: counts, slot requests, attributes."""

from typing import Any, Dict, List, Optional

import pytest

from headrace.formats.spec import jobspec, jobspec_build
from headrace.formats.spec.jobspec import JobspecError


def rfc14(resources: List[Dict[str, Any]], count: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    return {
        "version": 999,
        "resources": resources,
        "tasks": [{"command": ["app"], "slot": "default", "count": count or {"per_slot": 1}}],
        "attributes": {"system": {"duration": 3600.0}},
    }


def slot(count: Any, *inner: Dict[str, Any], label: str = "default") -> Dict[str, Any]:
    return {"type": "slot", "count": count, "label": label, "with": list(inner)}


def some(kind: str, count: Any = 1, *inner: Dict[str, Any]) -> Dict[str, Any]:
    return {"type": kind, "count": count, **({"with": list(inner)} if inner else {})}


def test_counts_of_slots() -> None:
    found = jobspec.counts(jobspec_build.from_command(["a"], num_tasks=4, cores_per_task=2, gpus_per_task=1))
    assert (found.nnodes, found.nslots, found.ntasks, found.ncores, found.ngpus) == (0, 4, 4, 8, 4)
    assert (found.slot_cores, found.slot_gpus, found.exclusive) == (2, 1, False)


def test_counts_of_nodes_with_an_uneven_number_of_tasks() -> None:
    found = jobspec.counts(jobspec_build.from_command(["a"], num_tasks=3, num_nodes=2, exclusive=True))
    assert (found.nnodes, found.nslots, found.ntasks, found.ncores, found.exclusive) == (2, 4, 3, 4, True)


@pytest.mark.parametrize(
    ("kind", "count", "ntasks"), [("node", 3, 6), ("core", 2, 16), ("node", None, 2), ("socket", 2, 2)]
)
def test_the_shell_option_per_resource_rules_over_the_task_count(kind: str, count: Optional[int], ntasks: int) -> None:
    spec = jobspec_build.per_resource(["a"], ncores=8, nnodes=2)
    option = {"type": kind} if count is None else {"type": kind, "count": count}
    jobspec_build.set_shell_option(spec, "per-resource", option)
    assert jobspec.counts(spec).ntasks == ntasks


def test_tasks_per_node_are_unknown_without_a_number_of_nodes() -> None:
    spec = jobspec_build.from_batch_command("#!/bin/sh\n", "job", num_slots=4)
    assert jobspec.counts(spec).ntasks is None
    assert jobspec.task_count(spec, nnodes=3, nslots=4, ncores=4) == 3


def test_counts_multiply_down_the_tree_and_take_the_least_of_a_range() -> None:
    tree = some("cluster", 2, slot({"min": 2, "max": 8}, some("node", 1, some("socket", 2, some("core", "4-8")))))
    spec = rfc14([tree], {"per_resource": {"type": "core", "count": 2}})
    jobspec.validate(spec)
    found = jobspec.counts(spec)
    assert (found.nnodes, found.nslots, found.ncores, found.ntasks) == (4, 4, 32, 64)


def test_walk_gives_every_vertex_with_its_total() -> None:
    spec = jobspec_build.from_command(["a"], num_tasks=4, num_nodes=2, cores_per_task=3)
    assert [(vertex["type"], count, total) for vertex, count, total in jobspec.walk(spec)] == [
        ("node", 2, 2),
        ("slot", 2, 4),
        ("core", 3, 12),
    ]


@pytest.mark.parametrize(
    ("spec", "request_"),
    [
        (jobspec_build.from_command(["a"], 3, 2, 1), (0, 3, 2, 1, False)),
        (jobspec_build.from_command(["a"], 4, num_nodes=2), (2, 4, 1, 0, False)),
        (jobspec_build.from_command(["a"], 2, num_nodes=2, exclusive=True), (2, 2, 1, 0, True)),
        (rfc14([slot(4, some("node"))]), (4, 4, 1, 0, True)),
    ],
)
def test_slot_request_is_what_a_scheduler_of_slots_needs(spec: Dict[str, Any], request_: tuple) -> None:  # type: ignore[type-arg]
    assert tuple(jobspec.slot_request(spec)) == request_


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ([some("cluster", 1, slot(1, some("core")))], r"resources\[0\].type: Unsupported resource type 'cluster'"),
        ([slot(1, some("socket", 1, some("core")))], r"with\[0\].*Unsupported resource type 'core'"),
        ([slot(1, some("memory"))], r"resources\[0\].with\[0\].type: Unsupported resource type 'memory'"),
        ([slot(1, some("gpu"))], "must have a core"),
        ([slot(1, some("core")), slot(1, some("core"), label="b")], "only one is supported"),
        ([some("node", 1, slot(1, some("core")), some("gpu"))], "only one slot is supported"),
    ],
)
def test_slot_request_refuses_what_needs_a_graph(resources: List[Dict[str, Any]], message: str) -> None:
    with pytest.raises(JobspecError, match=message):
        jobspec.slot_request(rfc14(resources))


def test_attributes_and_their_defaults() -> None:
    plain = jobspec_build.from_command(["/usr/bin/hostname", "-f"])
    assert jobspec.name(plain) == "hostname"
    assert jobspec.name({**plain, "tasks": [{"command": ["/foo/bar/", "x"]}]}) == "/foo/bar/"
    assert jobspec.name({**plain, "tasks": [{"command": ["a" + "é" * 300]}]}) == "a" + "é" * 127
    assert (jobspec.duration(plain), jobspec.cwd(plain), jobspec.queue(plain)) == (0.0, None, None)
    assert (jobspec.environment(plain), jobspec.dependencies(plain), jobspec.constraints(plain)) == ({}, [], None)
    assert jobspec.shell_options(plain) == {}
    full = jobspec_build.from_command(
        ["a"], name="n", duration="1m", cwd="/x", queue="q", environment={"A": "b"}, input="f"
    )
    assert (jobspec.name(full), jobspec.duration(full), jobspec.cwd(full)) == ("n", 60.0, "/x")
    assert (jobspec.queue(full), jobspec.environment(full)) == ("q", {"A": "b"})
    assert jobspec.shell_option(full, "input") == {"stdin": {"type": "file", "path": "f"}}
    assert jobspec.command(full) == ["a"]


def test_only_the_environment_is_left_out() -> None:
    full = jobspec_build.from_command(["a"], cwd="/x", environment={"A": "b"})
    bare = jobspec.without_environment(full)
    assert bare == jobspec_build.from_command(["a"], cwd="/x")
    assert jobspec.environment(full) == {"A": "b"}
    assert jobspec.without_environment(bare) is bare
    plain: Dict[str, Any] = {"attributes": {}}
    assert jobspec.without_environment(plain) is plain


def test_jobs_with_the_same_attributes_are_bare_in_the_same_way() -> None:
    bare = jobspec.Bare()
    first = jobspec_build.from_command(["a"], environment={"A": "b"})
    second = {**first, "tasks": jobspec_build.from_command(["c"])["tasks"]}
    other = jobspec_build.from_command(["a"], environment={"A": "c"}, cwd="/x")
    for spec in (first, second, first, other, second):
        assert bare.of(spec) == jobspec.without_environment(spec)
        assert bare.of(spec) is bare.of(spec)
    assert bare.of(first)["attributes"] is bare.of(second)["attributes"]
