"""The install file, the kustomize base and the Helm chart as texts, from the objects of `install`.

`python -m headrace.kube.install_files FOLDER` writes them (`make install-files`); all else is pure.

In the chart's templates stand words of this module's where a value is chosen at install time; they are put into the
objects as texts and replaced after the objects have become YAML, so that there is one source of them all.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from .. import __version__
from .builders.images import DEFAULT_VIEW
from .crd import definition
from .install import DEFAULT_IMAGE, Install, access, namespace_object, objects, user_roles, webhook, workload
from .operator_names import OPERATOR
from .yaml_text import yaml_text

_MADE = "# Made by `make install-files` from src/headrace/kube/install.py.\n"
# Texts in objects, which YAML puts in quotes, and what takes their places in a template.
_VALUES = {
    "<namespace>": "{{ .Release.Namespace }}",
    "<image>": "{{ .Values.image }}",
    "<view>": "{{ .Values.viewImage }}",
    "<watched>": "{{ .Values.watchNamespace }}",
    '"<replicas>"': "{{ .Values.replicas }}",
}
_TEMPLATED = Install(
    namespace="<namespace>", image="<image>", view_image="<view>", watched="<watched>", replicas="<replicas>"
)
# Conditions of the chart, and what is chosen where they hold and where not.
_Switches = tuple[tuple[str, dict[str, Any], dict[str, Any]], ...]
_SWITCHES: _Switches = (
    (".Values.watchNamespace", {"watched": "<watched>"}, {"watched": ""}),
    (".Values.webhook.enabled", {"webhook": True}, {"webhook": False}),
    (".Values.webhook.certManager", {"cert_manager": True}, {"cert_manager": False}),
)


def install_file(install: Install) -> str:
    """All objects, for `kubectl apply --server-side -f`."""
    return _MADE + yaml_text(objects(install))


def kustomize_base() -> dict[str, str]:
    """Path and text of the files of the base."""
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


def helm_chart() -> dict[str, str]:
    """Path and text of the files of the chart."""
    chart = {
        **{"apiVersion": "v2", "name": OPERATOR, "version": __version__, "appVersion": __version__},
        **{"type": "application", "description": "The operator of Headrace: MiniClusters on Kubernetes"},
        "kubeVersion": ">=1.30.0-0",
    }
    crd = definition()
    kept = {**crd, "metadata": {**crd["metadata"], "annotations": {"helm.sh/resource-policy": "keep"}}}
    templates = {
        "crd.yaml": _either(".Values.crd", yaml_text([kept]), ""),
        "rbac.yaml": _template(lambda install: [*access(install), *user_roles()]),
        "operator.yaml": _template(workload, _SWITCHES[1:]),
        "webhook.yaml": _template(lambda install: webhook(install) if install.webhook else []),
    }
    files = {"Chart.yaml": _MADE + yaml_text([chart]), "values.yaml": _MADE + _values()}
    return {**files, **{f"templates/{name}": _MADE + text for name, text in templates.items()}}


def _values() -> str:
    return f"""# Image of the operator.
image: "{DEFAULT_IMAGE}"
# Image that brings Headrace into pods.
viewImage: "{DEFAULT_VIEW}"
# The one namespace whose MiniClusters are looked after; empty for all.
watchNamespace: ""
# Operators; one of them acts, all answer the API server.
replicas: 1
# Install the definition of MiniClusters. It stays when the chart is removed.
crd: true
webhook:
  # Refuse wrong MiniClusters when they are created or changed.
  enabled: true
  # Take the certificate from cert-manager.
  certManager: false
"""


def _template(build: Callable[[Install], list[dict[str, Any]]], switches: _Switches = _SWITCHES) -> str:
    """The objects of `build`, each in the variants that the chart's values choose from by `switches`."""
    conditions = [condition for condition, _, _ in switches]
    texts: dict[tuple[bool, ...], dict[str, str]] = {}
    for chosen in product((True, False), repeat=len(switches)):
        install = _TEMPLATED
        for (_, held, not_held), holds in zip(switches, chosen):
            install = msgspec.structs.replace(install, **(held if holds else not_held))
        texts[chosen] = {f"{one['kind']}/{one['metadata']['name']}": yaml_text([one]) for one in build(install)}
    names = dict.fromkeys(name for found in texts.values() for name in found)
    text = "".join(_chosen({key: found.get(name, "") for key, found in texts.items()}, conditions) for name in names)
    for word, value in _VALUES.items():
        text = text.replace(word, value)
    return text


def _chosen(variants: dict[tuple[bool, ...], str], conditions: list[str]) -> str:
    """A text with conditions that gives for each choice (which of `conditions` hold) the one of `variants`."""
    if not conditions:
        return variants[()]
    held, not_held = (
        _chosen({key[1:]: text for key, text in variants.items() if key[0] is holds}, conditions[1:])
        for holds in (True, False)
    )
    return _either(conditions[0], held, not_held)


def _either(condition: str, held: str, not_held: str) -> str:
    if held == not_held:
        return held
    if not held:
        return _either(f"not {condition}", not_held, "")
    otherwise = "{{- else }}\n" + not_held if not_held else ""
    return f"{{{{- if {condition} }}}}\n{held}{otherwise}{{{{- end }}}}\n"


def all_files() -> dict[str, str]:
    """Path and text of all files of `deploy/`."""
    return {
        "headrace-operator.yaml": install_file(Install()),
        **{f"kustomize/{path}": text for path, text in kustomize_base().items()},
        **{f"helm/{OPERATOR}/{path}": text for path, text in helm_chart().items()},
    }


def _write(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in all_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
