"""The install file, the kustomize base and the Helm chart of the operator as texts, from the objects of `install`.

Pure; `fluxqueue.install_files` writes all of `deploy/`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .crd import definition
from .helm_chart import helm_chart
from .install import Install, access, metrics_api_access, namespace_object, objects, user_roles, webhook, workload
from .operator_names import OPERATOR
from .yaml_text import yaml_text

_SOURCE = "src/headrace/kube/install.py"


def install_file(install: Install) -> str:
    """All objects in one text, for `kubectl apply --server-side -f`."""
    return marked("", _SOURCE, yaml_text(objects(install)))


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
    return kustomization(parts, _SOURCE)


def kustomize_metrics_api() -> dict[str, str]:
    """The files of a kustomize component that has the operator of the base serve autoscalers: text by path."""
    option = {"op": "add", "path": "/spec/template/spec/containers/0/command/-", "value": "--metrics-api"}
    head: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "resources": ["rbac.yaml"],
        "patches": [{"target": {"kind": "Deployment", "name": OPERATOR}, "patch": json.dumps([option])}],
    }
    files = {"kustomization.yaml": [head], "rbac.yaml": metrics_api_access(Install(metrics_api=True))}
    return {name: marked(name, _SOURCE, yaml_text(found)) for name, found in files.items()}


def all_files() -> dict[str, str]:
    """All files of `deploy/`: text by path."""
    return {
        "headrace-operator.yaml": install_file(Install()),
        **{f"kustomize/{path}": text for path, text in kustomize_base().items()},
        **{f"kustomize/metrics-api/{path}": text for path, text in kustomize_metrics_api().items()},
        **{f"helm/{OPERATOR}/{path}": marked(path, _SOURCE, text) for path, text in helm_chart().items()},
    }


def kustomization(parts: Mapping[str, list[dict[str, Any]]], source: str) -> dict[str, str]:
    """The files of a kustomize base, of which `parts` has the objects by file: text by path."""
    head: dict[str, Any] = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    files = {"kustomization.yaml": [{**head, "resources": list(parts)}], **parts}
    return {name: marked(name, source, yaml_text(found)) for name, found in files.items()}


def marked(path: str, source: str, text: str) -> str:
    """A text that says how it is made. JSON has no comments."""
    return text if path.endswith(".json") else f"# Made by `make install-files` from {source}.\n{text}"
