"""The objects that install the operator: definition, service account and roles, Deployment, webhook. Pure.

The install file, the kustomize base and the Helm chart (`package`) are made from this one declaration. The roles allow
only what the operator does: no `pods/exec`, and Secrets are created, read and changed only by name.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from headrace.flux_jobs.operator.names import ID_LABEL
from headrace.flux_jobs.operator.updates import WRITTEN
from headrace.flux_jobs.read import runtimes
from headrace.flux_jobs.read.cluster import LABEL_KEY, LABEL_VALUE
from headrace.k8s.metrics_api import CUSTOM, EXTERNAL
from headrace.k8s.objects.kinds import (
    AGGREGATION_NAMESPACE,
    AGGREGATION_READER,
    APISERVICES,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    JOBSETS,
    LEASES,
    MINICLUSTERS,
    MUTATING,
    PODS,
    SECRETS,
    SERVICES,
    TRAINJOBS,
    VALIDATING,
    Kind,
    api_service_name,
)
from headrace.k8s.packaging.component import READ, Component, Part, rule, webhook_rule
from headrace.k8s.packaging.images import DEFAULT_OPERATOR, DEFAULT_VIEW, RESOURCES
from headrace.minicluster.api.pod_plan import BROKER_PORT, CHANNEL_PORT
from headrace.minicluster.operator.names import (
    CONFIGURATION,
    DEFAULT_NAMESPACE,
    HEALTH_PORT,
    JOBS_CONFIGURATION,
    JOBS_PATH,
    LEASE,
    MANAGED_BY,
    MANAGER,
    METRICS_PORT,
    METRICS_ROLE,
    OPERATOR,
    OTHER_LEASE,
    WEBHOOK,
    WEBHOOK_PATH,
    WEBHOOK_PORT,
)

Object = dict[str, Any]

# The mount of a certificate that another program provides.
CERTIFICATE_FOLDER = "/certificate"
# The authority of cert-manager's certificate: the name of its Issuer, Certificate and Secret, and its lifetime.
AUTHORITY = f"{WEBHOOK}-authority"
AUTHORITY_LIFETIME = "87600h"
# The names of the NetworkPolicies for MiniClusters, and for Jobs that are clusters.
POLICY = "headrace-miniclusters"
JOBS_POLICY = "headrace-jobs"
_TRAINER = f"{OPERATOR}-trainer"
_NAME_OF_NAMESPACE = "kubernetes.io/metadata.name"
_ALL = [*READ, "create", "patch", "delete"]


class Install(Struct, frozen=True, kw_only=True):
    """The options of an installation.

    `watched` are the namespaces of the MiniClusters, () for all namespaces. With `cert_manager`, cert-manager provides
    the webhook's certificate. `replicas` is the number of pods: the leader reconciles, and all serve the webhook. With
    `view_as_volume`, pods mount the view's image instead of copying it. Each of the namespaces `network_policies` gets
    a NetworkPolicy for its MiniClusters. `cluster_domain` is the DNS domain of the cluster, "" for the operator's
    default.

    An operator of `watched` namespaces may read the Lease of the Flux Operator in the namespace
    `flux_operator_namespace`, which must exist. "" grants nothing, because a Role in a missing namespace would make the
    install fail.

    `resources` are those of the operator's container (core/v1). With `metrics_api`, which requires the webhook, the
    operator serves autoscalers, and may register itself as the server of the metrics APIs. With `trainer`, Kubeflow
    Trainer gets training runtimes whose jobs are clusters, and the operator may read its objects. Texts and `resources`
    may be templates of a renderer.
    """

    namespace: str = DEFAULT_NAMESPACE
    image: str = DEFAULT_OPERATOR
    view_image: str = DEFAULT_VIEW
    view_as_volume: bool = False
    watched: tuple[str, ...] = ()
    replicas: int | str = 1
    resources: Object | str = field(default_factory=lambda: RESOURCES)
    webhook: bool = True
    cert_manager: bool = False
    network_policies: tuple[str, ...] = ()
    cluster_domain: str = ""
    flux_operator_namespace: str = ""
    trainer: bool = False
    metrics_api: bool = False


def component(install: Install) -> Component:
    return Component(OPERATOR, install.namespace)


def watched_rules() -> list[Object]:
    """The operator's rights in the namespaces of MiniClusters."""
    return [
        rule([MINICLUSTERS], [*READ, "patch", "delete"]),
        rule([MINICLUSTERS], ["patch"], parts=["/status"]),
        # Needed for owner references that block deletion (OwnerReferencesPermissionEnforcement).
        rule([MINICLUSTERS], ["update"], parts=["/finalizers"]),
        rule([JOBS], ["update"], parts=["/finalizers"]),
        rule([JOBS], _ALL),
        rule([PODS, SERVICES, CONFIG_MAPS], _ALL),
        # The keys of a cluster. Without `list` and `watch`, only a Secret with a known name can be read. A Job's Secret
        # contains its plan, which changes with the number of its pods; hence `patch`.
        rule([SECRETS], ["get", "create", "patch"]),
        # Only Events report exceeded quotas and failed mounts.
        rule([EVENTS], ["list", "create"]),
        rule([LEASES], ["list", "watch"], [OTHER_LEASE]),
    ]


def own_rules(install: Install) -> list[Object]:
    """The operator's rights in its own namespace: to its Lease and the webhook's certificate."""
    rules = [rule([LEASES], ["create"]), rule([LEASES], ["get", "update"], [LEASE])]
    if install.webhook and not install.cert_manager:
        rules += [rule([SECRETS], ["create"]), rule([SECRETS], ["get", "update"], [WEBHOOK])]
    return rules


def access(install: Install) -> list[Object]:
    """The service account, its roles, and their bindings."""
    operator = component(install)
    found = [operator.account()]
    for namespace in install.watched or ("",):
        found += operator.granted(OPERATOR, namespace, watched_rules())
    if install.watched and install.flux_operator_namespace:
        # To check whether the Flux Operator is active.
        rules = [rule([LEASES], READ, [OTHER_LEASE])]
        found += operator.granted(f"{OPERATOR}-other", install.flux_operator_namespace, rules)
    found += operator.granted(f"{OPERATOR}-own", install.namespace, own_rules(install))
    if install.webhook and not install.cert_manager:
        configurations = ((VALIDATING, CONFIGURATION), (MUTATING, JOBS_CONFIGURATION))
        rules = [rule([kind], [*READ, "patch"], [name]) for kind, name in configurations]
        found += operator.granted(f"{OPERATOR}-webhook", "", rules)
    if install.webhook and install.metrics_api:
        found += metrics_api_access(install)
    return found


def metrics_api_access(install: Install) -> list[Object]:
    """The rights to register the metrics APIs, and to read how the aggregation layer authenticates.

    The right to create cannot be limited by name. The APIServices are not among the objects of the install, because
    another adapter may have them. The ClusterRole owns the APIServices that the operator registers, so Kubernetes
    deletes them with it.
    """
    operator, names = component(install), [api_service_name(one) for one in (CUSTOM, EXTERNAL)]
    rules = [
        rule([APISERVICES], ["create"]),
        rule([APISERVICES], [*READ, "patch"], names),
        rule([CLUSTER_ROLES], ["get"], [METRICS_ROLE]),
    ]
    return [
        *operator.granted(METRICS_ROLE, "", rules),
        operator.binding(METRICS_ROLE, AGGREGATION_NAMESPACE, "Role", AGGREGATION_READER),
    ]


def user_roles(install: Install) -> list[Object]:
    """Rules for the cluster's roles `edit`, `admin` and `view`, by which users may use MiniClusters."""
    write = [*READ, "create", "update", "patch", "delete", "deletecollection"]
    edit = rule([MINICLUSTERS], write, parts=["", "/scale"])
    view = rule([MINICLUSTERS], READ, parts=["", "/status", "/scale"])
    operator = component(install)
    return [
        operator.users_role("headrace-edit", ["admin", "edit"], [edit]),
        operator.users_role("headrace-view", ["view"], [view]),
    ]


# --- the Deployment


def arguments(install: Install) -> list[str]:
    """The command of the operator's container."""
    words = ["headrace", "operator", "run"]
    words += [f"--namespace={','.join(install.watched)}", f"--view-image={install.view_image}"]
    words += ["--view-as-volume"] if install.view_as_volume else []
    words += [f"--cluster-domain={install.cluster_domain}"] if install.cluster_domain else []
    elsewhere = install.flux_operator_namespace
    words += [f"--flux-operator-namespace={elsewhere}"] if elsewhere else []
    words += [f"--metrics-bind=:{METRICS_PORT}", f"--health-bind=:{HEALTH_PORT}"]
    if not install.webhook:
        return [*words, "--no-webhook"]
    words.append(f"--webhook-bind=:{WEBHOOK_PORT}")
    words += ["--metrics-api"] if install.metrics_api else []
    return [*words, f"--webhook-certificate={CERTIFICATE_FOLDER}"] if install.cert_manager else words


def workload(install: Install) -> list[Object]:
    """The Deployment, and the Service of its metrics."""
    operator, ports = component(install), {"metrics": METRICS_PORT, "health": HEALTH_PORT}
    parts = [Part(arguments(install))]
    if install.webhook:
        ports["webhook"] = WEBHOOK_PORT
    if install.webhook and install.cert_manager:
        mount = {"name": "certificate", "mountPath": CERTIFICATE_FOLDER, "readOnly": True}
        parts.append(Part((), [mount], [{"name": "certificate", "secret": {"secretName": WEBHOOK}}]))
    deployment = operator.deployment("operator", install.image, install.resources, ports, parts, install.replicas)
    return [deployment, operator.service("metrics", METRICS_PORT)]


# --- the webhook


def webhook(install: Install) -> list[Object]:
    """The Service and the configurations of the webhook, and its certificate if cert-manager provides it."""
    if not install.webhook:
        return []
    operator = component(install)
    return [
        operator.webhook_service(WEBHOOK),
        *(_certificate(install) if install.cert_manager else ()),
        configuration(operator.webhook_client(WEBHOOK, WEBHOOK_PATH), install),
        jobs_configuration(operator.webhook_client(WEBHOOK, JOBS_PATH), install),
    ]


def configuration(client: Object, install: Install) -> Object:
    """The webhook configuration of MiniClusters; `client` is its `clientConfig`.

    The webhook fails closed, but only for MiniClusters. Updates that do not change `spec`, and objects that are being
    deleted, are not reviewed, so that MiniClusters can be removed while no operator runs.
    """
    reviewed = webhook_rule(MINICLUSTERS, ["CREATE", "UPDATE"], ["", "/scale"])
    condition = {"name": "spec-changes", "expression": "oldObject == null || object.spec != oldObject.spec"}
    return _configuration(VALIDATING, CONFIGURATION, MINICLUSTERS, client, install, reviewed, condition)


def jobs_configuration(client: Object, install: Install) -> Object:
    """The webhook configuration of Jobs; `client` is its `clientConfig`.

    It fails closed, but only for Jobs with the label that makes them clusters; other Jobs are never reviewed. Updates
    are reviewed if they change the label, or fields that admission writes.
    """
    differ = " || ".join(f"object.{path} != oldObject.{path}" for path in WRITTEN)
    condition = {"name": "what-admission-writes-changes", "expression": f"oldObject == null || {differ}"}
    more = {"objectSelector": {"matchLabels": {LABEL_KEY: LABEL_VALUE}}}
    reviewed = webhook_rule(JOBS, ["CREATE", "UPDATE"])
    return _configuration(MUTATING, JOBS_CONFIGURATION, JOBS, client, install, reviewed, condition, more)


def _configuration(
    kind: Kind, name: str, about: Kind, client: Object, install: Install, reviewed: Object, condition: Object,
    more: Object | None = None,
) -> Object:  # fmt: skip
    """A webhook configuration with one webhook, which does not review objects that are being deleted."""
    alive = {"name": "not-being-deleted", "expression": "!has(object.metadata.deletionTimestamp)"}
    hook: Object = {
        "name": f"{about.plural}.headrace.{MINICLUSTERS.group}",
        "clientConfig": client,
        "rules": [reviewed],
        **(more or {}),
        "matchConditions": [alive, condition],
        "failurePolicy": "Fail",
    }
    if install.watched:
        within = {"key": _NAME_OF_NAMESPACE, "operator": "In", "values": list(install.watched)}
        hook["namespaceSelector"] = {"matchExpressions": [within]}
    injected: Object = {"annotations": {"cert-manager.io/inject-ca-from": f"{install.namespace}/{WEBHOOK}"}}
    return component(install).webhook_configuration(kind, name, hook, **(injected if install.cert_manager else {}))


def _certificate(install: Install) -> list[Object]:
    """The webhook's certificate (cert-manager.io/v1) and its authority.

    The certificate is in the Secret that the Deployment mounts. A self-signed serving certificate would be a new
    authority after each renewal, and the API server would reject the webhook until both sides had it. The authority
    keeps its key when it is renewed, so the certificates that it has signed stay trusted. cert-manager writes the
    authority into the webhook configuration (`cert-manager.io/inject-ca-from`).
    """
    labelled = {"secretTemplate": {"labels": component(install).labels}}
    authority = {
        "secretName": AUTHORITY,
        **labelled,
        "isCA": True,
        "commonName": AUTHORITY,
        "duration": AUTHORITY_LIFETIME,
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Never"},
        "issuerRef": {"name": AUTHORITY, "kind": "Issuer"},
    }
    serving = {
        "secretName": WEBHOOK,
        **labelled,
        "dnsNames": [f"{WEBHOOK}.{install.namespace}.svc"],
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        "usages": ["digital signature", "server auth"],
        "issuerRef": {"name": WEBHOOK, "kind": "Issuer"},
    }
    return [
        _cert_manager(install, "Issuer", AUTHORITY, {"selfSigned": {}}),
        _cert_manager(install, "Certificate", AUTHORITY, authority),
        _cert_manager(install, "Issuer", WEBHOOK, {"ca": {"secretName": AUTHORITY}}),
        _cert_manager(install, "Certificate", WEBHOOK, serving),
    ]


def _cert_manager(install: Install, kind: str, name: str, spec: Object) -> Object:
    metadata = component(install).metadata(name, install.namespace)
    return {"apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


# --- network access to the pods of MiniClusters


def network_policies(install: Install) -> list[Object]:
    """Two NetworkPolicies (networking.k8s.io/v1) for each of `network_policies`.

    One is for MiniClusters, one for clusters made of Jobs. Only pods of the same kind in the namespace reach the
    brokers, and only the operator reaches the lead's channel. All other ports, which users' programs use, stay open.
    """
    return [
        _network_policy(install, name, namespace, {"podSelector": selector})
        for namespace in install.network_policies
        for name, selector in (
            (POLICY, {"matchLabels": {MANAGED_BY: MANAGER}}),
            (JOBS_POLICY, {"matchExpressions": [{"key": ID_LABEL, "operator": "Exists"}]}),
        )
    ]


def _network_policy(install: Install, name: str, namespace: str, ours: Object) -> Object:
    place = {"matchLabels": {_NAME_OF_NAMESPACE: install.namespace}}
    operator = {"namespaceSelector": place, "podSelector": {"matchLabels": component(install).labels}}
    first, last = sorted((BROKER_PORT, CHANNEL_PORT))
    others: list[Object] = [
        {"protocol": "TCP", "port": 1, "endPort": first - 1},
        {"protocol": "TCP", "port": last + 1, "endPort": 65535},
        {"protocol": "UDP"},
        {"protocol": "SCTP"},
    ]
    ingress = [
        {"from": [ours], "ports": [{"protocol": "TCP", "port": BROKER_PORT}]},
        {"from": [operator], "ports": [{"protocol": "TCP", "port": CHANNEL_PORT}]},
        {"ports": others},
    ]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": component(install).metadata(name, namespace),
        "spec": {**ours, "policyTypes": ["Ingress"], "ingress": ingress},
    }


# --- Kubeflow Trainer


def trainer(install: Install) -> list[Object]:
    """The training runtimes, and the right to read the owners of a Job, which know its number of processes.

    The definitions of both kinds belong to Kubeflow Trainer, which must be installed before.
    """
    if not install.trainer:
        return []
    operator, rules = component(install), [rule([kind], ["get"]) for kind in (JOBSETS, TRAINJOBS)]
    granted = [one for namespace in install.watched or ("",) for one in operator.granted(_TRAINER, namespace, rules)]
    return [*granted, *(_labelled(one, operator.labels) for one in runtimes.BUILT_IN.values())]


def _labelled(one: Object, labels: Object) -> Object:
    return {**one, "metadata": {**one["metadata"], "labels": {**labels, **one["metadata"]["labels"]}}}
