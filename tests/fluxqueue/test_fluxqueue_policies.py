"""What the policies of the API server are about. What they refuse is shown on a real Kubernetes
(`kube/test_fluxqueue_plugin.py`).
"""

from __future__ import annotations

from headrace.fluxqueue.policies import held_namespaces, history_policy, order_policy
from headrace.fluxqueue.workloads import KINDS


def test_each_policy_has_a_binding_that_denies():
    for policy, binding in (history_policy(), order_policy("tools")):
        assert (policy["kind"], binding["kind"]) == ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
        assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
        assert policy["spec"]["failurePolicy"] == "Fail"


def test_the_order_is_kept_in_labelled_namespaces_by_all_kinds_that_wait():
    policy, _ = order_policy("tools")
    where = policy["spec"]["matchConstraints"]
    assert where["namespaceSelector"] == held_namespaces("tools")
    kinds = {one.kind.plural for one in KINDS.values()}
    assert {name for rule in where["resourceRules"] for name in rule["resources"]} == {*kinds, "daemonsets"}
    conditions = [one["expression"] for one in policy["spec"]["matchConditions"]]
    assert "request.userInfo.username != 'system:serviceaccount:tools:headrace-fluxqueue'" in conditions
