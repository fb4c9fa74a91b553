"""What the API server would refuse in a cluster's objects is told of its fields; what it takes is taken."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from headrace.k8s.objects.quantities import quantity
from headrace.minicluster.api.fields import InvalidMiniCluster
from headrace.minicluster.api.validate import check
from minicluster.api.broken import CONTAINER_OBJECTS, OBJECTS


def paths(spec: dict[str, Any], **metadata: Any) -> list[str]:
    """The paths of all problems of a cluster; `spec` may leave the containers out."""
    head = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "c", **metadata}}
    try:
        check({**head, "spec": {"containers": [{"command": "x"}], **spec}})
    except InvalidMiniCluster as exc:
        return [problem.path for problem in exc.problems]
    return []


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"command": "x", **fields}]}


GOOD: list[dict[str, Any]] = [
    {"jobLabels": {"kueue.x-k8s.io/queue-name": "user-queue", "empty": ""}},
    {"network": {"headlessName": "flux-service"}},
    {"pod": {"nodeSelector": {"kubernetes.io/arch": "amd64"}, "annotations": {"a.b/c": "any text"}}},
    {"pod": {"nodeAffinity": {"zone": ["a", "b-1"]}, "serviceAccountName": "flux.sa", "dnsPolicy": "Default"}},
    {"pod": {"nodeAffinity": {"zone": []}}, "network": {"disableAffinity": True}},
    {"pod": {"tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b"}]}},
    {"pod": {"resources": {"cpu": 1}}},
    container(resources={"limits": {"nvidia.com/gpu": 1, "cpu": "1500m"}, "requests": {"cpu": 1}}),
    container(securityContext={"privileged": True, "runAsUser": 0, "capabilities": {"add": ["SYS_PTRACE"]}}),
    container(securityContext={"seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}}),
    container(
        volumes={
            "a": {"hostPath": "/a..b", "path": "/a"},
            "b": {"emptyDir": True, "path": "/b"},
            "c": {"emptyDir": True},
        }
    ),
    container(volumes={"m": {"configMapName": "m", "items": {"k": "d/f"}, "path": "/m"}}),
    container(volumes={"m": {"configMapName": "m", "path": "/m"}}),
    container(resources={"limits": {"hugepages-2Mi": "4Mi", "memory": "1Gi"}}),
    container(securityContext={"allowPrivilegeEscalation": False, "capabilities": {"add": ["SYS_PTRACE"]}}),
    {"pod": {"labels": {"job-name": "c", "job-index": "0"}}},
    container(secrets={"PASSWORD": {"name": "db.example", "key": "pass_word.txt"}}),
    container(lifeCycle={"postStartExec": "sh -c 'echo it runs'"}, resources={"limits": {"cpu": 2}}),
    {"pod": {"resources": {"cpu": 2}}, **container(resources={"limits": {"cpu": 2}})},
    {"containers": [{"runFlux": True, "ports": [80]}, {"name": "9-lives"}, {"name": "web", "ports": [80, 81]}]},
    {"size": 50_000, "groups": [{"name": "g", "size": 50_000}]},
    {"flux": {"container": {"name": "view", "mountPath": "/opt/view"}}},
    # Without a view in the pods, its place is free for the image's own Flux.
    {
        "flux": {"container": {"disable": True, "mountPath": "/opt/instance"}},
        **container(volumes={"flux": {"hostPath": "/srv/flux", "path": "/mnt/flux/view"}}),
    },
]


@pytest.mark.parametrize("path", ["/mnt/flux", "/mnt/flux/view"])
def test_the_place_of_the_view_is_taken_where_there_is_one(path: str) -> None:
    view = {"flux": {"container": {"mountPath": "/opt/instance"}}}
    assert paths({**view, **container(volumes={"v": {"hostPath": "/srv", "path": path}})}) != []


@pytest.mark.parametrize("spec", GOOD)
def test_what_the_api_server_takes_is_taken(spec: dict[str, Any]) -> None:
    assert paths(spec) == []


@pytest.mark.parametrize(("spec", "path"), OBJECTS)
def test_what_a_cluster_cannot_have_is_told_of_its_field(spec: dict[str, Any], path: str) -> None:
    assert paths(spec) == [path]


@pytest.mark.parametrize(("fields", "path"), CONTAINER_OBJECTS)
def test_what_a_container_cannot_have_is_told_of_its_field(fields: dict[str, Any], path: str) -> None:
    assert paths(container(**fields)) == [f"spec.containers[0].{path}"]


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        ({"lables": {}}, "metadata.lables"),
        ({"labels": {"a": "b c"}}, "metadata.labels.a"),
        ({"labels": {"a": 1}}, "metadata.labels.a"),
        ({"annotations": {"a b": "c"}}, "metadata.annotations.a b"),
        ({"namespace": "Mine"}, "metadata.namespace"),
    ],
)
def test_what_metadata_cannot_have_is_told_of_its_field(metadata: dict[str, Any], path: str) -> None:
    assert paths({}, **metadata) == [path]
    assert paths({}, labels={"a": ""}, annotations={"b/c": "d e"}, namespace="mine", finalizers=[]) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [("500m", Fraction(1, 2)), ("1Gi", 2**30), ("2e3", 2000), ("1E", 10**18), (".5k", 500), ("5.", 5), ("-1Ki", -1024)],
)
def test_a_quantity_has_the_value_that_kubernetes_gives_it(text: str, value: Fraction) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1" * 5000, Fraction(2**63 - 1)),
        ("-" + "1" * 5000, Fraction(1 - 2**63)),
        ("1e" + "1" * 5000, Fraction(2**63 - 1)),
        ("0" * 5000 + "7", Fraction(7)),
        ("7." + "0" * 5000, Fraction(7)),
        ("1" * 25 + "n", Fraction("1111111111111111.111111111")),
        ("9Ei", Fraction(2**63 - 1)),
    ],
)
def test_a_quantity_of_many_digits_is_at_most_the_largest(text: str, value: Fraction) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", ".", "1.2.3", "1e", "+-1", "abc", "1GB", "1_0", "\u0663"])
def test_what_is_no_quantity_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="must be a quantity such as 500m, 1Gi or 2e3"):
        quantity(text)


def test_a_quantity_with_a_huge_exponent_is_no_work() -> None:
    assert quantity("1e999999999") > quantity("1E")


def test_a_name_leaves_room_for_the_pod_of_the_services() -> None:
    services = {"services": [{"name": "db", "image": "x"}]}
    assert paths(services, name="c" * 54) == []
    assert paths(services, name="c" * 55) == ["metadata.name"]
