"""The install files, the kustomize base and the Helm chart of the operator. Pure."""

from __future__ import annotations

import json
from typing import Any

from headrace.k8s.packaging.helm_templates import (
    NAME,
    NAMES,
    OPTIONAL_NAME,
    SWITCH,
    Placeholders,
    Switches,
    Value,
)
from headrace.k8s.packaging.images import DEFAULT_OPERATOR, DEFAULT_VIEW, RESOURCES
from headrace.k8s.packaging.package import File, Package
from headrace.minicluster.operator.crd import definition
from headrace.minicluster.operator.names import OPERATOR

from .install import (
    Install,
    access,
    component,
    metrics_api_access,
    network_policies,
    trainer,
    user_roles,
    webhook,
    workload,
)

Object = dict[str, Any]

VALUES = (
    Value("image", DEFAULT_OPERATOR, NAME, "Image of the operator."),
    Value("viewImage", DEFAULT_VIEW, NAME, "Image with the files that are added to pods."),
    Value(
        "viewAsVolume",
        False,
        SWITCH,
        "Mount viewImage as a volume (feature ImageVolume of Kubernetes) instead of copying its files in each pod.",
    ),
    Value("watchNamespaces", [], NAMES, "Namespaces whose MiniClusters are managed; an empty list means all."),
    Value("clusterDomain", "", OPTIONAL_NAME, "DNS domain of the cluster; empty means cluster.local."),
    Value(
        "fluxOperatorNamespace",
        "",
        OPTIONAL_NAME,
        "Namespace of the Flux Operator. With watchNamespaces: a Role there lets the operator see its Lease.",
    ),
    Value(
        "replicas",
        1,
        {"type": "integer", "minimum": 1},
        "Number of operator pods. One is the leader and manages MiniClusters; all serve the webhook.",
    ),
    Value("resources", RESOURCES, {"type": "object"}, "Requests and limits of the operator's container."),
    Value("crd", True, SWITCH, "Install the definition of MiniClusters. It is kept when the chart is removed."),
    Value(
        "networkPolicyNamespaces",
        [],
        NAMES,
        "Namespaces that get a NetworkPolicy, which protects the ports of brokers and of the leads' channel.",
    ),
    Value("webhook.enabled", True, SWITCH, "Reject invalid MiniClusters, and turn labelled Jobs into clusters."),
    Value("webhook.certManager", False, SWITCH, "Take the certificate from cert-manager."),
    Value(
        "metricsApi.enabled",
        False,
        SWITCH,
        "Serve metrics of MiniClusters to autoscalers (custom and external metrics); needs the webhook.",
    ),
    Value(
        "trainer.enabled",
        False,
        SWITCH,
        "Install the runtimes headrace-distributed and headrace-torch for Kubeflow Trainer, which must be installed.",
    ),
)

# Placeholders in objects, as they appear in YAML, and the template texts that replace them.
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
# Arguments of the operator that the chart passes only if a value is set: the argument, and the value.
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
    trainer=True,
)
_SWITCHES: Switches = (
    ("$.Values.watchNamespaces", {}, {"watched": ()}),
    ("$.Values.webhook.enabled", {"webhook": True}, {"webhook": False}),
    ("$.Values.webhook.certManager", {"cert_manager": True}, {"cert_manager": False}),
)
_METRICS_SWITCH: Switches = (("$.Values.metricsApi.enabled", {"metrics_api": True}, {"metrics_api": False}),)
_ROLES_SWITCHES: Switches = (
    *_SWITCHES,
    ("$.Values.fluxOperatorNamespace", {}, {"flux_operator_namespace": ""}),
    *_METRICS_SWITCH,
)

PACKAGE = Package(
    name=OPERATOR,
    description="The operator of Headrace: MiniClusters on Kubernetes",
    source="src/headrace/programs/operator/install.py",
    defaults=Install(),
    files=(
        File("crd", lambda install: [definition()], value="$.Values.crd"),
        File("namespace", lambda install: [component(install).namespace_object()], in_chart=False),
        File("rbac", lambda install: [*access(install), *user_roles(install)], _ROLES_SWITCHES),
        File("operator", workload, (*_SWITCHES[1:], *_METRICS_SWITCH)),
        File("webhook", webhook, _SWITCHES),
        File("network-policy", network_policies),
        File("trainer", trainer, _SWITCHES[:1], value="$.Values.trainer.enabled"),
    ),
    values=VALUES,
    templated=_TEMPLATED,
    placeholders=Placeholders(_WORDS, _OPTIONAL, _LISTS),
)


def kustomize_metrics_api() -> dict[str, str]:
    """A kustomize component that lets the operator of the base serve autoscalers: text by path."""
    option = {"op": "add", "path": "/spec/template/spec/containers/0/command/-", "value": "--metrics-api"}
    head: Object = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "resources": ["rbac.yaml"],
        "patches": [{"target": {"kind": "Deployment", "name": OPERATOR}, "patch": json.dumps([option])}],
    }
    files = {"kustomization.yaml": [head], "rbac.yaml": metrics_api_access(Install(metrics_api=True))}
    return PACKAGE.kustomize_files(files)
