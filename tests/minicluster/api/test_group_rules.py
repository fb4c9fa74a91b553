"""Rules of `groups`: names that make host names, sizes, and the same rules for their pods as for the cluster's."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.minicluster.api.validate import check
from minicluster.api.broken import GROUPS, group
from minicluster.api.specs import document, problems


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
def test_what_breaks_a_rule_is_told_of_its_field(spec: dict[str, Any], path: str) -> None:
    assert list(problems(spec)) == [path]


def test_the_largest_size_of_a_group_counts_for_its_host_names() -> None:
    name = "a" * 59
    assert problems(group(name=name)) == {}
    assert "64 characters" in problems(group(name=name, maxSize=11))["spec.groups[0].name"]
