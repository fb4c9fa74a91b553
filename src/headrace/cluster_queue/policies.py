"""Policies by which the API server itself checks requests. Pure.

They check who asks for a history, who writes FluxJobs, who releases objects held by the queue and, if the administrator
wants it, that all objects wait. Source: Kubernetes 1.34, "Validating Admission Policy", "Common Expression Language".
"""

from __future__ import annotations

from typing import Any

from headrace.k8s.objects.kinds import PODS, PROGRAM_LABEL, Kind

from .names import (
    FLUXHISTORIES,
    FLUXJOB_POLICY,
    FLUXJOBS,
    FLUXQUEUE,
    FLUXQUEUES,
    GATE,
    GROUP,
    HELD,
    HELD_POLICY,
    HISTORY_POLICY,
    HOLD,
    JOBID,
    KUEUE_QUEUE,
    ORDER_POLICY,
    POLICIES,
    POLICY_BINDINGS,
    QUEUE,
    SKIP,
)
from .workloads import WorkloadKind, others

Object = dict[str, Any]

LABELS = {PROGRAM_LABEL: FLUXQUEUE}
_DAEMON_SETS = Kind("apps", "v1", "daemonsets", "DaemonSet")
# True if a FluxHistory names its creator as its user (CEL). The answer contains what the named user may read, which may
# depend on name, uid, groups and extra, so all four are compared. In CEL, an empty field is absent.
_IS_CREATOR = " && ".join(
    f"(has(object.spec.user.{name}) ? object.spec.user.{name} : {empty}) == "
    f"(has(request.userInfo.{name}) ? request.userInfo.{name} : {empty})"
    for name, empty in (("username", "''"), ("uid", "''"), ("groups", "[]"), ("extra", "{}"))
)

# True for a request of the DaemonSet controller, by its own account or by that of all controllers.
_BY_DAEMON_SETS = "request.userInfo.username in " + str(
    ["system:serviceaccount:kube-system:daemon-set-controller", "system:kube-controller-manager"]
)


def history_policy() -> list[Object]:
    """The policy that rejects a FluxHistory whose user is not its creator, in all namespaces."""
    check = _check(
        _IS_CREATOR, "spec.user: must be the user who creates this object, as `kubectl auth whoami -o yaml` prints it"
    )
    rule = {"resourceRules": [_rule(FLUXHISTORIES, "CREATE")]}
    return _policy(HISTORY_POLICY, {"matchConstraints": rule, "validations": [check]})


def fluxjob_policy(namespace: str) -> list[Object]:
    """The policy that lets only the queue write FluxJobs, in all namespaces.

    A FluxJob says which nodes are taken and, by its owner, by whom. Users may delete it and change its other metadata.
    The queue runs in `namespace`.
    """
    owners = {item: f"{item}.metadata.?ownerReferences.orValue([])" for item in ("object", "oldObject")}
    # The garbage collector removes owners that are gone.
    keeps_owners = f"{owners['object']}.all(new, {owners['oldObject']}.exists(old, old.uid == new.uid))"
    keeps_spec = "has(object.spec) == has(oldObject.spec) && (!has(object.spec) || object.spec == oldObject.spec)"
    keeps_id = f"{_label('object', JOBID)} == {_label('oldObject', JOBID)}"
    rule = "only the queue may write FluxJobs: create the Job or pod itself"
    checks = [
        _check("!has(request.subResource) || request.subResource == ''", rule),
        _check(f"oldObject != null && {keeps_spec} && {keeps_id} && {keeps_owners}", rule),
    ]
    rules = [_rule(FLUXJOBS, "CREATE", "UPDATE"), _rule(FLUXJOBS, "UPDATE", part="/status")]
    spec = {
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": _of_users(namespace),
        "validations": checks,
    }
    return _policy(FLUXJOB_POLICY, spec)


def held_policy(namespace: str) -> list[Object]:
    """The policy that lets only the queue release what it holds in labelled namespaces.

    It rejects requests of others that remove a pod's gate or resume an object. The queue runs in `namespace`.
    """
    checks = [
        _check(
            f"{_not_a(PODS)} || !{_has_gate('oldObject')} || {_has_gate('object')}",
            f"spec.schedulingGates: must keep the gate {GATE}: the queue removes it at the pod's turn",
        ),
        *(
            _check(
                f"{_not_a(one.kind)} || !({_is_held('oldObject', one)}) || ({_is_held('object', one)})",
                f"{'.'.join(one.suspend)}: must stay true, with the annotation {HELD}: the queue resumes the "
                f"{one.kind.kind} at its turn (see kubectl fluxqueue why NAME; the annotation {HOLD} puts it on "
                "hold)",
            )
            for one in others()
            if one.suspend
        ),
    ]
    kinds = [PODS, *(one.kind for one in others() if one.suspend)]
    return _policy(HELD_POLICY, _in_held_namespaces(namespace, [_rule(kind, "UPDATE") for kind in kinds], checks))


def order_policy(namespace: str) -> list[Object]:
    """The policy that rejects objects of labelled namespaces that would not wait.

    These are objects with a label that excludes them or with another manager, pods that name their node, and
    DaemonSets. Existing objects stay: a DaemonSet gets its pods. The queue runs in `namespace`.
    """
    checks = [
        _check(
            f"{_skips('object')} ? oldObject != null && {_skips('oldObject')} : true",
            f"metadata.labels: {SKIP} and {KUEUE_QUEUE} exclude an object, but here all objects must wait their turn",
        ),
        _check(
            f"{_not_a(PODS)} || request.operation != 'CREATE' || dyn(object).spec.?nodeName.orValue('') == ''",
            "spec.nodeName: must not be set: here the queue assigns nodes to pods",
        ),
        _check(
            f"{_not_a(PODS)} || request.operation != 'CREATE' || !({_of_daemon_set('object')}) || {_BY_DAEMON_SETS}",
            "metadata.ownerReferences: must not name a DaemonSet: its pods do not wait, but here all pods must",
        ),
        *(
            _check(
                f"{_not_a(one.kind)} || request.operation != 'CREATE' || "
                f"{_at('object', one.managed_by)}.orValue('') in ['', '{one.controller}']",
                f"{'.'.join(one.managed_by)}: must be {one.controller} or not set: here all objects must wait",
            )
            for one in others()
            if one.controller
        ),
        _check(
            "request.resource.resource != 'daemonsets'",
            "a DaemonSet's pods do not wait, but here all pods must wait their turn",
        ),
    ]
    kinds = (one.kind for one in others())
    rules = [*(_rule(kind, "CREATE", "UPDATE") for kind in (PODS, *kinds)), _rule(_DAEMON_SETS, "CREATE")]
    return _policy(ORDER_POLICY, _in_held_namespaces(namespace, rules, checks))


def _in_held_namespaces(namespace: str, rules: list[Object], checks: list[Object]) -> Object:
    """The spec of a policy for requests of users in labelled namespaces. The queue runs in `namespace`."""
    return {
        "matchConstraints": {"namespaceSelector": held_namespaces(namespace), "resourceRules": rules},
        "matchConditions": _of_users(namespace),
        "validations": checks,
    }


def _of_users(namespace: str) -> list[Object]:
    """The conditions that exempt the queue, kubelets, and users who may create FluxQueues.

    The queue runs in `namespace`.
    """
    account = f"system:serviceaccount:{namespace}:{FLUXQUEUE}"
    may_create = f"authorizer.group('{GROUP}').resource('{FLUXQUEUES.plural}').check('create').allowed()"
    conditions = {
        "not-the-queue": f"request.userInfo.username != '{account}'",
        "not-a-kubelet": "!request.userInfo.?groups.orValue([]).exists(one, one == 'system:nodes')",
        "not-an-administrator": f"!{may_create}",
    }
    return [{"name": name, "expression": text} for name, text in conditions.items()]


def held_namespaces(own: str) -> Object:
    """The selector (metav1.LabelSelector) of the namespaces whose objects wait.

    It never selects kube-system or the queue's `own` namespace, so that a cluster without a running queue can start
    what restores it. A label without a value names no queue. "NotIn" alone would also select namespaces without the
    label.
    """
    never = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", own]}
    named = {"key": QUEUE, "operator": "Exists"}, {"key": QUEUE, "operator": "NotIn", "values": [""]}
    return {"matchExpressions": [*named, never]}


def _not_a(kind: Kind) -> str:
    return f"request.resource.resource != '{kind.plural}'"


def _at(item: str, path: tuple[str, ...]) -> str:
    """The value of a field, as an optional value (CEL)."""
    return f"dyn({item}).{'.?'.join(path)}"


def _label(item: str, name: str, kind: str = "labels") -> str:
    """The value of a label, or of an annotation by `kind`; "" without it (CEL)."""
    return f"{item}.metadata.?{kind}[?'{name}'].orValue('')"


def _skips(item: str) -> str:
    return f"({_label(item, SKIP)} == 'true' || {item}.metadata.?labels[?'{KUEUE_QUEUE}'].hasValue())"


def _has_gate(pod: str) -> str:
    return f"dyn({pod}).spec.?schedulingGates.orValue([]).exists(one, one.name == '{GATE}')"


def _is_held(item: str, workload: WorkloadKind) -> str:
    """CEL for whether the queue has suspended an object."""
    return f"{_label(item, HELD, 'annotations')} == 'true' && {_at(item, workload.suspend)}.orValue(false)"


def _of_daemon_set(pod: str) -> str:
    controls = "one.?controller.orValue(false) && one.kind == 'DaemonSet'"
    return f"{pod}.metadata.?ownerReferences.orValue([]).exists(one, {controls})"


def _check(expression: str, message: str) -> Object:
    return {"expression": expression, "message": message, "reason": "Forbidden"}


def _rule(kind: Kind, *operations: str, part: str = "") -> Object:
    return {
        **{"apiGroups": [kind.group], "apiVersions": ["*"]},
        **{"operations": list(operations), "resources": [f"{kind.plural}{part}"]},
    }


def _policy(name: str, spec: Object) -> list[Object]:
    """A policy by which the API server rejects requests, and its binding."""
    binding = {"policyName": name, "validationActions": ["Deny"]}
    metadata = {"name": name, "labels": dict(LABELS)}
    return [
        {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": dict(metadata), "spec": one}
        for kind, one in ((POLICIES, {"failurePolicy": "Fail", **spec}), (POLICY_BINDINGS, binding))
    ]
