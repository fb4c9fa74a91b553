"""What the API server itself checks for the queue: who asks for a history, and, where the administrator wants it, that
users keep to the order. Pure. Source: Kubernetes 1.34, "Validating Admission Policy", "Common Expression Language".
"""

from __future__ import annotations

from typing import Any

from ..kube.runtime.kinds import PODS, PROGRAM_LABEL, Kind
from .names import (
    FLUXHISTORIES,
    FLUXQUEUE,
    FLUXQUEUES,
    GATE,
    GROUP,
    HISTORY_POLICY,
    KUEUE_QUEUE,
    ORDER_POLICY,
    POLICIES,
    POLICY_BINDINGS,
    QUEUE,
    SKIP,
)
from .workloads import others

Object = dict[str, Any]

LABELS = {PROGRAM_LABEL: FLUXQUEUE}
_DAEMON_SETS = Kind("apps", "v1", "daemonsets", "DaemonSet")
# True if a FluxHistory names its creator as its user (CEL). The answer to the FluxHistory has what the named user may
# read, and that may depend on name, uid, groups and extra: all four are compared. In CEL an empty field is not there.
_IS_CREATOR = " && ".join(
    f"(has(object.spec.user.{name}) ? object.spec.user.{name} : {empty}) == "
    f"(has(request.userInfo.{name}) ? request.userInfo.{name} : {empty})"
    for name, empty in (("username", "''"), ("uid", "''"), ("groups", "[]"), ("extra", "{}"))
)

# True for a request of the controller of DaemonSets, by its own account or by that of all controllers.
_BY_DAEMON_SETS = "request.userInfo.username in " + str(
    ["system:serviceaccount:kube-system:daemon-set-controller", "system:kube-controller-manager"]
)


def history_policy() -> list[Object]:
    """What has the API server refuse a FluxHistory that names another user than its creator, in all namespaces."""
    check = _check(_IS_CREATOR, "spec.user: must be who creates this object, as `kubectl auth whoami -o yaml` tells")
    rule = {"resourceRules": [_rule(FLUXHISTORIES, "CREATE")]}
    return _policy(HISTORY_POLICY, {"matchConstraints": rule, "validations": [check]})


def order_policy(namespace: str) -> list[Object]:
    """What has the API server refuse, in labelled namespaces, what passes by the order of a queue: labels by which an
    object is left alone, managers of others, pods that name their node, gates that are taken away, DaemonSets. The
    queue, whose own namespace is given, kubelets, and who may create FluxQueues may do all this. What is so already
    stays: a DaemonSet that there is gets its pods.
    """
    pods = "request.resource.resource != 'pods' || "
    checks = [
        _check(
            f"{_skips('object')} ? oldObject != null && {_skips('oldObject')} : true",
            f"metadata.labels: {SKIP} and {KUEUE_QUEUE} leave an object alone, and here all objects wait their turn",
        ),
        _check(
            f"{pods}request.operation != 'CREATE' || dyn(object).spec.?nodeName.orValue('') == ''",
            "spec.nodeName: must not be set: here the queue gives pods to nodes",
        ),
        _check(
            f"{pods}!(oldObject != null && {_has_gate('oldObject')}) || {_has_gate('object')}",
            f"spec.schedulingGates: must keep the gate {GATE}: the queue takes it away when it is the pod's turn",
        ),
        _check(
            f"{pods}request.operation != 'CREATE' || !({_of_daemon_set('object')}) || {_BY_DAEMON_SETS}",
            "metadata.ownerReferences: must name no DaemonSet: its pods do not wait, and here all pods wait their turn",
        ),
        *(
            _check(
                f"request.resource.resource != '{one.kind.plural}' || request.operation != 'CREATE' || "
                f"dyn(object).{'.?'.join(one.managed_by)}.orValue('') in ['', '{one.controller}']",
                f"{'.'.join(one.managed_by)}: must be {one.controller} or not set: here all objects wait their turn",
            )
            for one in others()
            if one.controller
        ),
        _check(
            "request.resource.resource != 'daemonsets'",
            "a DaemonSet's pods do not wait, and here all pods wait their turn",
        ),
    ]
    kinds = (one.kind for one in others())
    rules = [_rule(kind, "CREATE", "UPDATE") for kind in (PODS, *kinds)]
    account = f"system:serviceaccount:{namespace}:{FLUXQUEUE}"
    may_create = f"authorizer.group('{GROUP}').resource('{FLUXQUEUES.plural}').check('create').allowed()"
    conditions = {
        "not-the-queue": f"request.userInfo.username != '{account}'",
        "not-a-kubelet": "!request.userInfo.?groups.orValue([]).exists(one, one == 'system:nodes')",
        "not-an-administrator": f"!{may_create}",
    }
    spec = {
        "matchConstraints": {
            "namespaceSelector": held_namespaces(namespace),
            "resourceRules": [*rules, _rule(_DAEMON_SETS, "CREATE")],
        },
        "matchConditions": [{"name": name, "expression": text} for name, text in conditions.items()],
        "validations": checks,
    }
    return _policy(ORDER_POLICY, spec)


def held_namespaces(own: str) -> Object:
    """The selector (metav1.LabelSelector) of the namespaces whose objects wait: never those of the system's, nor the
    queue's `own`, so that a cluster whose queue is away can start what brings it back. A label without a value names no
    queue. "NotIn" alone would select namespaces without the label, too.
    """
    never = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", own]}
    named = {"key": QUEUE, "operator": "Exists"}, {"key": QUEUE, "operator": "NotIn", "values": [""]}
    return {"matchExpressions": [*named, never]}


def _skips(item: str) -> str:
    labels = f"{item}.metadata.?labels"
    return f"({labels}[?'{SKIP}'].orValue('') == 'true' || {labels}[?'{KUEUE_QUEUE}'].hasValue())"


def _has_gate(pod: str) -> str:
    return f"dyn({pod}).spec.?schedulingGates.orValue([]).exists(one, one.name == '{GATE}')"


def _of_daemon_set(pod: str) -> str:
    controls = "one.?controller.orValue(false) && one.kind == 'DaemonSet'"
    return f"{pod}.metadata.?ownerReferences.orValue([]).exists(one, {controls})"


def _check(expression: str, message: str) -> Object:
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def _rule(kind: Kind, *operations: str) -> Object:
    return {
        **{"apiGroups": [kind.group], "apiVersions": ["*"]},
        **{"operations": list(operations), "resources": [kind.plural]},
    }


def _policy(name: str, spec: Object) -> list[Object]:
    """A policy by which the API server refuses requests, and its binding."""
    binding = {"policyName": name, "validationActions": ["Deny"]}
    metadata = {"name": name, "labels": dict(LABELS)}
    return [
        {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": dict(metadata), "spec": one}
        for kind, one in ((POLICIES, {"failurePolicy": "Fail", **spec}), (POLICY_BINDINGS, binding))
    ]
