"""`headrace mini validate`: what a valid file has that nobody carries out is said beside the verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli.main import headrace


def test_what_has_no_effect_is_told_of_a_valid_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cluster.yaml"
    spec = {
        "containers": [{"image": "debian:12", "command": "hostname"}],
        "services": [{"name": "db", "image": "postgres:16", "command": "serve"}],
        "flux": {"arch": "arm", "brokerConfig": "[accesss]\n"},
    }
    document = {"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "c"}}
    path.write_text(json.dumps({**document, "spec": spec}))
    assert headrace(["mini", "validate", str(path)]) == 0
    told = capsys.readouterr()
    assert told.out == f"{path}: MiniCluster c is valid (size 1, tasks 1)\n"
    lines = told.err.splitlines()
    assert lines[0] == f"{path}: spec.flux.arch: has no effect"
    assert lines[1] == f"{path}: spec.services[0].command: has no effect: a service runs its image's own entry point"
    assert lines[2].startswith(f"{path}: spec.flux.brokerConfig: accesss")
