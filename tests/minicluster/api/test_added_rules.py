"""Rules of the added fields for a MiniCluster's life: what batch/v1 takes is taken, what it refuses is told."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.minicluster.api.validate import check
from minicluster.api.broken import CONDITION, GROUPS, LIFECYCLE, codes, group, policy
from minicluster.api.specs import document, problems


def test_absence_means_what_the_flux_operator_does() -> None:
    spec = check(document({})).spec
    assert (spec.suspend, spec.managed_by, spec.ignore_failure, spec.groups) == (False, "", False, [])
    assert (spec.ttl_seconds_after_finished, spec.start_timeout_seconds) == (None, None)
    assert (spec.pod_failure_policy, spec.autoscale) == (None, None)


def test_an_automatic_size_has_defaults_where_it_is_given() -> None:
    autoscale = check(document({"autoscale": {}, "maxSize": 4})).spec.autoscale
    assert autoscale is not None and (autoscale.min_size, autoscale.idle_seconds) == (1, 60)


@pytest.mark.parametrize(
    "spec",
    [
        {"suspend": True, "managedBy": "flux-framework.org/headrace-operator", "ignoreFailure": True},
        {"managedBy": "kueue.x-k8s.io/multikueue", "ttlSecondsAfterFinished": 0, "startTimeoutSeconds": 1},
        {"autoscale": {"minSize": 2, "idleSeconds": 0}, "maxSize": 4, "minSize": 1},
        policy(codes(), CONDITION),
        policy(codes(containerName="c", operator="NotIn", values=[0])),
        policy(codes(containerName="flux-view")),
        policy(codes(), pod={"restartPolicy": "Never"}),
        policy(),
    ],
)
def test_what_the_api_takes_is_taken(spec: dict[str, Any]) -> None:
    assert problems(spec) == {}


@pytest.mark.parametrize(("spec", "path"), LIFECYCLE)
def test_what_breaks_a_rule_is_told_of_its_field(spec: dict[str, Any], path: str) -> None:
    assert list(problems(spec)) == [path]


def test_a_wrong_size_is_not_told_of_the_automatic_size_too() -> None:
    assert list(problems({"size": "four", "autoscale": {"minSize": 3}})) == ["spec.size"]


def test_a_group_has_one_pod_unless_it_says_otherwise() -> None:
    (only,) = check(document(group())).spec.groups
    assert (only.size, only.max_size, only.image, only.pod, only.volumes) == (1, 0, "", None, {})


def test_groups_with_templates_of_their_own_are_taken() -> None:
    gpu = {
        "size": 2,
        "maxSize": 4,
        "image": "local/gpu:1",
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "environment": {"A": "b"},
        "pod": {"nodeSelector": {"gpu": "yes"}},
        "volumes": {"data": {"claimName": "data", "path": "/data"}},
    }
    assert problems({"groups": [{"name": "gpu", **gpu}, {"name": "big"}]}) == {}


@pytest.mark.parametrize(("spec", "path"), GROUPS)
def test_what_breaks_a_rule_of_groups_is_told_of_its_field(spec: dict[str, Any], path: str) -> None:
    assert list(problems(spec)) == [path]


def test_the_largest_size_of_a_group_counts_for_its_host_names() -> None:
    name = "a" * 59
    assert problems(group(name=name)) == {}
    assert "64 characters" in problems(group(name=name, maxSize=11))["spec.groups[0].name"]
