"""The Helm chart gives the objects of the install file, and refuses values that it does not know.

Without Helm the few words that the templates use are rendered here; with it (`tools/kube/kube build helm`, or in PATH)
Helm itself lints and renders the chart, too.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from helm import by_helm, by_these_words, named, program, written

from headrace.programs.operator.install import Install
from headrace.programs.operator.package import PACKAGE
from programs.operator.test_install_objects import VARIANTS

Object = dict[str, Any]


def values_of(install: Install) -> Object:
    """The chart's values that choose an install."""
    return {
        **{"image": install.image, "viewImage": install.view_image, "viewAsVolume": install.view_as_volume},
        **{"watchNamespaces": list(install.watched), "networkPolicyNamespaces": list(install.network_policies)},
        **{"clusterDomain": install.cluster_domain, "fluxOperatorNamespace": install.flux_operator_namespace},
        **{"replicas": install.replicas, "resources": install.resources, "crd": True},
        "webhook": {"enabled": install.webhook, "certManager": install.cert_manager},
        "trainer": {"enabled": install.trainer},
        "metricsApi": {"enabled": install.metrics_api},
    }


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    return written(PACKAGE.chart(), tmp_path)


@pytest.mark.parametrize("renderer", ["these words", "Helm"])
@pytest.mark.parametrize("install", VARIANTS)
def test_the_chart_makes_the_same_objects(install: Install, renderer: str, chart: Path) -> None:
    values = values_of(install)
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


def test_each_value_has_a_default_that_fits_its_schema_and_a_sentence() -> None:
    schema = PACKAGE.values_schema()
    for one in PACKAGE.values:
        inside = schema
        for word in one.name.split("."):
            assert inside["additionalProperties"] is False
            inside = inside["properties"][word]
        kinds = {"string": str, "boolean": bool, "integer": int, "array": list, "object": dict}
        assert isinstance(one.default, kinds[one.schema["type"]]) and inside["default"] == one.default
        assert one.comment[0].isupper() and one.comment.endswith(".")


def test_helm_finds_nothing_wrong_with_the_chart(chart: Path) -> None:
    done = subprocess.run(
        [program(), "lint", "--strict", str(chart / "chart")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


BREAKS = ['x"y', "x\\y", "x\ny: z", "x y"]


@pytest.mark.parametrize("text", BREAKS)
def test_a_text_that_would_not_be_itself_between_quotes_is_refused(text: str) -> None:
    texts = [one for one in PACKAGE.values if one.schema["type"] in ("string", "array")]
    assert len(texts) >= 6
    for one in texts:
        *parents, last = one.name.split(".")
        given: Any = {last: [text] if one.schema["type"] == "array" else text}
        for parent in reversed(parents):
            given = {parent: given}
        with pytest.raises(jsonschema.ValidationError, match="does not match"):
            jsonschema.validate(given, PACKAGE.values_schema())


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ("watchNamespace=team", "watchNamespace"),
        ("replicas=0", "replicas"),
        ("webhook.enabled=sometimes", "webhook"),
        ("image=", "image"),
    ],
)
def test_helm_refuses_a_value_that_the_schema_does_not_have(chart: Path, chosen: str, told: str) -> None:
    line = [program(), "template", "x", str(chart / "chart"), "--kube-version", "1.34.0", "--set", chosen]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and told in done.stderr
