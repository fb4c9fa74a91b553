"""The install file, the kustomize base and the Helm chart as texts, from the objects of `install`.

`python -m headrace.kube.install_files FOLDER` writes them (`make install-files`); all else is pure.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from .crd import definition
from .helm_chart import helm_chart
from .install import Install, access, namespace_object, objects, user_roles, webhook, workload
from .operator_names import OPERATOR
from .yaml_text import yaml_text

_MADE = "# Made by `make install-files` from src/headrace/kube/install.py.\n"


def install_file(install: Install) -> str:
    """All objects in one text, for `kubectl apply --server-side -f`."""
    return _MADE + yaml_text(objects(install))


def kustomize_base() -> dict[str, str]:
    """The files of the kustomize base: text by path."""
    install = Install()
    parts = {
        "crd.yaml": [definition()],
        "namespace.yaml": [namespace_object(install)],
        "rbac.yaml": [*access(install), *user_roles()],
        "operator.yaml": workload(install),
        "webhook.yaml": webhook(install),
    }
    head: dict[str, Any] = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    files = {name: _MADE + yaml_text(found) for name, found in parts.items()}
    return {"kustomization.yaml": _MADE + yaml_text([{**head, "resources": list(parts)}]), **files}


def all_files() -> dict[str, str]:
    """All files of `deploy/`: text by path."""
    return {
        "headrace-operator.yaml": install_file(Install()),
        **{f"kustomize/{path}": text for path, text in kustomize_base().items()},
        **{f"helm/{OPERATOR}/{path}": _marked(path, text) for path, text in helm_chart().items()},
    }


def _marked(path: str, text: str) -> str:
    # JSON has no comments.
    return text if path.endswith(".json") else _MADE + text


def _write(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in all_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
