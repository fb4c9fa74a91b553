"""`headrace mini manifests`: what it prints is what the operator applies, as text that kubectl reads alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.cli.main import headrace
from headrace.minicluster.api.validate import load
from headrace.minicluster.operator.builders import Images, desired
from headrace.minicluster.operator.keys import keys_of

FILE = """
apiVersion: flux-framework.org/v1alpha2
kind: MiniCluster
metadata:
  name: sample
spec:
  size: 2
  flux: {container: {image: "ghcr.io/converged-computing/flux-view-rocky:tag-9"}}
  containers:
  - image: debian:12
    command: hostname
    environment: {ANSWER: "y", NUMBER: "1e3", OCTAL: "0o17", EMPTY: "", TEXT: "a: b", DAY: "2024-01-01"}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "minicluster.yaml"
    path.write_text(FILE)
    return str(path)


def without_secret(objects: list[Any]) -> list[Any]:
    return [one for one in objects if one["kind"] != "Secret"]


def expected(namespace: str = "") -> list[Any]:
    text = FILE.replace("  name: sample", f"  name: sample\n  namespace: {namespace}") if namespace else FILE
    return desired(load(text).cluster, uid="", images=Images(view="view:1"), keys=None)


def test_it_prints_the_objects_that_the_operator_applies(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert headrace(["mini", "manifests", "--view-image=view:1", file]) == 0
    out, err = capsys.readouterr()
    objects = list(yaml.safe_load_all(out))
    assert without_secret(objects) == expected()
    assert "using the view view:1 instead of ghcr.io/converged-computing/flux-view-rocky:tag-9\n" in err
    assert "not printed, apply them from the file: PersistentVolumeClaim/data\n" in err


def test_its_keys_are_fresh_each_time(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = set()
    for _ in range(2):
        assert headrace(["mini", "manifests", file]) == 0
        (secret,) = [one for one in yaml.safe_load_all(capsys.readouterr().out) if one["kind"] == "Secret"]
        found.add(keys_of(secret))
    assert len(found) == 2


def test_a_namespace_is_given_to_every_object(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert headrace(["mini", "manifests", "--json", "-n", "there", "--view-image=view:1", file]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    assert {one["metadata"]["namespace"] for one in listed["items"]} == {"there"}
    assert without_secret(listed["items"]) == expected("there")


def test_the_domain_and_an_image_volume_reach_the_objects(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert headrace(["mini", "manifests", "--cluster-domain", "k8s.lan", "--view-as-volume", file]) == 0
    objects = list(yaml.safe_load_all(capsys.readouterr().out))
    wanted = desired(load(FILE).cluster, uid="", images=Images(as_volume=True), keys=None, cluster_domain="k8s.lan")
    assert without_secret(objects) == wanted != desired(load(FILE).cluster, uid="", images=Images(), keys=None)


def test_text_that_other_readers_take_for_something_else_is_quoted(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """kubectl's reader of YAML takes a plain `y` for true, `1e3` for a number and `0o17` for fifteen."""
    assert headrace(["mini", "manifests", file]) == 0
    out = capsys.readouterr().out
    for value in ("y", "1e3", "0o17", "2024-01-01", "a: b"):
        assert f'value: "{value}"\n' in out


def test_a_wrong_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(FILE.replace("size: 2", "size: 0"))
    assert headrace(["mini", "manifests", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "spec.size: must be 1 or more, not 0" in err
