"""Fingerprints: the same for the same spec in every version of the operator, another for what matters."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.minicluster.api.validate import check
from headrace.minicluster.operator.core.fingerprint import configuration, content_of, recreating, whole


def cluster(**spec: Any) -> Any:
    full = {"containers": [{"image": "busybox", "command": "true"}], **spec}
    kind = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster"}
    return check({**kind, "metadata": {"name": "hello"}, "spec": full})


def test_they_are_those_of_the_versions_before() -> None:
    """Another value would make another Job of each live MiniCluster."""
    one = cluster(size=3, flux={"optionFlags": "-ompi=openmpi"})
    assert whole(one) == "76ce82659455d5885609d37c361330a1"
    assert recreating(one) == "550d3868cff3faab9e66d9df787d7199"


def test_a_field_at_its_default_counts_as_absent() -> None:
    assert whole(cluster()) == whole(cluster(size=1, cleanup=False, groups=[], interactive=False))


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
    assert whole(cluster(**spec)) != whole(cluster())
    assert (recreating(cluster(**spec)) != recreating(cluster())) == another_job


def test_the_size_of_a_group_needs_no_other_job_and_its_image_does() -> None:
    one, larger, other = (
        cluster(groups=[{"name": "gpu", **more}]) for more in ({"size": 1}, {"size": 2, "maxSize": 3}, {"image": "x"})
    )
    assert recreating(one) == recreating(larger) != recreating(other)


def test_the_configuration_alone() -> None:
    one = cluster(flux={"brokerConfig": "[queues.a]"})
    assert configuration(one) == configuration(cluster(size=2, flux={"brokerConfig": "[queues.a]"}))
    assert configuration(one) != configuration(cluster())


def test_defaults_of_the_api_server_are_not_content() -> None:
    made = {"kind": "Service", "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 1}]}}
    kept = {"spec": {**made["spec"], "ports": [{"port": 1, "protocol": "TCP", "targetPort": 1}], "type": "ClusterIP"}}  # type: ignore[dict-item]
    assert content_of(made) == content_of(kept)
    kept["spec"]["selector"] = {"a": "c"}
    assert content_of(made) != content_of(kept)
