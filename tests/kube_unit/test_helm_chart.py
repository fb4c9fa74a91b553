"""The Helm chart gives the objects of the install file, and refuses values that it does not know.

Without Helm the few words that the templates use are rendered here; with it (`tools/kube/kube build helm`, or in PATH)
Helm itself lints and renders the chart, too.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubecluster import build
from kubecluster.errors import KubeError
from test_install_objects import VARIANTS

from headrace.kube.helm_chart import VALUES, helm_chart, values_schema
from headrace.kube.install import Install, objects

Object = dict[str, Any]
Render = Callable[[Object, str], list[Object]]


def values_of(install: Install) -> Object:
    """The chart's values that choose an install."""
    return {
        **{"image": install.image, "viewImage": install.view_image, "viewAsVolume": install.view_as_volume},
        **{"watchNamespaces": list(install.watched), "networkPolicyNamespaces": list(install.network_policies)},
        **{"clusterDomain": install.cluster_domain, "fluxOperatorNamespace": install.flux_operator_namespace},
        **{"replicas": install.replicas, "resources": install.resources, "crd": True},
        "webhook": {"enabled": install.webhook, "certManager": install.cert_manager},
        "trainer": {"enabled": install.trainer},
    }


# --- the words of the templates


def lookup(path: str, scope: Any, here: Any) -> Any:
    """The value of `$.A.B` in `scope`, or of `.` here."""
    if path == ".":
        return here
    for word in path.removeprefix("$.").split("."):
        scope = scope[word]
    return scope


def shown(expression: str, scope: Any, here: Any) -> str:
    words = expression.split()
    value = lookup(words[-1], scope, here)
    if words[0] == "toJson":
        return json.dumps(value)
    return ",".join(value) if words[0] == "join" else str(value)


def rendered(lines: Iterator[str], scope: Any, here: Any = None) -> Iterator[str]:
    """What Helm makes of lines up to the `end` or `else` of their block: if, if not, else, range, and values."""
    for line in lines:
        action = re.fullmatch(r"\{\{- (if not|if|range|else|end) ?(\S*) \}\}", line)
        if not action:
            yield re.sub(r"\{\{ (.+?) \}\}", lambda found: shown(found[1], scope, here), line)
        elif action[1] in ("else", "end"):
            return
        else:
            yield from block(action[1], lookup(action[2], scope, here), lines, scope, here)


def block(kind: str, value: Any, lines: Iterator[str], scope: Any, here: Any) -> Iterator[str]:
    """A whole block, whose lines are read to their end."""
    parts: tuple[list[str], list[str]] = ([], [])
    depth, into = 1, parts[0]
    for line in lines:
        depth += bool(re.match(r"\{\{- (if|range) ", line)) - (line == "{{- end }}")
        if depth == 0:
            break
        if depth == 1 and line == "{{- else }}":
            into = parts[1]
        else:
            into.append(line)
    if kind == "range":
        for one in value:
            yield from rendered(iter(parts[0]), scope, one)
    else:
        yield from rendered(iter(parts[bool(value) == (kind == "if not")]), scope, here)


def by_these_words(values: Object, namespace: str) -> list[Object]:
    scope = {"Values": values, "Release": {"Namespace": namespace}}
    texts = [text for name, text in helm_chart().items() if name.startswith("templates/")]
    whole = ["\n".join(rendered(iter(text.splitlines()), scope)) for text in texts]
    return [one for text in whole for one in yaml.safe_load_all(text) if one]


# --- the tests


def program() -> str:
    """Helm, or a skip with the reason."""
    # A machine without Go has none that was built.
    with contextlib.suppress(KubeError):
        if build.is_built("helm"):
            return build.program("helm", "helm")
    found = shutil.which("helm")
    if not found:
        pytest.skip("Helm is not there: `tools/kube/kube build helm`")
    return found


def by_helm(values: Object, namespace: str, folder: Path) -> list[Object]:
    (folder / "chosen.yaml").write_text(json.dumps(values))
    line = [program(), "template", "x", str(folder / "chart"), "-n", namespace, "-f", str(folder / "chosen.yaml")]
    done = subprocess.run([*line, "--kube-version", "1.34.0"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    for name, text in helm_chart().items():
        path = tmp_path / "chart" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def named(found: list[Object]) -> dict[tuple[str, str, str], Object]:
    return {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in found}


@pytest.mark.parametrize("renderer", ["these words", "Helm"])
@pytest.mark.parametrize("install", VARIANTS)
def test_the_chart_makes_the_same_objects(install: Install, renderer: str, chart: Path) -> None:
    values = values_of(install)
    if renderer == "Helm":
        made = by_helm(values, install.namespace, chart)
    else:
        made = by_these_words(values, install.namespace)
    for one in made:
        if one["kind"] == "CustomResourceDefinition":
            assert one["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    # The chart's namespace is Helm's to make.
    wanted = {key: one for key, one in named(objects(install)).items() if key[0] != "Namespace"}
    assert named(made) == wanted and len(made) == len(wanted)


def test_the_defaults_of_the_chart_are_those_of_the_install_file() -> None:
    assert yaml.safe_load(helm_chart()["values.yaml"]) == values_of(Install())


def test_each_value_has_a_default_that_fits_its_schema_and_a_sentence() -> None:
    schema = values_schema()
    for one in VALUES:
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
