"""The objects that install the operator: definition, service account and roles, Deployment, webhook. Pure.

The install file, the kustomize base and the Helm chart (`install_files`) are made from this one declaration. The roles
allow only what the operator does: no `pods/exec`, and Secrets are created, read and changed only by name. Sources: API
reference of Kubernetes 1.34 (rbac, apps, admissionregistration v1), its Pod Security Standards ("restricted").
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from headrace.flux_jobs.operator.names import ID_LABEL
from headrace.flux_jobs.operator.updates import WRITTEN
from headrace.flux_jobs.read import jobset, runtimes, trainjob
from headrace.flux_jobs.read.cluster import LABEL_KEY, LABEL_VALUE
from headrace.k8s.metrics_api.documents import CUSTOM, EXTERNAL
from headrace.k8s.objects.kinds import AGGREGATION_NAMESPACE, AGGREGATION_READER, PROGRAM_LABEL, api_service_name
from headrace.k8s.packaging.images import DEFAULT_OPERATOR, DEFAULT_VIEW, RESOURCES
from headrace.minicluster.api.pod_plan import BROKER_PORT, CHANNEL_PORT
from headrace.minicluster.operator.crd import GROUP, PLURAL, VERSION, definition
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
# The NetworkPolicies of a namespace with MiniClusters, and with Jobs that are clusters.
POLICY = "headrace-miniclusters"
JOBS_POLICY = "headrace-jobs"
_TRAINER = f"{OPERATOR}-trainer"
_RBAC = "rbac.authorization.k8s.io"
_NAME_OF_NAMESPACE = "kubernetes.io/metadata.name"
_LABELS = {PROGRAM_LABEL: OPERATOR}
_ALL = ["get", "list", "watch", "create", "patch", "delete"]


class Install(Struct, frozen=True, kw_only=True):
    """The choices of an installation. `watched` are the namespaces of the MiniClusters, () for all namespaces.

    With `cert_manager`, cert-manager provides the webhook's certificate. `replicas` is the number of operators; one of
    them reconciles, all of them serve the webhook. With `view_as_volume`, pods mount the view's image instead of
    copying it. Each of the namespaces `network_policies` gets a NetworkPolicy for its MiniClusters. `cluster_domain` is
    the DNS domain of the cluster, "" for the operator's default. An operator of `watched` namespaces may read the Lease
    of the Flux Operator in Go in `flux_operator_namespace`, which must exist then; "" grants nothing, since a Role in a
    namespace that does not exist fails the install. `resources` are those of the operator's container (core/v1). With
    `metrics_api`, which takes the webhook, the operator serves autoscalers and may register as who does. With
    `trainer`, Kubeflow Trainer gets training runtimes whose jobs are clusters, and the operator may read its objects.
    Texts may be templates of a renderer, and so may `resources`.
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


def objects(install: Install) -> list[Object]:
    """All objects in the order in which they are applied."""
    return [
        definition(),
        namespace_object(install),
        *access(install),
        *user_roles(),
        *workload(install),
        *(webhook(install) if install.webhook else []),
        *network_policies(install),
        *(trainer(install) if install.trainer else []),
    ]


def namespace_object(install: Install) -> Object:
    labels = {**_LABELS, "pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": install.namespace, "labels": labels}}


def _metadata(name: str, namespace: str = "", **more: Any) -> Object:
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": dict(_LABELS), **more}


def _rule(groups: list[str], resources: list[str], verbs: list[str], names: list[str] | None = None) -> Object:
    rule = {"apiGroups": groups, "resources": resources, "verbs": verbs}
    return {**rule, "resourceNames": names} if names else rule


def watched_rules() -> list[Object]:
    """The operator's rights in the namespaces of MiniClusters."""
    return [
        _rule([GROUP], [PLURAL], ["get", "list", "watch", "patch", "delete"]),
        _rule([GROUP], [f"{PLURAL}/status"], ["patch"]),
        # Needed for owner references that block deletion (OwnerReferencesPermissionEnforcement).
        _rule([GROUP], [f"{PLURAL}/finalizers"], ["update"]),
        _rule(["batch"], ["jobs/finalizers"], ["update"]),
        _rule(["batch"], ["jobs"], _ALL),
        _rule([""], ["pods", "services", "configmaps"], _ALL),
        # The keys of a cluster: without `list` and `watch`, only a Secret with a known name can be read. That of a Job
        # has its plan, which changes with the number of its pods.
        _rule([""], ["secrets"], ["get", "create", "patch"]),
        # Only Events report exceeded quotas and failed mounts.
        _rule([""], ["events"], ["list", "create"]),
        _rule(["coordination.k8s.io"], ["leases"], ["list", "watch"], [OTHER_LEASE]),
    ]


def own_rules(install: Install) -> list[Object]:
    """The operator's rights in its own namespace: on its Lease, and on the webhook's certificate."""
    rules = [
        _rule(["coordination.k8s.io"], ["leases"], ["create"]),
        _rule(["coordination.k8s.io"], ["leases"], ["get", "update"], [LEASE]),
    ]
    if install.webhook and not install.cert_manager:
        rules.append(_rule([""], ["secrets"], ["create"]))
        rules.append(_rule([""], ["secrets"], ["get", "update"], [WEBHOOK]))
    return rules


def other_rules() -> list[Object]:
    """The operator's rights in the namespace of the Flux Operator in Go: to see whether that one acts."""
    return [_rule(["coordination.k8s.io"], ["leases"], ["get", "list", "watch"], [OTHER_LEASE])]


def access(install: Install) -> list[Object]:
    """The service account, its roles, and their bindings."""
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(OPERATOR, install.namespace),
        # The Deployment mounts the token itself.
        "automountServiceAccountToken": False,
    }
    found = [account]
    for namespace in install.watched or ("",):
        found += _granted(install, OPERATOR, namespace, watched_rules())
    if install.watched and install.flux_operator_namespace:
        found += _granted(install, f"{OPERATOR}-other", install.flux_operator_namespace, other_rules())
    found += _granted(install, f"{OPERATOR}-own", install.namespace, own_rules(install))
    if install.webhook and not install.cert_manager:
        rules = [
            _rule(["admissionregistration.k8s.io"], [resource], ["get", "list", "watch", "patch"], [name])
            for resource, name in (
                ("validatingwebhookconfigurations", CONFIGURATION),
                ("mutatingwebhookconfigurations", JOBS_CONFIGURATION),
            )
        ]
        found += _granted(install, f"{OPERATOR}-webhook", "", rules)
    if install.webhook and install.metrics_api:
        found += metrics_api_access(install)
    return found


def metrics_api_access(install: Install) -> list[Object]:
    """The rights to register the APIs of metrics, and to know the API server's aggregation layer.

    A creation has no name yet by which the right could be limited. The APIServices are not among the objects of the
    install, since another adapter may have them. The ClusterRole owns those that the operator registers, so Kubernetes
    deletes these with it.
    """
    names = [api_service_name(one) for one in (CUSTOM, EXTERNAL)]
    group = ["apiregistration.k8s.io"]
    rules = [
        _rule(group, ["apiservices"], ["create"]),
        _rule(group, ["apiservices"], ["get", "list", "watch", "patch"], names),
        _rule([_RBAC], ["clusterroles"], ["get"], [METRICS_ROLE]),
    ]
    return [
        *_granted(install, METRICS_ROLE, "", rules),
        _binding(install, METRICS_ROLE, AGGREGATION_NAMESPACE, "Role", AGGREGATION_READER),
    ]


def _granted(install: Install, name: str, namespace: str, rules: list[Object]) -> list[Object]:
    """A role and its binding to the operator's account, for all namespaces if `namespace` is ""."""
    prefix = "" if namespace else "Cluster"
    metadata = _metadata(name, namespace)
    role = {"apiVersion": f"{_RBAC}/v1", "kind": f"{prefix}Role", "metadata": metadata, "rules": rules}
    return [role, _binding(install, name, namespace, f"{prefix}Role", name)]


def _binding(install: Install, name: str, namespace: str, kind: str, role: str) -> Object:
    """The binding of a role of this kind to the operator's account, for all namespaces if `namespace` is ""."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{'' if namespace else 'Cluster'}RoleBinding",
        "metadata": _metadata(name, namespace),
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": install.namespace}],
    }


def user_roles() -> list[Object]:
    """Additions to the cluster's roles `edit`, `admin` and `view`: users of a namespace may use MiniClusters in it."""
    write = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
    read = ["get", "list", "watch"]
    return [
        _user_role("edit", ["admin", "edit"], [_rule([GROUP], [PLURAL, f"{PLURAL}/scale"], write)]),
        _user_role("view", ["view"], [_rule([GROUP], [PLURAL, f"{PLURAL}/status", f"{PLURAL}/scale"], read)]),
    ]


def _user_role(name: str, into: list[str], rules: list[Object]) -> Object:
    metadata = _metadata(f"headrace-{name}")
    for role in into:
        metadata["labels"][f"rbac.authorization.k8s.io/aggregate-to-{role}"] = "true"
    return {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}


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
    volumes = [{"name": "tmp", "emptyDir": {}}]
    if install.webhook and install.cert_manager:
        volumes.append({"name": "certificate", "secret": {"secretName": WEBHOOK}})
    template = {
        "metadata": {"labels": dict(_LABELS)},
        "spec": {
            "serviceAccountName": OPERATOR,
            "automountServiceAccountToken": True,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [_container(install)],
            "volumes": volumes,
            # The operator releases the Lease when it ends.
            "terminationGracePeriodSeconds": 10,
        },
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(OPERATOR, install.namespace),
        "spec": {"replicas": install.replicas, "selector": {"matchLabels": dict(_LABELS)}, "template": template},
    }
    port = {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(f"{OPERATOR}-metrics", install.namespace),
        "spec": {"selector": dict(_LABELS), "ports": [port]},
    }
    return [deployment, service]


def _container(install: Install) -> Object:
    ports = [{"name": "metrics", "containerPort": METRICS_PORT}, {"name": "health", "containerPort": HEALTH_PORT}]
    mounts: list[Object] = [{"name": "tmp", "mountPath": "/tmp"}]
    if install.webhook:
        ports.append({"name": "webhook", "containerPort": WEBHOOK_PORT})
    if install.webhook and install.cert_manager:
        mounts.append({"name": "certificate", "mountPath": CERTIFICATE_FOLDER, "readOnly": True})
    return {
        "name": "operator",
        "image": install.image,
        "command": arguments(install),
        "ports": ports,
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 2},
        "resources": install.resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": mounts,
    }


# --- the webhook


def webhook(install: Install) -> list[Object]:
    """The Service and the configurations of the webhook, with its certificate if it is cert-manager's."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(WEBHOOK, install.namespace),
        "spec": {"selector": dict(_LABELS), "ports": [{"port": 443, "targetPort": "webhook"}]},
    }
    found = [service]
    if install.cert_manager:
        found += _certificate(install)
    service_of = {"namespace": install.namespace, "name": WEBHOOK, "port": 443}
    return [
        *found,
        configuration({"service": {**service_of, "path": WEBHOOK_PATH}}, install),
        jobs_configuration({"service": {**service_of, "path": JOBS_PATH}}, install),
    ]


def configuration(client: Object, install: Install) -> Object:
    """The webhook configuration of MiniClusters; `client` is how the API server reaches the webhook (`clientConfig`).

    The webhook fails closed, only for MiniClusters. Changes without a change of `spec`, and objects that are being
    deleted, are not reviewed, so that MiniClusters can be removed while no operator runs.
    """
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": [VERSION],
        "operations": ["CREATE", "UPDATE"],
        "resources": [PLURAL, f"{PLURAL}/scale"],
        "scope": "Namespaced",
    }
    condition = {"name": "spec-changes", "expression": "oldObject == null || object.spec != oldObject.spec"}
    return _configuration("Validating", CONFIGURATION, PLURAL, client, install, rule, condition)


def jobs_configuration(client: Object, install: Install) -> Object:
    """The webhook configuration of Jobs; `client` is as in `configuration`.

    It fails closed, only for Jobs that are labelled to become clusters; others are never reviewed. Of changes it
    reviews those of the label, and of fields that admission writes.
    """
    rule = {
        "apiGroups": ["batch"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["jobs"],
        "scope": "Namespaced",
    }
    differ = " || ".join(f"object.{path} != oldObject.{path}" for path in WRITTEN)
    condition = {"name": "what-admission-writes-changes", "expression": f"oldObject == null || {differ}"}
    more = {"objectSelector": {"matchLabels": {LABEL_KEY: LABEL_VALUE}}}
    return _configuration("Mutating", JOBS_CONFIGURATION, "jobs", client, install, rule, condition, more)


def _configuration(
    kind: str, name: str, plural: str, client: Object, install: Install, rule: Object, condition: Object,
    more: Object | None = None,
) -> Object:  # fmt: skip
    """A webhook configuration with one hook, which is asked about objects of `plural` that are not being deleted."""
    alive = {"name": "not-being-deleted", "expression": "!has(object.metadata.deletionTimestamp)"}
    hook: Object = {
        "name": f"{plural}.headrace.{GROUP}",
        "clientConfig": client,
        "rules": [rule],
        **(more or {}),
        "matchConditions": [alive, condition],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
    }
    if install.watched:
        within = {"key": _NAME_OF_NAMESPACE, "operator": "In", "values": list(install.watched)}
        hook["namespaceSelector"] = {"matchExpressions": [within]}
    injected: Object = {"annotations": {"cert-manager.io/inject-ca-from": f"{install.namespace}/{WEBHOOK}"}}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": _metadata(name, **(injected if install.cert_manager else {})),
        "webhooks": [hook],
    }


def _certificate(install: Install) -> list[Object]:
    """The webhook's certificate (cert-manager.io/v1) in the Secret that the Deployment mounts, and its authority.

    A self-signed serving certificate would be another authority after each renewal, and the API server would refuse the
    webhook until both sides have it. The authority keeps its key when it is renewed, so certificates that it has signed
    stay trusted; cert-manager writes the authority into the webhook configuration (`cert-manager.io/inject-ca-from`).
    """
    labelled = {"secretTemplate": {"labels": dict(_LABELS)}}
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
    metadata = _metadata(name, install.namespace)
    return {"apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


# --- network access to the pods of MiniClusters


def network_policies(install: Install) -> list[Object]:
    """Two NetworkPolicies (networking.k8s.io/v1) for each of `network_policies`: of MiniClusters, and of clusters that
    are made of Jobs. Only pods of the same kind in the namespace reach the brokers, and only the operator reaches the
    lead's channel. All other ports, which users' programs use, stay open.
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
    operator = {"namespaceSelector": place, "podSelector": {"matchLabels": dict(_LABELS)}}
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
        "metadata": _metadata(name, namespace),
        "spec": {**ours, "policyTypes": ["Ingress"], "ingress": ingress},
    }


# --- Kubeflow Trainer


def trainer(install: Install) -> list[Object]:
    """The right to read the owners of a Job, which know the number of its processes, and the training runtimes.

    The definitions of both kinds are Kubeflow Trainer's, which must be there before.
    """
    rules = [
        _rule([api_version.partition("/")[0]], [f"{kind.lower()}s"], ["get"])
        for kind, api_version in ((jobset.KIND, jobset.API_VERSION), (trainjob.KIND, trainjob.API_VERSION))
    ]
    granted = [one for namespace in install.watched or ("",) for one in _granted(install, _TRAINER, namespace, rules)]
    return [*granted, *(_labelled(one) for one in runtimes.BUILT_IN.values())]


def _labelled(one: Object) -> Object:
    return {**one, "metadata": {**one["metadata"], "labels": {**_LABELS, **one["metadata"]["labels"]}}}
