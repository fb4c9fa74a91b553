from __future__ import annotations

import re

import pytest

from headrace.cluster_queue.crd import Settings, WrongQueueError, definitions, first_queue, settings_of
from headrace.sched.graph.policies import POLICIES as MATCH_POLICIES
from headrace.sched.queueing.policies import POLICIES


def schema(kind: str) -> dict:
    (found,) = (one for one in definitions() if one["spec"]["names"]["kind"] == kind)
    (version,) = found["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]


def test_the_group_version_and_short_name_are_those_of_fluxqueue():
    names = {one["metadata"]["name"]: one["spec"] for one in definitions()}
    spec = names["fluxjobs.jobs.converged-computing.org"]
    assert spec["versions"][0]["name"] == "v1alpha1"
    assert spec["names"]["shortNames"] == ["fj"]
    assert spec["scope"] == "Namespaced"
    assert names["fluxqueues.jobs.converged-computing.org"]["scope"] == "Cluster"


def test_what_a_fluxhistory_asks_is_there_and_stays_as_it_was():
    (found,) = (one["spec"] for one in definitions() if one["spec"]["names"]["kind"] == "FluxHistory")
    (version,) = found["versions"]
    whole = version["schema"]["openAPIV3Schema"]
    assert (found["scope"], version["subresources"]) == ("Namespaced", {"status": {}})
    assert whole["required"] == ["spec"]
    assert whole["properties"]["spec"]["required"] == ["user"]
    assert [one["rule"] for one in whole["properties"]["spec"]["x-kubernetes-validations"]] == ["self == oldSelf"]


def test_a_fluxqueue_names_the_policies_that_there_are():
    spec = schema("FluxQueue")["spec"]["properties"]
    assert set(spec["policy"]["enum"]) == set(POLICIES)
    assert set(spec["matchPolicy"]["enum"]) == {name for name, one in MATCH_POLICIES.items() if not one.whole}
    assert "lonodex" not in spec["matchPolicy"]["enum"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5h", 5400), ("100ms", 0.1), ("-1", None), ("inf", None), ("1w", None)]
)
def test_durations_that_the_schema_admits_can_be_read(text, seconds):
    pattern = schema("FluxQueue")["spec"]["properties"]["maxDuration"]["pattern"]
    assert bool(re.match(pattern, text)) is (seconds is not None)
    if seconds is not None:
        assert settings_of({"spec": {"maxDuration": text}}).max_duration == seconds


def test_the_settings_of_a_queue():
    spec = {
        "policy": "fcfs",
        "queueDepth": 8,
        "reservationDepth": 2,
        "nodeSelector": {"a": "b"},
        "defaultDuration": "1m",
    }
    assert settings_of({"spec": spec}) == Settings(
        policy="fcfs", queue_depth=8, reservation_depth=2, node_selector={"a": "b"}, default_duration=60
    )
    assert settings_of(first_queue()) == settings_of({}) == Settings()


def test_a_topology_is_zones_and_racks_if_a_queue_says_nothing_else():
    assert settings_of({"spec": {}}).topology == ("topology.kubernetes.io/zone", "topology.kubernetes.io/rack")
    assert settings_of({"spec": {"topology": ["a/room", "a/room"]}}).topology == ("a/room",)
    assert settings_of({"spec": {"topology": []}}).topology == ()


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"policy": "lifo"}, "spec.policy: must be one of"),
        ({"matchPolicy": "lonodex"}, "spec.matchPolicy: must be one of"),
        ({"queueDepth": 0}, "spec.queueDepth: must be a whole number, at least 1"),
        ({"reservationDepth": -1}, "spec.reservationDepth: must be a whole number, at least 0"),
        ({"defaultDuration": "soon"}, "spec.defaultDuration: must be a duration"),
        ({"readyTimeout": "0s"}, "spec.readyTimeout: must be a duration of more than zero"),
        (
            {"defaultDuration": "2h", "maxDuration": "1h"},
            "spec.defaultDuration: 2h is longer than spec.maxDuration, 1h",
        ),
        ({"defaultDuration": "9" * 19}, "spec.defaultDuration: must be at most 2147483647 seconds"),
        ({"readyTimeout": "9" * 400}, "spec"),
        ({"nodeSelector": {"not a key": "x"}}, "spec.nodeSelector.not a key: its name must be NAME or DOMAIN/NAME"),
        ({"nodeSelector": {"pool": "a b"}}, "spec.nodeSelector.pool: must be"),
        ({"quotas": [{"namespace": "a", "cpu": "-1"}]}, "spec.quotas[0].cpu: must be a quantity that is not negative"),
        ({"quotas": [{"namespace": "a", "memory": "1GB"}]}, "spec.quotas[0].memory: must be a quantity"),
        ({"quotas": [{"namespace": "a", "jobs": -1}]}, "spec.quotas[0].jobs: must be a whole number, at least 0"),
        ({"quotas": [{"namespace": "a"}, {"namespace": "a"}]}, "spec.quotas[1].namespace: must name a namespace"),
        ({"topology": ["rack", "a/"]}, "spec.topology.a/: its name must be NAME or DOMAIN/NAME"),
        ({"topology": None}, "spec: not valid for a FluxQueue"),
        ({"quotas": [1]}, "spec: not valid for a FluxQueue"),
        ({"quotas": [{"namespace": "a", "jobs": True}]}, "spec: not valid for a FluxQueue"),
        (["words"], "spec: not valid for a FluxQueue"),
    ],
)
def test_what_does_not_make_sense_names_its_field(spec, why):
    with pytest.raises(WrongQueueError) as caught:
        settings_of({"spec": spec})
    assert str(caught.value).startswith(why)
