"""The operator's install objects: what it may do, and files in `deploy/` that are made of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml
from cert_manager import CertManager
from clusters import built, minicluster
from handshakes import handshake

from headrace.k8s.runtime.admission.certificates import Pair
from headrace.k8s.runtime.admission.rotation import Keeper, Settings
from headrace.k8s.runtime.admission.server import tls_context, use_pair
from headrace.k8s.runtime.api import Api
from headrace.minicluster.api.pod_plan import BROKER_PORT, CHANNEL_PORT, READY_PORT
from headrace.minicluster.operator.names import CONFIGURATION, JOBS_CONFIGURATION, OPERATOR, WEBHOOK
from headrace.programs.operator.install import AUTHORITY, Install
from headrace.programs.operator.package import PACKAGE, kustomize_metrics_api
from waiting import until_in_loop

CONFIGURATIONS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
VARIANTS = [
    Install(),
    Install(watched=("team", "other"), namespace="tools", replicas=2),
    Install(cert_manager=True),
    Install(webhook=False, image="registry.example/op:2", view_image="registry.example/view:2"),
    Install(watched=("team",), webhook=False, view_as_volume=True, cluster_domain="k8s.lan"),
    Install(watched=("team",), cert_manager=True, network_policies=("team", "more")),
    Install(watched=("team", "other"), flux_operator_namespace="operator-system"),
    Install(flux_operator_namespace="operator-system"),
    Install(trainer=True),
    Install(metrics_api=True),
    Install(watched=("team", "other"), trainer=True),
]


def by_kind(install: Install, *kinds: str) -> list[dict[str, Any]]:
    return [one for one in PACKAGE.objects(install) if one["kind"] in kinds]


def rules(install: Install, *kinds: str) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """(group, resource, verb, names) of all roles of these kinds that are bound to the operator."""
    bound = {one["roleRef"]["name"] for one in by_kind(install, "RoleBinding", "ClusterRoleBinding")}
    return [
        (group, resource, verb, tuple(rule.get("resourceNames", ())))
        for role in by_kind(install, *kinds)
        if role["metadata"]["name"] in bound
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


@pytest.mark.parametrize("install", VARIANTS)
def test_the_operator_may_do_no_more_than_it_does(install: Install) -> None:
    granted = rules(install, "Role", "ClusterRole")
    assert not any("*" in (group, resource, verb) for group, resource, verb, _ in granted)
    resources = {resource for _, resource, _, _ in granted}
    assert not resources & {"pods/exec", "pods/attach", "pods/portforward", "pods/log", "nodes", "namespaces"}
    secrets = {(verb, names) for _, resource, verb, names in granted if resource == "secrets"}
    assert {verb for verb, names in secrets if not names} == {"get", "create", "patch"}
    assert {names for _, names in secrets} <= {(), ("headrace-webhook",)}
    assert not {verb for _, _, verb, _ in granted} & {"impersonate", "escalate", "bind", "deletecollection"}


def test_each_of_several_namespaces_has_the_role() -> None:
    roles = [one for one in by_kind(Install(watched=("a", "b")), "Role") if one["metadata"]["name"] == OPERATOR]
    assert [one["metadata"]["namespace"] for one in roles] == ["a", "b"]
    assert roles[0]["rules"] == roles[1]["rules"]


def test_a_network_policy_is_about_the_ports_of_brokers_and_leads_alone() -> None:
    assert by_kind(Install(), "NetworkPolicy") == []
    policy, of_jobs = by_kind(Install(network_policies=("team",), namespace="tools"), "NetworkPolicy")
    assert policy["metadata"]["namespace"] == of_jobs["metadata"]["namespace"] == "team"
    selector = {"matchExpressions": [{"key": "flux-framework.org/headrace-cluster", "operator": "Exists"}]}
    assert of_jobs["spec"]["podSelector"] == selector
    brokers, *others = of_jobs["spec"]["ingress"]
    assert (brokers["from"], others) == ([{"podSelector": selector}], policy["spec"]["ingress"][1:])
    labels = policy["spec"]["podSelector"]["matchLabels"]
    for one in built(minicluster(size=2, services=[{"name": "s"}], groups=[{"name": "g"}])).values():
        pod = one if one["kind"] == "Pod" else one["spec"]["template"] if one["kind"] == "Job" else None
        assert pod is None or labels.items() <= pod["metadata"]["labels"].items()

    def sources(port: int) -> list[Any]:
        """Who reaches a TCP port: the `from` of each rule that has it; [None] is everybody."""
        return [
            rule.get("from")
            for rule in policy["spec"]["ingress"]
            for one in rule["ports"]
            if one["protocol"] == "TCP" and one["port"] <= port <= one.get("endPort", one["port"])
        ]

    assert sources(BROKER_PORT) == [[{"podSelector": {"matchLabels": labels}}]]
    (operator,) = sources(CHANNEL_PORT)[0]
    (deployment,) = by_kind(Install(), "Deployment")
    assert (
        operator["podSelector"]["matchLabels"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    )
    assert operator["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "tools"}}
    assert [sources(port) for port in (1, 22, READY_PORT, 30_000, 65535)] == [[None]] * 5


def test_with_one_namespace_nothing_is_granted_elsewhere_but_the_webhook_configuration() -> None:
    assert rules(Install(watched=("team",), webhook=False), "ClusterRole") == []
    granted = rules(Install(watched=("team",)), "ClusterRole")
    assert {(resource, names) for _, resource, _, names in granted} == {
        ("validatingwebhookconfigurations", ("headrace-miniclusters",)),
        ("mutatingwebhookconfigurations", ("headrace-jobs",)),
    }
    places = {one["metadata"]["namespace"] for one in by_kind(Install(watched=("team",)), "Role")}
    assert places == {"team", "headrace-system"}
    configurations = by_kind(Install(watched=("team",)), *CONFIGURATIONS)
    assert len(configurations) == 2
    for one in configurations:
        (hook,) = one["webhooks"]
        assert hook["namespaceSelector"] == {
            "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team"]}]
        }


def test_in_the_namespace_of_the_flux_operator_nothing_but_its_lease_can_be_seen() -> None:
    name = "headrace-operator-other"
    limited = Install(watched=("team",), flux_operator_namespace="operator-system")
    (role,) = [one for one in by_kind(limited, "Role") if one["metadata"]["namespace"] == "operator-system"]
    assert role["metadata"]["name"] == name
    (rule,) = role["rules"]
    assert (rule["apiGroups"], rule["resources"]) == (["coordination.k8s.io"], ["leases"])
    assert rule["resourceNames"] == ["14dde902.flux-framework.org"]
    assert rule["verbs"] == ["get", "list", "watch"]
    for install in (Install(watched=("team",)), Install(flux_operator_namespace="operator-system")):
        assert name not in [one["metadata"]["name"] for one in by_kind(install, "Role", "RoleBinding")]


def test_with_trainer_its_objects_can_be_read_and_its_runtimes_are_clusters() -> None:
    for install in (Install(trainer=True), Install(trainer=True, watched=("team",))):
        without = msgspec.structs.replace(install, trainer=False)
        assert set(rules(install, "Role", "ClusterRole")) - set(rules(without, "Role", "ClusterRole")) == {
            ("jobset.x-k8s.io", "jobsets", "get", ()),
            ("trainer.kubeflow.org", "trainjobs", "get", ()),
        }
        found = {one["metadata"]["name"]: one["spec"] for one in by_kind(install, "ClusterTrainingRuntime")}
        assert list(found) == ["headrace-distributed", "headrace-torch"]
        for spec in found.values():
            (job,) = spec["template"]["spec"]["replicatedJobs"]
            assert job["template"]["metadata"]["labels"]["flux-framework.org/headrace"] == "cluster"
            assert [one["name"] for one in job["template"]["spec"]["template"]["spec"]["containers"]] == ["node"]
        assert found["headrace-distributed"]["mlPolicy"] == {"numNodes": 1}
        assert found["headrace-torch"]["mlPolicy"] == {"numNodes": 1, "torch": {}}
    assert by_kind(Install(), "ClusterTrainingRuntime") == []


@pytest.mark.parametrize("install", VARIANTS)
def test_each_role_is_bound_to_the_account_and_exists(install: Install) -> None:
    (account,) = by_kind(install, "ServiceAccount")
    place = {"name": account["metadata"]["name"], "namespace": install.namespace}
    bindings = by_kind(install, "RoleBinding", "ClusterRoleBinding")
    assert all(one["subjects"] == [{"kind": "ServiceAccount", **place}] for one in bindings)
    bound = [(one["roleRef"]["kind"], one["roleRef"]["name"], one["metadata"].get("namespace")) for one in bindings]
    if install.metrics_api:
        # Kubernetes makes this Role, which reads how its aggregation layer shows who it is.
        bound.remove(("Role", "extension-apiserver-authentication-reader", "kube-system"))
    own = [one for one in by_kind(install, "Role", "ClusterRole") if "aggregate" not in str(one["metadata"]["labels"])]
    made = [(one["kind"], one["metadata"]["name"], one["metadata"].get("namespace")) for one in own]
    assert sorted(bound, key=str) == sorted(made, key=str) and len(set(made)) == len(made)


def test_the_operator_is_told_the_domain_of_the_cluster() -> None:
    def told(install: Install) -> list[str]:
        (deployment,) = by_kind(install, "Deployment")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        return [word for word in container["command"] if "domain" in word]

    assert told(Install()) == []
    assert told(Install(cluster_domain="k8s.lan")) == ["--cluster-domain=k8s.lan"]


def test_the_pod_of_the_operator_is_restricted() -> None:
    (deployment,) = by_kind(Install(), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"]
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("install", VARIANTS)
def test_the_webhook_of_the_deployment_is_the_one_that_the_api_server_is_told(install: Install) -> None:
    (container,) = by_kind(install, "Deployment")[0]["spec"]["template"]["spec"]["containers"]
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    configurations = by_kind(install, *CONFIGURATIONS)
    assert ("--no-webhook" in container["command"]) == (not install.webhook) == (configurations == [])
    for one in configurations:
        (hook,) = one["webhooks"]
        client = hook["clientConfig"]["service"]
        (service,) = [
            one
            for one in by_kind(install, "Service")
            if (one["metadata"]["name"], one["metadata"]["namespace"]) == (client["name"], client["namespace"])
        ]
        (port,) = service["spec"]["ports"]
        assert f"--webhook-bind=:{ports[port['targetPort']]}" in container["command"]
        assert hook["failurePolicy"] == "Fail"
        resources = {"/validate": ["miniclusters", "miniclusters/scale"], "/mutate-jobs": ["jobs"]}
        assert hook["rules"][0]["resources"] == resources[client["path"]]


def test_of_jobs_only_labelled_ones_are_reviewed() -> None:
    (one,) = by_kind(Install(), "MutatingWebhookConfiguration")
    (hook,) = one["webhooks"]
    assert hook["objectSelector"] == {"matchLabels": {"flux-framework.org/headrace": "cluster"}}


def test_a_renewed_certificate_is_taken_and_trusted_without_a_gap(tmp_path: Path) -> None:
    """By who has the caBundle of before and who has the one of after, whichever of the two ends is first."""
    manager = CertManager(PACKAGE.objects(Install(cert_manager=True)))
    for name in (AUTHORITY, WEBHOOK):
        manager.issue(name)
    manager.mount(WEBHOOK, tmp_path)
    settings = Settings(
        namespace="headrace-system", service=WEBHOOK, secret=WEBHOOK, component=OPERATOR, configurations=(),
        folder=str(tmp_path),
    )  # fmt: skip

    async def follow() -> None:
        keeper = Keeper(cast(Api, None), settings)
        keeper.pause = 0.01
        served = [await keeper.first()]
        context = tls_context(served[0])

        def use(pair: Pair) -> None:
            use_pair(context, pair)
            served.append(pair)

        keeping = asyncio.create_task(keeper.keep(use))
        bundles = [manager.bundle(CONFIGURATION)]
        assert manager.bundle(JOBS_CONFIGURATION) == bundles[0]
        for renewed in ([WEBHOOK], [AUTHORITY], [WEBHOOK], [AUTHORITY, WEBHOOK]):
            for name in renewed:
                manager.issue(name)
            manager.mount(WEBHOOK, tmp_path)
            bundles.append(manager.bundle(CONFIGURATION))
            await until_in_loop(lambda: served[-1].certificate == (tmp_path / "tls.crt").read_text())
            for bundle in bundles:
                handshake(context, bundle, settings.hosts[0])
        keeping.cancel()
        assert len(set(bundles)) == 3 and len({pair.certificate for pair in served}) == 4

    asyncio.run(follow())


# --- the files


def test_the_kustomize_component_adds_what_the_metrics_api_needs() -> None:
    base, wanted = PACKAGE.objects(Install()), PACKAGE.objects(Install(metrics_api=True))
    files = kustomize_metrics_api()
    (patch,) = yaml.safe_load(files["kustomization.yaml"])["patches"]
    (change,) = json.loads(patch["patch"])
    (deployment,) = [one for one in base if one["kind"] == "Deployment"]
    deployment["spec"]["template"]["spec"]["containers"][0]["command"].append(change["value"])
    assert patch["target"] == {"kind": "Deployment", "name": deployment["metadata"]["name"]}
    added = list(yaml.safe_load_all(files["rbac.yaml"]))
    assert sorted(map(json.dumps, [*base, *added])) == sorted(map(json.dumps, wanted))
