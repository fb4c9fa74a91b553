"""MiniClusters that the reference operator took or refused: ours answers alike, but for a reviewed list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.minicluster.plan import hostlist, make_plan, node_flags, quorum
from headrace.minicluster.problems import InvalidMiniCluster
from headrace.minicluster.unapplied import not_applied
from headrace.minicluster.validate import check

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data/minicluster/cases.jsonl").read_text(encoding="utf-8").splitlines()
]

# name: why ours answers otherwise.
REFUSED_BY_US_ONLY = {
    "variant-tasks-negative": "flux submit -n-3 can never run; said before anything is created",
    "variant-curve-cert": "no broker starts with a curveCert that is no certificate",
}
TAKEN_BY_US_ONLY = {
    "variant-services-pod-fields": "the service account does not exist in that cluster; the file is fine"
}
OTHER_NODE_SPEC = {"variant-tasks-0": "the operator passes -n0, which flux refuses; 0 tasks means one a node"}

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
