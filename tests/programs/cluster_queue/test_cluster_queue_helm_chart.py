"""The cluster queue's Helm chart gives the objects of its install file, and refuses what `install.check` refuses."""

from __future__ import annotations

import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from helm import by_helm, by_these_words, named, program, written

from headrace.programs.cluster_queue.install import Install, check
from headrace.programs.cluster_queue.package import PACKAGE

Object = dict[str, Any]

STORES: list[Object] = [
    {},
    {"store": "postgresql://me@db/jobs"},
    {"store": "postgresql://me@db/jobs", "store_secret": "db"},
    {"store_claim": "disk"},
]
GRPC: list[Object] = [
    {},
    {"grpc": True, "grpc_queue": "large"},
    {"grpc": True, "grpc_secret": "own"},
    {"grpc": True, "grpc_secret": "own", "grpc_client_secret": "theirs"},
]
CHOSEN = {"limits": {"memory": "2Gi"}}
VARIANTS = [
    Install(resources=CHOSEN),
    Install(resources=CHOSEN, grpc=True),
    Install(namespace="tools", image="registry.example/op:2", replicas=2, failure_policy="Ignore", strict=True),
    *(Install(**store, **grpc) for store, grpc in product(STORES, GRPC)),
]
WRONG: list[Object] = [
    {"store": "mysql://db"},
    {"store": "sqlite:/tmp/store"},
    {"store": "postgresql://db/jobs", "store_claim": "disk"},
    {"store_secret": "db"},
    {"store_claim": "disk", "replicas": 2},
    {"grpc": True, "replicas": 2},
    {"grpc_secret": "own"},
    {"grpc": True, "grpc_client_secret": "theirs"},
]


def values_of(install: Install) -> Object:
    """The chart's values that choose an install."""
    return {
        **{"image": install.image, "replicas": install.replicas, "resources": install.resources, "crd": True},
        **{"failurePolicy": install.failure_policy, "strict": install.strict},
        "store": {"url": install.store, "secret": install.store_secret, "claim": install.store_claim},
        "grpc": {
            **{"enabled": install.grpc, "queue": install.grpc_queue},
            **{"secret": install.grpc_secret, "clientSecret": install.grpc_client_secret},
        },
    }


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    return written(PACKAGE.chart(), tmp_path)


@pytest.mark.parametrize("renderer", ["these words", "Helm"])
@pytest.mark.parametrize("install", VARIANTS)
def test_the_chart_makes_the_same_objects(install: Install, renderer: str, chart: Path) -> None:
    values = values_of(install)
    check(install)
    jsonschema.validate(values, PACKAGE.values_schema())
    if renderer == "Helm":
        made = by_helm(values, install.namespace, chart)
    else:
        made = by_these_words(PACKAGE.chart(), values, install.namespace)
    for one in made:
        if one["kind"] == "CustomResourceDefinition":
            assert one["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    # The chart's namespace is Helm's to make.
    wanted = {key: one for key, one in named(PACKAGE.objects(install)).items() if key[0] != "Namespace"}
    assert named(made) == wanted and len(made) == len(wanted)


def test_the_defaults_of_the_chart_are_those_of_the_install_file() -> None:
    assert yaml.safe_load(PACKAGE.chart()["values.yaml"]) == values_of(Install())


@pytest.mark.parametrize("choice", WRONG)
def test_values_that_do_not_go_together_are_refused_as_choices_are(choice: Object) -> None:
    with pytest.raises(ValueError):
        check(Install(**choice))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values_of(Install(**choice)), PACKAGE.values_schema())


@pytest.mark.parametrize("text", ['x"y', "x\\y", "x\ny: z", "x y"])
def test_a_text_that_would_not_be_itself_between_quotes_is_refused(text: str) -> None:
    given: list[dict[str, Any]] = [
        {"image": text},
        {"store": {"url": f"postgresql://{text}"}},
        {"store": {"url": "postgresql://a", "secret": text}},
        {"store": {"claim": text}},
        *({"grpc": {"enabled": True, **grpc}} for grpc in ({"queue": text}, {"secret": text})),
        {"grpc": {"enabled": True, "secret": "a", "clientSecret": text}},
    ]
    for values in given:
        with pytest.raises(jsonschema.ValidationError, match="does not match"):
            jsonschema.validate(values, PACKAGE.values_schema())


def test_helm_finds_nothing_wrong_with_the_chart(chart: Path) -> None:
    line = [program(), "lint", "--strict", str(chart / "chart")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("chosen", "told"),
    [("failurePolicy=Never", "failurePolicy"), ("store.claim=a,replicas=2", "replicas"), ("grpcs=1", "grpcs")],
)
def test_helm_refuses_values_that_the_schema_does_not_allow(chart: Path, chosen: str, told: str) -> None:
    line = [program(), "template", "x", str(chart / "chart"), "--kube-version", "1.34.0", "--set", chosen]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and told in done.stderr
