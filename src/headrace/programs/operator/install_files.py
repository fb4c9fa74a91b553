"""The install file, the kustomize base and the Helm chart of the operator as texts, from the objects of `install`.

Pure; `fluxqueue.install_files` writes all of `deploy/`.
"""

from __future__ import annotations

import json
from typing import Any

from headrace.k8s.packaging.files import kustomization, marked
from headrace.k8s.packaging.yaml_text import yaml_text
from headrace.minicluster.operator.crd import definition
from headrace.minicluster.operator.names import OPERATOR

from .helm_chart import helm_chart
from .install import Install, access, metrics_api_access, namespace_object, objects, user_roles, webhook, workload

_SOURCE = "src/headrace/programs/operator/install.py"


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
