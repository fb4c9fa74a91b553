"""What the policies of the API server are about. What they refuse is shown on a real Kubernetes
(`kube/test_fluxqueue_plugin.py`).
"""

from __future__ import annotations

from headrace.cluster_queue.policies import fluxjob_policy, held_namespaces, held_policy, history_policy, order_policy
from headrace.cluster_queue.workloads import KINDS

ACCOUNT = "request.userInfo.username != 'system:serviceaccount:tools:headrace-fluxqueue'"


def test_each_policy_has_a_binding_that_denies():
    for policy, binding in (history_policy(), *(one("tools") for one in (fluxjob_policy, held_policy, order_policy))):
        assert (policy["kind"], binding["kind"]) == ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
        assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
        assert policy["spec"]["failurePolicy"] == "Fail"


def test_the_order_is_kept_in_labelled_namespaces_by_all_kinds_that_wait():
    policy, _ = order_policy("tools")
    where = policy["spec"]["matchConstraints"]
    assert where["namespaceSelector"] == held_namespaces("tools")
    kinds = {one.kind.plural for one in KINDS.values()}
    assert {name for rule in where["resourceRules"] for name in rule["resources"]} == {*kinds, "daemonsets"}
    assert ACCOUNT in [one["expression"] for one in policy["spec"]["matchConditions"]]


def test_what_is_held_is_let_go_by_the_queue_alone():
    policy, _ = held_policy("tools")
    where = policy["spec"]["matchConstraints"]
    assert where["namespaceSelector"] == held_namespaces("tools")
    kinds = {one.kind.plural for one in KINDS.values() if one.suspend}
    assert {name for rule in where["resourceRules"] for name in rule["resources"]} == {*kinds, "pods"}
    assert {operation for rule in where["resourceRules"] for operation in rule["operations"]} == {"UPDATE"}
    assert ACCOUNT in [one["expression"] for one in policy["spec"]["matchConditions"]]
    fields = [one["message"].partition(":")[0] for one in policy["spec"]["validations"]]
    assert set(fields) == {"spec.schedulingGates", "spec.suspend", "spec.runPolicy.suspend"}


def test_fluxjobs_are_written_by_the_queue_alone_in_all_namespaces():
    policy, _ = fluxjob_policy("tools")
    rules = policy["spec"]["matchConstraints"]["resourceRules"]
    assert policy["spec"]["matchConstraints"].keys() == {"resourceRules"}
    operations = {name: rule["operations"] for rule in rules for name in rule["resources"]}
    assert operations == {"fluxjobs": ["CREATE", "UPDATE"], "fluxjobs/status": ["UPDATE"]}
    assert ACCOUNT in [one["expression"] for one in policy["spec"]["matchConditions"]]
