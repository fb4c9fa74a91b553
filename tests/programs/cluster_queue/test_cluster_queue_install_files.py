"""The files of the cluster queue in `deploy/` are made of its install."""

from __future__ import annotations

from pathlib import Path

import yaml

from headrace.programs.cluster_queue.install import Install, objects
from headrace.programs.cluster_queue.install_files import all_files, install_file, kustomize_base

DEPLOY = Path(__file__).parents[3] / "deploy"


def test_the_files_in_deploy_are_made_of_this_source() -> None:
    """Those of the operator, too."""
    there = {str(path.relative_to(DEPLOY)): path.read_text() for path in DEPLOY.rglob("*") if path.is_file()}
    assert there.keys() == all_files().keys(), "run `make install-files`"
    assert [name for name, text in all_files().items() if there[name] != text] == [], "run `make install-files`"


def test_the_install_file_and_the_kustomize_base_hold_all_objects() -> None:
    assert list(yaml.safe_load_all(install_file(Install()))) == objects(Install())
    files = kustomize_base()
    listed = yaml.safe_load(files.pop("kustomization.yaml"))["resources"]
    assert listed == list(files)
    assert [one for name in listed for one in yaml.safe_load_all(files[name])] == objects(Install())
