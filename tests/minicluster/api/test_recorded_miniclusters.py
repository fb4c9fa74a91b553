"""MiniClusters that the reference operator took or refused: ours answers alike, but for a reviewed list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.minicluster.api.fields import InvalidMiniCluster
from headrace.minicluster.api.plan import hostlist, make_plan, node_flags, quorum
from headrace.minicluster.api.unapplied import not_applied
from headrace.minicluster.api.validate import check

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "data/minicluster/cases.jsonl").read_text(encoding="utf-8").splitlines()
]

# name: why ours answers otherwise.
REFUSED_BY_US_ONLY = {
    "variant-tasks-negative": "flux submit -n-3 can never run; said before anything is created",
    "variant-curve-cert": "no broker starts with a curveCert that is not a certificate",
}
TAKEN_BY_US_ONLY = {
    "variant-services-pod-fields": "the service account does not exist in that cluster; the file is fine"
}
OTHER_NODE_SPEC = {"variant-tasks-0": "the operator passes -n0, which flux refuses; 0 tasks means one a node"}

PAGE = Path(__file__).parents[3] / "docs/user/minicluster-differences.md"


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"command": "hostname", **fields}]}


def lead(**fields: Any) -> dict[str, Any]:
    return {"flux": {"bursting": {"leadBroker": {"address": "far", "name": "l", "size": 1, **fields}}}}


# The page's table of files, by the beginnings of its rows: specifications with the field that a refusal names, "" where
# ours takes what the reference operator could not.
FILES: dict[str, list[tuple[dict[str, Any], str]]] = {
    "`tasks` below 0": [({"tasks": -1}, "spec.tasks")],
    "`minSize` below 0": [({"minSize": -1}, "spec.minSize")],
    "a `flux.logLevel`": [({"flux": {"logLevel": level}}, "spec.flux.logLevel") for level in (-1, 8)],
    "a `flux.connectTimeout`": [({"flux": {"connectTimeout": "5 s"}}, "spec.flux.connectTimeout")],
    "a `flux.topology`": [({"flux": {"topology": "ring"}}, "spec.flux.topology")],
    "a `flux.scheduler.queuePolicy`": [
        ({"flux": {"scheduler": {"queuePolicy": "FCFS"}}}, "spec.flux.scheduler.queuePolicy")
    ],
    "a `flux.brokerConfig`": [
        ({"flux": {"brokerConfig": text}}, "spec.flux.brokerConfig") for text in ("a =", "access.allow-guest-user = 1")
    ],
    "a `flux.curveCert`": [({"flux": {"curveCert": "x"}}, "spec.flux.curveCert")],
    "a `flux.container.mountPath`": [
        ({"flux": {"container": {"mountPath": path}}}, "spec.flux.container.mountPath") for path in ("opt", "/")
    ],
    "a `flux.bursting.hostlist`": [({"flux": {"bursting": {"hostlist": "x["}}}, "spec.flux.bursting.hostlist")],
    "a `flux.bursting.leadBroker`": [
        (lead(size=0), "spec.flux.bursting.leadBroker.size"),
        (lead(address="a b"), "spec.flux.bursting.leadBroker.address"),
    ],
    "a `flux.bursting` cluster": [({"flux": {"bursting": {"clusters": [{"name": "b"}]}}}, "")],
    "a quote": [
        (container(command="echo it's"), "spec.containers[0].command"),
        (container(commands={"init": "echo 'a"}), "spec.containers[0].commands.init"),
        (container(lifeCycle={"preStopExec": "echo 'a"}), "spec.containers[0].lifeCycle.preStopExec"),
    ],
    "`batch` without": [(container(batch=True, command="# none"), "spec.containers[0].command")],
    "a service with both": [
        ({"services": [{"name": "db", "launcher": True, "batch": True}]}, "spec.services[0].launcher")
    ],
    "a variable whose": [
        (container(environment={name: "x"}), f"spec.containers[0].environment.{name}") for name in ("a b", "1A")
    ],
    "a variable named": [
        (container(environment={name: "x"}), f"spec.containers[0].environment.{name}")
        for name in ("JOB_COMPLETION_INDEX", "HEADRACE_POD_NAMESPACE")
    ],
    "an `image`": [(container(image="a b"), "spec.containers[0].image")],
    "a `claimName`": [
        (container(volumes={"v": {"claimName": "C_", "path": "/v"}}), "spec.containers[0].volumes.v.claimName")
    ],
    "a volume at": [
        (container(volumes={"v": {"hostPath": "/a", "path": "/mnt/flux/view"}}), "spec.containers[0].volumes.v.path"),
        (container(volumes={"sample-curve": {"hostPath": "/a", "path": "/b"}}), "spec.containers[0].volumes"),
    ],
    "a container beside": [
        (
            {
                "containers": [{"runFlux": True, "command": "x"}, {"name": "net", "ports": [80]}],
                "network": {"headlessName": "net"},
            },
            "spec.containers[1].name",
        )
    ],
    "more than 64": [
        ({"containers": [{"runFlux": True}, *({"name": f"s{index}"} for index in range(64))]}, "spec.containers"),
        (container(name="n" * 64), "spec.containers[0].name"),
    ],
    "`pod.resources`": [
        ({"pod": {"resources": {"nvidia.com/gpu": 1}}}, "spec.pod.resources.nvidia.com/gpu"),
        (
            {"pod": {"resources": {"cpu": 1}}, **container(resources={"limits": {"cpu": 2}})},
            "spec.pod.resources.cpu",
        ),
    ],
    "a `pod.securityContext`": [
        ({"pod": {"securityContext": {"runAsUser": -1}}}, "spec.pod.securityContext.runAsUser"),
        (
            {"pod": {"securityContext": {"fsGroup": 1, "fsGroupChangePolicy": "x"}}},
            "spec.pod.securityContext.fsGroupChangePolicy",
        ),
    ],
    "a service whose": [({"services": [{"name": "db"}], "pod": {"serviceAccountName": "nobody-here"}}, "")],
    "a name of": [({"metadata": {"name": "n" * length}}, "") for length in (53, 61)],
    "several `emptyDir`": [
        (container(volumes={name: {"emptyDir": True, "path": f"/{name}"} for name in ("a", "b")}), "")
    ],
}
TAKEN = [case for case in CASES if case["outcome"] == "job-created" and case["name"] not in REFUSED_BY_US_ONLY]
REFUSED = [case for case in CASES if case["outcome"] != "job-created" and case["name"] not in TAKEN_BY_US_ONLY]


def named(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in cases]


@pytest.mark.parametrize("case", named(TAKEN))
def test_a_cluster_that_the_operator_created_gets_the_same_hosts_quorum_and_tasks(case: dict[str, Any]) -> None:
    cluster = check(case["document"])
    plan = make_plan(cluster)
    assert hostlist(cluster) == plan.hosts == case["hosts"]
    assert quorum(cluster) == case["quorum"]
    assert plan.size == case["document"]["spec"].get("size", 1)
    if case["node_spec"] is not None and case["name"] not in OTHER_NODE_SPEC:
        assert "".join(node_flags(cluster)) == case["node_spec"].replace(" ", "")
    assert all(path.startswith("spec.") for path in not_applied(cluster))


@pytest.mark.parametrize("case", named(REFUSED))
def test_a_cluster_that_never_came_to_life_is_refused_with_a_path(case: dict[str, Any]) -> None:
    with pytest.raises(InvalidMiniCluster) as caught:
        check(case["document"])
    assert all(problem.path.startswith(("spec", "metadata")) for problem in caught.value.problems)


def test_each_reviewed_difference_is_still_one() -> None:
    by_name = {case["name"]: case for case in CASES}
    for name in REFUSED_BY_US_ONLY:
        with pytest.raises(InvalidMiniCluster):
            check(by_name[name]["document"])
    for name in TAKEN_BY_US_ONLY:
        check(by_name[name]["document"])
    for name in OTHER_NODE_SPEC:
        assert "".join(node_flags(check(by_name[name]["document"]))) != by_name[name]["node_spec"]


def rows_about_files() -> list[str]:
    """The rows of the page's last table, without its head."""
    lines = PAGE.read_text(encoding="utf-8").partition("## Files that only one of them accepts")[2].splitlines()
    return [line.removeprefix("| ") for line in lines if line.startswith("| ")][1:]


def test_every_row_about_files_has_examples_and_each_example_a_row() -> None:
    rows = rows_about_files()
    assert [len([start for start in FILES if row.startswith(start)]) for row in rows] == [1] * len(FILES)


@pytest.mark.parametrize(
    ("start", "fields", "path"),
    [pytest.param(start, *one, id=f"{start} {one[1]}") for start, examples in FILES.items() for one in examples],
)
def test_a_file_of_the_page_is_taken_or_refused_as_it_says(start: str, fields: dict[str, Any], path: str) -> None:
    row = next(row for row in rows_about_files() if row.startswith(start))
    metadata = fields.get("metadata", {"name": "sample"})
    spec = {"containers": [{"command": "hostname"}], **{key: fields[key] for key in fields if key != "metadata"}}
    document = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": metadata, "spec": spec}
    assert row.split(" | ")[2].startswith("refused" if path else "accepted")
    if not path:
        assert check(document).name == metadata["name"]
        return
    with pytest.raises(InvalidMiniCluster) as caught:
        check(document)
    assert [problem.path.startswith(path) for problem in caught.value.problems] == [True]
