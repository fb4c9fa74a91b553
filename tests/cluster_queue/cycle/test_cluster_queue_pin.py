"""The patch that pins a pod: each case of node affinity that a pod may have already."""

from __future__ import annotations

import copy

import pytest
from simulated_cluster import Stale, _patch

from headrace.cluster_queue.cycle.pin import pin, ungate

HERE = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pod(affinity: dict | None = None, **metadata) -> dict:
    spec = {"schedulingGates": [{"name": "other"}, {"name": "fluxqueue"}]}
    return {"metadata": {"uid": "u", **metadata}, "spec": {**spec, **({"affinity": affinity} if affinity else {})}}


def pinned(one: dict) -> dict:
    after = copy.deepcopy(one)
    _patch(after, pin(one, "n1", 7))
    return after


def terms(one: dict) -> list[dict]:
    return list(one["spec"]["affinity"]["nodeAffinity"][_REQUIRED]["nodeSelectorTerms"])


@pytest.mark.parametrize(
    "affinity", [None, {"podAffinity": {}}, {"nodeAffinity": {}}, {"nodeAffinity": {"preferred": []}}]
)
def test_a_pod_without_a_required_node_affinity_gets_one(affinity):
    after = pinned(pod(affinity))
    assert terms(after) == [{"matchFields": [HERE]}]
    for key in affinity or {}:
        assert key in after["spec"]["affinity"]


def test_each_term_of_an_affinity_is_narrowed_and_none_is_added():
    several = [{"matchExpressions": [ZONE]}, {"matchFields": [{**HERE, "operator": "NotIn"}]}, {}]
    after = pinned(pod({"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": several}}}))
    assert terms(after) == [
        {"matchExpressions": [ZONE], "matchFields": [HERE]},
        {"matchFields": [{**HERE, "operator": "NotIn"}, HERE]},
        # It matches no node, and must not begin to match one.
        {},
    ]


def test_only_our_gate_is_removed_and_the_pod_is_marked():
    after = pinned(pod(labels={"app": "x"}))
    assert after["spec"]["schedulingGates"] == [{"name": "other"}]
    assert after["metadata"]["labels"] == {"app": "x", "fluxqueue/jobid": "7"}
    assert after["metadata"]["annotations"] == {"fluxqueue/fluxion-nodes": "n1"}


def test_a_pod_that_has_changed_since_it_was_seen_is_not_patched():
    one = pod({"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}]}}})
    operations = pin(one, "n1", 7)
    other = {**one, "metadata": {**one["metadata"], "uid": "another"}}
    gates = {**one, "spec": {**one["spec"], "schedulingGates": [{"name": "fluxqueue"}]}}
    narrower = pod({"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{"matchFields": [HERE]}]}}})
    for changed in (other, gates, narrower):
        with pytest.raises(Stale):
            _patch(copy.deepcopy(changed), operations)


def test_a_pod_that_does_not_wait_here_is_left_to_the_scheduler():
    one = pod()
    after = copy.deepcopy(one)
    _patch(after, ungate(one))
    assert after["spec"] == {"schedulingGates": [{"name": "other"}]}
    assert after["metadata"] == one["metadata"]
