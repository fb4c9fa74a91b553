"""The files in `deploy/` are made of the descriptions of the operator and of the cluster queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.k8s.packaging.package import Package
from headrace.programs.cluster_queue.package import PACKAGE as FLUXQUEUE
from headrace.programs.install_files import all_files
from headrace.programs.operator.package import PACKAGE as OPERATOR

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_the_files_in_deploy_are_made_of_this_source() -> None:
    there = {str(path.relative_to(DEPLOY)): path.read_text() for path in DEPLOY.rglob("*") if path.is_file()}
    assert there.keys() == all_files().keys(), "run `make install-files`"
    assert [name for name, text in all_files().items() if there[name] != text] == [], "run `make install-files`"


@pytest.mark.parametrize("package", [OPERATOR, FLUXQUEUE], ids=lambda package: package.name)
def test_the_install_file_and_the_kustomize_base_hold_all_objects(package: Package[Any]) -> None:
    wanted = package.objects(package.defaults)
    assert list(yaml.safe_load_all(package.install_file())) == wanted
    files = package.kustomize_base()
    listed = yaml.safe_load(files.pop("kustomization.yaml"))["resources"]
    assert listed == list(files)
    assert [one for name in listed for one in yaml.safe_load_all(files[name])] == wanted
