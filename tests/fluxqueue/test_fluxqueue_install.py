from __future__ import annotations

from headrace.fluxqueue.install import Install, objects
from headrace.fluxqueue.workloads import KINDS


def one(kind: str, install: Install | None = None, name: str = "headrace-fluxqueue") -> dict:
    (found,) = (
        item for item in objects(install or Install()) if (item["kind"], item["metadata"]["name"]) == (kind, name)
    )
    return found


def test_the_webhook_stands_before_creations_in_labelled_namespaces_alone():
    (hook,) = one("MutatingWebhookConfiguration")["webhooks"]
    assert hook["failurePolicy"] == "Fail"
    assert hook["namespaceSelector"]["matchExpressions"] == [
        {"key": "fluxqueue/queue", "operator": "Exists"},
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "fluxqueue-system"]},
    ]
    assert [rule["resources"] for rule in hook["rules"]] == [[kind.kind.plural] for kind in KINDS.values()]
    assert {operation for rule in hook["rules"] for operation in rule["operations"]} == {"CREATE"}
    assert hook["sideEffects"] == "None"
    (open_hook,) = one("MutatingWebhookConfiguration", Install(failure_policy="Ignore"))["webhooks"]
    assert open_hook["failurePolicy"] == "Ignore"


def test_the_roles_have_no_right_to_delete_or_to_read_all_secrets():
    rules = one("ClusterRole")["rules"]
    verbs = {verb for rule in rules for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch", "patch", "create"}
    assert not any("secrets" in rule["resources"] for rule in rules)
    patched = {name for rule in rules if "patch" in rule["verbs"] for name in rule["resources"]}
    assert patched == {
        "pods",
        "jobs",
        "fluxjobs",
        "fluxjobs/status",
        "fluxqueues/status",
        "mutatingwebhookconfigurations",
    }


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
