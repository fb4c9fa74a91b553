from __future__ import annotations

import pytest

from headrace.cluster_queue.workloads import KINDS
from headrace.programs.cluster_queue.install import Install, check
from headrace.programs.cluster_queue.package import PACKAGE


def one(kind: str, install: Install | None = None, name: str = "headrace-fluxqueue") -> dict:
    (found,) = (
        item
        for item in PACKAGE.objects(install or Install())
        if (item["kind"], item["metadata"]["name"]) == (kind, name)
    )
    return found


def test_the_webhook_stands_before_what_makes_pods_in_labelled_namespaces_alone():
    (hook,) = one("MutatingWebhookConfiguration")["webhooks"]
    assert hook["failurePolicy"] == "Fail"
    assert hook["namespaceSelector"]["matchExpressions"] == [
        {"key": "fluxqueue/queue", "operator": "Exists"},
        {"key": "fluxqueue/queue", "operator": "NotIn", "values": [""]},
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "fluxqueue-system"]},
    ]
    operations = {name: rule["operations"] for rule in hook["rules"] for name in rule["resources"]}
    # Each of very many changes of pods would ask the process of the queue.
    kinds = {one.kind.plural: ["CREATE", "UPDATE"] for one in KINDS.values()}
    assert operations == {**kinds, "pods": ["CREATE"]}
    assert hook["sideEffects"] == "None"
    (open_hook,) = one("MutatingWebhookConfiguration", Install(failure_policy="Ignore"))["webhooks"]
    assert open_hook["failurePolicy"] == "Ignore"


def test_the_roles_may_delete_pods_and_what_is_ours_alone_and_may_not_read_all_secrets():
    rules = one("ClusterRole")["rules"]
    verbs = {verb for rule in rules for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch", "patch", "create", "delete"}
    assert [rule["resources"] for rule in rules if "delete" in rule["verbs"]] == [
        ["pods"],
        ["fluxjobs"],
        ["fluxhistories"],
    ]
    assert not any("secrets" in rule["resources"] for rule in rules)
    patched = {name for rule in rules if "patch" in rule["verbs"] for name in rule["resources"]}
    assert patched == {
        "pods",
        *(one.kind.plural for one in KINDS.values() if one.suspend),
        "fluxjobs",
        "fluxjobs/status",
        "fluxqueues/status",
        "fluxhistories/status",
        "mutatingwebhookconfigurations",
    }


def test_a_fluxhistory_names_its_creator_in_every_namespace_and_users_find_their_own_alone():
    policy, binding = (
        one(f"ValidatingAdmissionPolicy{part}", name="headrace-fluxqueue-history") for part in ("", "Binding")
    )
    assert policy["spec"]["failurePolicy"] == "Fail"
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["apiVersions"], rule["operations"], rule["resources"]) == (["*"], ["CREATE"], ["fluxhistories"])
    assert policy["spec"]["matchConstraints"].keys() == {"resourceRules"}
    (check,) = policy["spec"]["validations"]
    for name in ("username", "uid", "groups", "extra"):
        assert f"object.spec.user.{name}" in check["expression"] and f"request.userInfo.{name}" in check["expression"]
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    (verbs,) = (
        rule["verbs"]
        for rule in one("ClusterRole", name="headrace-fluxqueue-view")["rules"]
        if "fluxhistories" in rule["resources"]
    )
    assert verbs == ["create", "get", "delete"]
    (rule,) = (rule for rule in one("ClusterRole")["rules"] if "validatingadmissionpolicies" in rule["resources"])
    assert (rule["verbs"], rule["resourceNames"]) == (["get"], ["headrace-fluxqueue-history"])


def test_users_read_fluxjobs_and_never_write_them():
    role = one("ClusterRole", name="headrace-fluxqueue-view")
    assert role["rules"][0]["verbs"] == ["get", "list", "watch"]
    labels = role["metadata"]["labels"]
    assert labels["rbac.authorization.k8s.io/aggregate-to-view"] == "true"


def test_an_installation_has_its_namespace_image_and_replicas():
    install = Install(namespace="ops", image="a:1", replicas=2)
    spec = one("Deployment", install)["spec"]
    assert spec["replicas"] == 2
    assert spec["template"]["spec"]["containers"][0]["image"] == "a:1"
    assert one("Namespace", install, "ops")


def test_the_password_of_a_database_is_a_file_from_a_secret():
    spec = one("Deployment", Install(store="postgresql://me@db/jobs", store_secret="db"))["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"][-2:] == [
        "--store=postgresql://me@db/jobs",
        "--store-password-file=/etc/fluxqueue-store/password",
    ]
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == "store-password")
    assert (mount["mountPath"], mount["readOnly"]) == ("/etc/fluxqueue-store", True)
    (volume,) = (one for one in pod["volumes"] if one["name"] == "store-password")
    assert volume["secret"]["secretName"] == "db"
    # The file is its group's to read, which is the process's.
    assert (volume["secret"]["defaultMode"], pod["securityContext"]["fsGroup"]) == (0o440, 65532)
    assert "strategy" not in spec


def test_a_database_without_a_password_has_no_volume():
    pod = one("Deployment", Install(store="postgresql://db/jobs"))["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"][-1] == "--store=postgresql://db/jobs"
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp"]


def test_a_store_in_a_file_is_in_the_volume_of_a_claim_which_one_process_has_at_a_time():
    spec = one("Deployment", Install(store_claim="disk"))["spec"]
    pod = spec["template"]["spec"]
    assert spec["strategy"] == {"type": "Recreate"}
    assert pod["containers"][0]["command"][-1] == "--statedir=/var/lib/fluxqueue"
    assert {"name": "store", "mountPath": "/var/lib/fluxqueue"} in pod["containers"][0]["volumeMounts"]
    assert {"name": "store", "persistentVolumeClaim": {"claimName": "disk"}} in pod["volumes"]


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ({"store": "sqlite:/tmp/store"}, "name its claim"),
        ({"store": "mysql://db"}, "must be sqlite:PATH or postgresql"),
        ({"store": "postgresql://db/jobs", "store_claim": "disk"}, "choose one store"),
        ({"store_secret": "db"}, "give the database, too"),
        ({"store_claim": "disk", "replicas": 2}, "of one process only, not of 2"),
        ({"grpc": True, "replicas": 2}, "served by one process only, not by 2"),
        ({"grpc_queue": "large"}, "needs gRPC to be enabled"),
        ({"grpc_secret": "own"}, "needs gRPC to be enabled"),
        ({"grpc": True, "grpc_client_secret": "theirs"}, "give its Secret, too"),
    ],
)
def test_choices_that_an_install_could_not_have_are_refused(choice, why):
    with pytest.raises(ValueError, match=why):
        check(Install(**choice))


def test_grpc_has_a_service_and_its_certificates_from_secrets():
    install = Install(grpc=True, grpc_queue="large", grpc_secret="own", grpc_client_secret="theirs")
    (port,) = one("Service", install, "headrace-fluxqueue-grpc")["spec"]["ports"]
    pod = one("Deployment", install)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (port["port"], {"name": port["targetPort"], "containerPort": 4242} in container["ports"]) == (4242, True)
    assert container["command"][-5:] == [
        *("--grpc=:4242", "--grpc-queue=large", "--grpc-tls-cert=/etc/fluxqueue-grpc/tls.crt"),
        *("--grpc-tls-key=/etc/fluxqueue-grpc/tls.key", "--grpc-client-ca=/etc/fluxqueue-grpc-clients/ca.crt"),
    ]
    files = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    secrets = {one["name"]: one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    assert secrets[files["/etc/fluxqueue-grpc"]] == "own" and secrets[files["/etc/fluxqueue-grpc-clients"]] == "theirs"
    with pytest.raises(ValueError, match="not enough values"):
        one("Service", Install(), "headrace-fluxqueue-grpc")


def test_with_grpc_there_is_memory_for_its_messages():
    def resources(**choices: object) -> dict:
        (container,) = one("Deployment", Install(**choices))["spec"]["template"]["spec"]["containers"]
        return container["resources"]

    assert resources()["limits"] == {"memory": "256Mi"}
    assert resources(grpc=True) == {**resources(), "limits": {"memory": "1Gi"}}
    chosen = {"limits": {"memory": "2Gi"}}
    assert resources(resources=chosen) == resources(resources=chosen, grpc=True) == chosen
