"""What a change of each field does to a live MiniCluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from arbitrary import miniclusters
from clusters import minicluster

from headrace.minicluster.api.declarations import Effect
from headrace.minicluster.api.validate import check
from headrace.minicluster.operator.core.changes import (
    Change,
    changes,
    configuration_fingerprint,
    content_fingerprint,
    effects,
    recreating_fingerprint,
    spec_fingerprint,
)

PAGE = Path(__file__).parents[4] / "docs/user/minicluster.md"
GROUP = {"name": "gpu", "size": 1, "maxSize": 4}
FULL: dict[str, Any] = {"size": 2, "maxSize": 4, "groups": [GROUP], "flux": {"brokerConfig": "[access]\n"}}


@pytest.mark.parametrize(
    ("changed", "path", "effect"),
    [
        ({"size": 3}, "spec.size", Effect.RESIZES),
        ({"maxSize": 8}, "spec.maxSize", Effect.RESIZES),
        ({"groups": [{**GROUP, "size": 2}]}, "spec.groups[0].size", Effect.RESIZES),
        ({"groups": [{**GROUP, "image": "x"}]}, "spec.groups[0].image", Effect.RECREATES),
        ({"flux": {"brokerConfig": "[access]\n\n"}}, "spec.flux.brokerConfig", Effect.RELOADS),
        ({"flux": {**FULL["flux"], "topology": "kary:2"}}, "spec.flux.topology", Effect.RECREATES),
        ({"minSize": 1}, "spec.minSize", Effect.NEXT_START),
        ({"suspend": True}, "spec.suspend", Effect.AT_ONCE),
        ({"autoscale": {"minSize": 2}}, "spec.autoscale.minSize", Effect.AT_ONCE),
        ({"autoscale": {}}, "spec.autoscale", Effect.AT_ONCE),
        ({"ttlSecondsAfterFinished": 5}, "spec.ttlSecondsAfterFinished", Effect.AT_ONCE),
        ({"tasks": 2}, "spec.tasks", Effect.RECREATES),
        ({"pod": {"labels": {"a.b/c": "d"}}}, "spec.pod.labels.a.b/c", Effect.RECREATES),
    ],
)
def test_a_change_is_told_with_its_effect(changed: dict[str, Any], path: str, effect: Effect) -> None:
    old, new = minicluster(**FULL), minicluster(**{**FULL, **changed})
    assert changes(old, new) == [Change(path, effect)]
    assert changes(new, old) == [Change(path, effect)]


def test_a_change_in_a_container_names_the_field() -> None:
    old = minicluster({"environment": {"A": "1"}, "volumes": {"v": {"emptyDir": True}}})
    new = minicluster({"environment": {"A": "2"}, "volumes": {"v": {"emptyDir": True, "path": "/v"}}})
    places = ["spec.containers[0].environment.A", "spec.containers[0].volumes.v.path"]
    assert changes(old, new) == [Change(place, Effect.RECREATES) for place in places]


def test_a_field_that_is_given_at_its_default_has_not_changed() -> None:
    assert changes(minicluster(), minicluster({"pullAlways": False}, tasks=1, suspend=False, groups=[])) == []


def test_another_job_is_made_for_what_recreates_and_for_nothing_else() -> None:
    before = minicluster()
    for _, cluster in miniclusters(400):
        found = changes(before, cluster)
        assert (recreating_fingerprint(before) != recreating_fingerprint(cluster)) is any(
            one.effect is Effect.RECREATES for one in found
        )
        assert (spec_fingerprint(before) != spec_fingerprint(cluster)) is bool(found)
        before = cluster


def test_the_users_page_has_the_same_table() -> None:
    rows = re.findall(r"^\| `(spec\.[^`]*)` \| ([a-z ]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(rows) == {path: effect.value for path, effect in effects()[0].items()}


def cluster(**spec: Any) -> Any:
    full = {"containers": [{"image": "busybox", "command": "true"}], **spec}
    kind = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster"}
    return check({**kind, "metadata": {"name": "hello"}, "spec": full})


def test_they_are_those_of_the_versions_before() -> None:
    """Another value would make another Job of each live MiniCluster."""
    one = cluster(size=3, flux={"optionFlags": "-ompi=openmpi"})
    assert spec_fingerprint(one) == "76ce82659455d5885609d37c361330a1"
    assert recreating_fingerprint(one) == "550d3868cff3faab9e66d9df787d7199"


def test_a_field_at_its_default_counts_as_absent() -> None:
    assert spec_fingerprint(cluster()) == spec_fingerprint(cluster(size=1, cleanup=False, groups=[], interactive=False))


@pytest.mark.parametrize(
    ("spec", "another_job"),
    [
        ({"size": 2}, False),
        ({"suspend": True}, False),
        ({"flux": {"brokerConfig": "[queues.a]"}}, False),
        ({"tasks": 2}, True),
        ({"flux": {"optionFlags": "-v"}}, True),
        ({"ignoreFailure": True}, True),
    ],
)
def test_what_needs_another_job_is_told_from_what_does_not(spec: dict[str, Any], another_job: bool) -> None:
    assert spec_fingerprint(cluster(**spec)) != spec_fingerprint(cluster())
    assert (recreating_fingerprint(cluster(**spec)) != recreating_fingerprint(cluster())) == another_job


def test_the_size_of_a_group_needs_no_other_job_and_its_image_does() -> None:
    one, larger, other = (
        cluster(groups=[{"name": "gpu", **more}]) for more in ({"size": 1}, {"size": 2, "maxSize": 3}, {"image": "x"})
    )
    assert recreating_fingerprint(one) == recreating_fingerprint(larger) != recreating_fingerprint(other)


def test_the_configuration_alone() -> None:
    one = cluster(flux={"brokerConfig": "[queues.a]"})
    assert configuration_fingerprint(one) == configuration_fingerprint(
        cluster(size=2, flux={"brokerConfig": "[queues.a]"})
    )
    assert configuration_fingerprint(one) != configuration_fingerprint(cluster())


def test_defaults_of_the_api_server_are_not_content() -> None:
    made = {"kind": "Service", "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 1}]}}
    kept = {"spec": {**made["spec"], "ports": [{"port": 1, "protocol": "TCP", "targetPort": 1}], "type": "ClusterIP"}}  # type: ignore[dict-item]
    assert content_fingerprint(made) == content_fingerprint(kept)
    kept["spec"]["selector"] = {"a": "c"}
    assert content_fingerprint(made) != content_fingerprint(kept)
