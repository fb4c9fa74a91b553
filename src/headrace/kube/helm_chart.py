"""The operator's Helm chart as texts, from the objects of `install`. Pure.

Where a value is chosen at install time, the objects have a placeholder of this module, which is replaced after the
objects have become YAML; so objects and templates have one source. Values, their schema (JSON Schema, draft 7) and the
comments of `values.yaml` are one table. Source: the chart format of Helm 3 (`apiVersion` v2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import msgspec

from .. import __version__
from .builders.images import DEFAULT_VIEW
from .crd import definition
from .install import DEFAULT_IMAGE, RESOURCES, Install, access, network_policies, trainer, user_roles, webhook, workload
from .operator_names import OPERATOR
from .yaml_text import yaml_text

Object = dict[str, Any]
_NAMES: Object = {"type": "array", "uniqueItems": True, "items": {"type": "string", "minLength": 1}}
_IMAGE: Object = {"type": "string", "minLength": 1}
_SWITCH: Object = {"type": "boolean"}


class Value(NamedTuple):
    """A value of the chart: its name ("webhook.enabled"), default, JSON schema, and description."""

    name: str
    default: Any
    schema: Object
    comment: str


VALUES = (
    Value("image", DEFAULT_IMAGE, _IMAGE, "Image of the operator."),
    Value("viewImage", DEFAULT_VIEW, _IMAGE, "Image that brings Headrace into pods."),
    Value(
        "viewAsVolume",
        False,
        _SWITCH,
        "Mount that image as a volume (feature ImageVolume of Kubernetes) instead of copying it in each pod.",
    ),
    Value("watchNamespaces", [], _NAMES, "Namespaces whose MiniClusters are looked after; none for all."),
    Value("clusterDomain", "", {"type": "string"}, "DNS domain of the cluster; cluster.local where it is empty."),
    Value(
        "fluxOperatorNamespace",
        "",
        {"type": "string"},
        "Namespace of the Flux Operator in Go, for operators of watchNamespaces: a Role there lets them see its Lease.",
    ),
    Value(
        "replicas",
        1,
        {"type": "integer", "minimum": 1},
        "Operators; one of them acts, all answer the API server.",
    ),
    Value("resources", RESOURCES, {"type": "object"}, "Requests and limits of the operator's container."),
    Value("crd", True, _SWITCH, "Install the definition of MiniClusters. It stays when the chart is removed."),
    Value(
        "networkPolicyNamespaces",
        [],
        _NAMES,
        "Namespaces that get a NetworkPolicy: who reaches the brokers of their MiniClusters, and the leads' channel.",
    ),
    Value("webhook.enabled", True, _SWITCH, "Refuse wrong MiniClusters, and make labelled Jobs clusters."),
    Value("webhook.certManager", False, _SWITCH, "Take the certificate from cert-manager."),
    Value(
        "trainer.enabled",
        False,
        _SWITCH,
        "Give Kubeflow Trainer, which must be there, the runtimes headrace-distributed and headrace-torch.",
    ),
)

# Placeholders in objects, as they appear in YAML, and the template text that replaces them.
_WORDS = {
    "<namespace>": "{{ $.Release.Namespace }}",
    "<image>": "{{ $.Values.image }}",
    "<view>": "{{ $.Values.viewImage }}",
    "<domain>": "{{ $.Values.clusterDomain }}",
    "<other>": "{{ $.Values.fluxOperatorNamespace }}",
    "--namespace=<watched>": '--namespace={{ join "," $.Values.watchNamespaces }}',
    '"<replicas>"': "{{ $.Values.replicas }}",
    '"<resources>"': "{{ toJson $.Values.resources }}",
}
# Arguments of the operator that are there only with a value, before and after which come the actions for it.
_OPTIONAL = {
    "--view-as-volume": "$.Values.viewAsVolume",
    f"--cluster-domain={_WORDS['<domain>']}": "$.Values.clusterDomain",
    f"--flux-operator-namespace={_WORDS['<other>']}": "$.Values.fluxOperatorNamespace",
}
_LISTS = {"<watched>": "$.Values.watchNamespaces", "<guarded>": "$.Values.networkPolicyNamespaces"}
_TEMPLATED = Install(
    namespace="<namespace>",
    image="<image>",
    view_image="<view>",
    view_as_volume=True,
    watched=("<watched>",),
    replicas="<replicas>",
    resources="<resources>",
    network_policies=("<guarded>",),
    cluster_domain="<domain>",
    flux_operator_namespace="<other>",
)
# Conditions of the chart, with the choices for true and for false.
_Switches = tuple[tuple[str, dict[str, Any], dict[str, Any]], ...]
_SWITCHES: _Switches = (
    ("$.Values.watchNamespaces", {}, {"watched": ()}),
    ("$.Values.webhook.enabled", {"webhook": True}, {"webhook": False}),
    ("$.Values.webhook.certManager", {"cert_manager": True}, {"cert_manager": False}),
)
_ROLES_SWITCHES: _Switches = (*_SWITCHES, ("$.Values.fluxOperatorNamespace", {}, {"flux_operator_namespace": ""}))


def helm_chart() -> dict[str, str]:
    """The files of the chart: text by path."""
    chart = {
        **{"apiVersion": "v2", "name": OPERATOR, "version": __version__, "appVersion": __version__},
        **{"type": "application", "description": "The operator of Headrace: MiniClusters on Kubernetes"},
        "kubeVersion": ">=1.30.0-0",
    }
    crd = definition()
    kept = {**crd, "metadata": {**crd["metadata"], "annotations": {"helm.sh/resource-policy": "keep"}}}
    return {
        "Chart.yaml": yaml_text([chart]),
        "values.yaml": _values(),
        "values.schema.json": json.dumps(values_schema(), indent=2) + "\n",
        "templates/crd.yaml": _either("$.Values.crd", yaml_text([kept]), ""),
        "templates/rbac.yaml": _template(lambda install: [*access(install), *user_roles()], _ROLES_SWITCHES),
        "templates/operator.yaml": _template(workload, _SWITCHES[1:]),
        "templates/webhook.yaml": _template(lambda install: webhook(install) if install.webhook else []),
        "templates/network-policy.yaml": _template(network_policies, ()),
        "templates/trainer.yaml": _either("$.Values.trainer.enabled", _template(trainer, _SWITCHES[:1]), ""),
    }


def values_schema() -> Object:
    """The JSON schema of the values; `global` is allowed for charts that include this one."""
    schema = _closed({"global": {"type": "object"}})
    for one in VALUES:
        *parents, name = one.name.split(".")
        inside = schema
        for parent in parents:
            inside = inside["properties"].setdefault(parent, _closed({}))
        inside["properties"][name] = {**one.schema, "description": one.comment, "default": one.default}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": OPERATOR, **schema}


def _closed(properties: Object) -> Object:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _values() -> str:
    lines: list[str] = []
    group = ""
    for one in VALUES:
        parent, _, name = one.name.rpartition(".")
        indent = "  " if parent else ""
        lines += [f"{parent}:"] if parent != group else []
        lines += [f"{indent}# {one.comment}", f"{indent}{name}: {json.dumps(one.default)}"]
        group = parent
    return "".join(f"{line}\n" for line in lines)


def _template(build: Callable[[Install], list[Object]], switches: _Switches = _SWITCHES) -> str:
    """The objects of `build` as templates, in the variants that the chart's values select through `switches`."""
    conditions = [condition for condition, _, _ in switches]
    texts: dict[tuple[bool, ...], dict[str, str]] = {}
    for chosen in product((True, False), repeat=len(switches)):
        install = _TEMPLATED
        for (_, held, not_held), holds in zip(switches, chosen):
            install = msgspec.structs.replace(install, **(held if holds else not_held))
        texts[chosen] = {f"{one['kind']}/{one['metadata']['name']}": _worded(one) for one in build(install)}
    names = dict.fromkeys(name for found in texts.values() for name in found)
    return "".join(_chosen({key: found.get(name, "") for key, found in texts.items()}, conditions) for name in names)


def _worded(one: Object) -> str:
    """An object as YAML with placeholders replaced: once, or once for each namespace of a list."""
    text = yaml_text([one])
    for word, value in _WORDS.items():
        text = text.replace(word, value)
    for argument, value in _OPTIONAL.items():
        text = _around(f'- "{argument}"', f"if {value}", text)
    for word, values in _LISTS.items():
        text = _around(f'- "{word}"', f"range {values}", text)
        repeated = one["metadata"].get("namespace") == word
        text = text.replace(word, "{{ . }}")
        text = f"{{{{- range {values} }}}}\n{text}{{{{- end }}}}\n" if repeated else text
    return text


def _around(line: str, action: str, text: str) -> str:
    """The text with a template action around each such line."""
    found = re.compile(rf"^ *{re.escape(line)}\n", re.MULTILINE)
    return found.sub(lambda one: f"{{{{- {action} }}}}\n{one[0]}{{{{- end }}}}\n", text)


def _chosen(variants: dict[tuple[bool, ...], str], conditions: list[str]) -> str:
    """A text with template conditions that yields, for each combination of `conditions`, the one of `variants`."""
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
