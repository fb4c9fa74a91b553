"""Rules of `groups`: names that make host names, sizes, and the same rules for their pods as for the cluster's."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.minicluster.validate import check
from minicluster.specs import document, problems


def group(**fields: Any) -> dict[str, Any]:
    return {"groups": [{"name": "gpu", **fields}]}


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


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"groups": [{}]}, "spec.groups[0].name"),
        (group(name=""), "spec.groups[0].name"),
        (group(name="0"), "spec.groups[0].name"),
        (group(name="A"), "spec.groups[0].name"),
        (group(name="a" * 60), "spec.groups[0].name"),
        (group(name="services"), "spec.groups[0].name"),
        ({"groups": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}, "spec.groups[2].name"),
        (group(size=0), "spec.groups[0].size"),
        (group(size=3, maxSize=2), "spec.groups[0].maxSize"),
        (group(image="a b"), "spec.groups[0].image"),
        (group(resources={"limits": {"gpu": 1}}), "spec.groups[0].resources.limits.gpu"),
        (group(environment={"a=b": "c"}), "spec.groups[0].environment.a=b"),
        (group(pod={"dnsPolicy": "x"}), "spec.groups[0].pod.dnsPolicy"),
        (group(volumes={"v": {"path": "/x"}}), "spec.groups[0].volumes.v"),
        (group(volumes={"flux-view": {"hostPath": "/a", "path": "/x"}}), "spec.groups[0].volumes.flux-view"),
        ({**group(), "flux": {"bursting": {"hostlist": "a,b"}}}, "spec.groups"),
    ],
)
def test_what_breaks_a_rule_is_told_of_its_field(spec: dict[str, Any], path: str) -> None:
    assert list(problems(spec)) == [path]


def test_the_largest_size_of_a_group_counts_for_its_host_names() -> None:
    name = "a" * 59
    assert problems(group(name=name)) == {}
    assert "64 characters" in problems(group(name=name, maxSize=11))["spec.groups[0].name"]
