"""Wrong MiniCluster files: every error at once, each with its path and its rule."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from headrace.minicluster.api.fields import Bursting, Flux, InvalidMiniCluster, LeadBroker, View
from headrace.minicluster.api.validate import check, load
from minicluster.api.broken import CLUSTER, CONTAINER


def document(spec: Any = None, **head: Any) -> dict[str, Any]:
    base = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "a"}}
    return {**base, "spec": {"containers": [{"command": "hostname"}]} if spec is None else spec, **head}


def spec_with(container: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return document({"containers": [{"command": "hostname", **(container or {})}], **fields})


def problems(source: Any) -> dict[str, str]:
    with pytest.raises(InvalidMiniCluster) as caught:
        load(source) if isinstance(source, str) else check(source)
    return {problem.path: problem.rule for problem in caught.value.problems}


def test_the_smallest_cluster_has_the_defaults_of_the_schema() -> None:
    cluster = check(document())
    assert (cluster.name, cluster.spec.size, cluster.spec.tasks) == ("a", 1, 1)
    assert cluster.spec.flux is None and cluster.flux.connect_timeout == ""
    assert check(spec_with(flux={})).flux.connect_timeout == "5s"


def test_all_errors_are_told_at_once_with_their_paths() -> None:
    wrong = document(
        {
            "size": "two",
            "maxSize": 2.5,
            "volumes": {},
            "containers": [{"comand": "x", "ports": ["a"], "environment": {"N": 3, "T": True}}],
        },
        metadata={"name": "Bad_Name"},
        kind="Minicluster",
    )
    found = problems(wrong)
    assert found["kind"] == "must be MiniCluster, not 'Minicluster'"
    assert found["spec.size"] == "must be a whole number, not text"
    assert found["spec.maxSize"] == "must be a whole number, not 2.5"
    assert found["spec.volumes"].startswith("unknown field")
    assert found["spec.containers[0].comand"] == "unknown field, did you mean command?"
    assert found["spec.containers[0].ports[0]"] == "must be a whole number, not text"
    assert 'write "3" in quotes' in found["spec.containers[0].environment.N"]
    assert 'write "true" in quotes' in found["spec.containers[0].environment.T"]
    assert "metadata.name" in found
    assert len(found) == 9


def test_rules_are_checked_where_another_place_has_the_wrong_type() -> None:
    spec = {
        "size": -2,
        "tasks": "x",
        "maxsize": 3,
        "containers": [
            {"command": ["a"], "ports": [99999999], "runFlux": True, "volumes": {"data": {"path": "/d"}}},
            {"name": "side", "batch": "yes", "batchRaw": True, "securityContext": {"seccompProfile": {"type": 1}}},
            {"name": "side"},
        ],
        "flux": {"scheduler": {"queuePolicy": "bogus"}, "logLevel": "6"},
    }
    assert problems(document(spec)).keys() == {
        "spec.size",
        "spec.tasks",
        "spec.maxsize",
        "spec.containers[0].command",
        "spec.containers[0].ports[0]",
        "spec.containers[0].volumes.data",
        "spec.containers[1].batch",
        "spec.containers[1].securityContext.seccompProfile.type",
        "spec.containers[2].name",
        "spec.flux.scheduler.queuePolicy",
        "spec.flux.logLevel",
    }


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"size": "4", "maxSize": 2, "minSize": 3, "containers": [{}]}, {"spec.size"}),
        ({"containers": ["x"]}, {"spec.containers[0]"}),
        ({"containers": "x"}, {"spec.containers"}),
        (
            {"containers": [{"runFlux": "yes"}, {"name": "b"}]},
            {"spec.containers[0].runFlux", "spec.containers[0].name"},
        ),
        (
            {"containers": [{"volumes": {"v": {"claimName": 1, "path": "/v"}}}]},
            {"spec.containers[0].volumes.v.claimName"},
        ),
    ],
)
def test_what_would_follow_from_a_mistake_is_not_told_as_another(spec: dict[str, Any], told: set[str]) -> None:
    assert problems(document(spec)).keys() == told


def test_a_null_field_is_an_absent_one() -> None:
    assert check(spec_with(size=None, flux=None, logging={"quiet": None})).spec.size == 1


@pytest.mark.parametrize(("fields", "path"), CLUSTER)
def test_a_broken_rule_of_the_cluster_names_its_field(fields: dict[str, Any], path: str) -> None:
    assert list(problems(spec_with(**fields))) == [path]


@pytest.mark.parametrize(("container", "path"), CONTAINER)
def test_a_broken_rule_of_a_container_names_its_field(container: dict[str, Any], path: str) -> None:
    assert list(problems(spec_with(container))) == [f"spec.containers[0].{path}"]


@pytest.mark.parametrize(
    "config",
    [
        "x=" + "[" * 100_000,
        "a." * 50_000 + "b=1",
        "x={" + "a . " * 50_000 + "b=1}",
        "[" + "a." * 50_000 + "b]",
        "#" * 80_000,
    ],
    ids=["nested", "key", "inline key", "table", "long"],
)
def test_a_configuration_that_would_keep_the_parser_busy_is_refused(config: str) -> None:
    began = time.process_time()
    assert list(problems(spec_with(flux={"brokerConfig": config}))) == ["spec.flux.brokerConfig"]
    assert time.process_time() - began < 5


def test_a_long_configuration_of_plain_words_is_taken_at_once() -> None:
    began = time.process_time()
    config = f"[foreign]\ntext = '{'a' * 30_000}'\nnumbers = [{'1.5, ' * 6_000}]\n"
    assert check(spec_with(flux={"brokerConfig": config})).flux.broker_config == config
    assert time.process_time() - began < 5


def test_a_topology_is_checked_alike_for_few_and_many_pods() -> None:
    began = time.process_time()
    for topology in ("kary:1", "kary:0", "binomial", "mincrit:3", "custom"):
        assert check(spec_with(size=100_000, flux={"topology": topology})).spec.size == 100_000
    assert time.process_time() - began < 5
    assert list(problems(spec_with(size=100_000, flux={"topology": "kary:x"}))) == ["spec.flux.topology"]


def test_quantities_may_be_numbers_or_text() -> None:
    cluster = check(spec_with({"resources": {"limits": {"cpu": 2, "memory": "1Gi"}}}))
    resources = cluster.runner.resources
    assert resources is not None and resources.limits == {"cpu": "2", "memory": "1Gi"}


def test_a_host_name_that_would_be_too_long_is_refused_by_the_largest_size() -> None:
    name = "a" * 61
    assert check(document(metadata={"name": name})).name == name
    assert "64 characters" in problems({**spec_with(size=11), "metadata": {"name": name}})["metadata.name"]


def test_one_of_several_containers_must_run_flux_and_the_others_have_names() -> None:
    pair = [{"runFlux": True, "command": "x"}, {"name": "web"}]
    assert check(document({"containers": pair})).runner.command == "x"
    assert "exactly one" in problems(document({"containers": [{"name": "a1"}, {"name": "b"}]}))["spec.containers"]
    assert "spec.containers[1].name" in problems(document({"containers": [{"runFlux": True}, {}]}))
    twins = [{"runFlux": True, "command": "x"}, {"name": "a"}]
    assert "runs Flux" in problems(document({"containers": twins}))["spec.containers[1].name"]


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"runFlux": True, "name": "web"}, {"name": "web"}]},
        {"containers": [{"name": "My_Job", "command": "x"}]},
        {"containers": [{"command": "x", "batchRaw": True}]},
        {"containers": [{"runFlux": True, "command": "x"}, {"name": "side", "batch": True}]},
        {"containers": [{"command": "x"}], "services": [{"name": "db", "batch": True, "commands": {"script": "x"}}]},
        {"containers": [{"command": "x"}], "services": [{"name": "db", "commands": {"prefix": "x", "init": "y"}}]},
    ],
)
def test_what_has_no_effect_where_it_is_given_is_taken(spec: dict[str, Any]) -> None:
    """As by the Flux Operator: names of the container that runs Flux, modes and commands of other containers."""
    assert check(document(spec)).spec.containers


def test_an_empty_field_of_the_view_and_a_port_of_0_are_the_defaults() -> None:
    lead = {"address": "far", "name": "l", "size": 2, "port": 0}
    flux = {"container": {"name": "", "image": "", "mountPath": ""}, "bursting": {"leadBroker": lead}}
    assert check(spec_with(flux=flux)).spec.flux == Flux(
        container=View(), bursting=Bursting(lead_broker=LeadBroker(address="far", name="l", size=2, port=8050))
    )


def test_a_syntax_error_names_its_line() -> None:
    found = problems("kind: MiniCluster\nspec: [1, 2\nmetadata: {}\n")
    assert next(iter(found)).startswith("line 3")
    assert next(iter(found.values())).startswith("not YAML")


@pytest.mark.parametrize("field", ["size", "interactive", "managedBy"])
def test_a_number_that_nothing_can_hold_is_refused_with_its_line(field: str) -> None:
    number = "0x" + "f" * 5000
    with pytest.raises(InvalidMiniCluster) as caught:
        load(f"kind: MiniCluster\nspec:\n  {field}: {number}\n")
    assert str(caught.value) == f"line 3, column {len(field) + 5}: not YAML: a number of more than 64 bits"


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 30_000 + "]" * 30_000, "{a: " * 30_000])
def test_a_text_that_is_nested_too_deeply_is_refused(text: str) -> None:
    (why,) = problems(text).values()
    assert re.fullmatch("not YAML: (nested too deeply|exceeded maximum nesting depth)", why)


def test_a_file_larger_than_any_object_is_refused_unread() -> None:
    comment = "# so it is\n" * 260_000
    assert load(comment + yaml.safe_dump(document())).cluster.name == check(document()).name
    assert problems(comment * 2 + "[")[""].startswith("larger than 3 MB: ")


def test_other_kinds_in_the_file_are_returned_and_two_clusters_refused() -> None:
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    source = load(yaml.safe_dump_all([claim, document()]))
    assert source.others == ["PersistentVolumeClaim/data"]
    assert "2 of them" in problems(yaml.safe_dump_all([document(), document()]))[""]
    assert "empty" in problems("---\n")[""]


def test_a_key_given_twice_is_a_warning_with_its_line() -> None:
    source = load(yaml.safe_dump(document()) + "kind: MiniCluster\n")
    assert len(source.warnings) == 1 and "kind is given twice" in source.warnings[0]


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["size", "tasks", "containers", "flux", "pod", "logging", "services", "network", "archive"])


@given(st.dictionaries(KEYS, ANY))
def test_any_specification_is_valid_or_gets_problems(spec: dict[str, Any]) -> None:
    try:
        check(document(spec))
    except InvalidMiniCluster as exc:
        assert exc.problems


@given(st.text(max_size=60))
def test_any_text_is_a_cluster_or_gets_problems(text: str) -> None:
    with pytest.raises(InvalidMiniCluster):
        load(text)
