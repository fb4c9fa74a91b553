"""Rules of the fields that the Flux Operator lacks: groups, managedBy and podFailurePolicy. Pure.

Each group becomes a Job of its own. managedBy and podFailurePolicy are copied to Jobs, so their rules are those of
batch/v1 JobSpec (Kubernetes 1.34).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.k8s.objects.labels import check_key
from headrace.k8s.objects.problems import LABEL, LABEL_RULE, Problem

from .comparisons import check_comparisons
from .fields import Group, MiniCluster, PodFailureRule
from .object_rules import (
    check_image,
    check_pod,
    check_resources,
    check_variables,
    check_volumes,
    own_volumes,
)

_HOST_LIMIT = 63
# batch/v1: the maximum number of rules, of exit codes in a rule, and of conditions in a rule.
_MOST_RULES = 20
_MOST_CODES = 255
_MOST_CONDITIONS = 20
_CONDITION = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?\Z")


def check_added_fields(cluster: MiniCluster) -> Iterator[Problem]:
    """The problems of groups, managedBy and podFailurePolicy."""
    if cluster.spec.managed_by:
        yield from _check_manager(cluster.spec.managed_by)
    yield from _check_policy(cluster)
    yield from _check_groups(cluster)


def _check_groups(cluster: MiniCluster) -> Iterator[Problem]:
    spec = cluster.spec
    first: dict[str, int] = {}
    for index, group in enumerate(spec.groups):
        path = f"spec.groups[{index}]"
        yield from _check_name(cluster, group, path)
        if group.name in first:
            yield Problem(f"{path}.name", f"{group.name!r} is also the name of spec.groups[{first[group.name]}]")
        first.setdefault(group.name, index)
        yield from check_comparisons(group, path)
        if group.image:
            yield from check_image(group.image, path)
        yield from check_resources(group.resources, f"{path}.resources")
        yield from check_variables(group.environment, f"{path}.environment")
        if group.pod:
            yield from check_pod(group.pod, cluster, f"{path}.pod")
        yield from check_volumes(group.volumes, *own_volumes(cluster), f"{path}.volumes")
    if spec.groups and cluster.flux.bursting and cluster.flux.bursting.hostlist:
        yield Problem("spec.groups", "cannot be combined with flux.bursting.hostlist, which names all hosts")


def _check_name(cluster: MiniCluster, group: Group, path: str) -> Iterator[Problem]:
    path = f"{path}.name"
    if not LABEL.match(group.name) or not group.name[0].isalpha():
        # A group whose name is a number would give its pods the host names of the MiniCluster's own pods.
        yield Problem(path, f"{group.name!r} cannot name hosts: {LABEL_RULE}; the first must be a letter")
        return
    if group.name == "services":
        yield Problem(path, f"{cluster.name}-services is the pod of spec.services, choose another name")
    last = f"{cluster.name}-{group.name}-{max(group.size, group.max_size, 1) - 1}"
    if len(last) > _HOST_LIMIT:
        rule = f"host names such as {last} would have {len(last)} characters, at most {_HOST_LIMIT} fit"
        yield Problem(path, rule)


def _check_manager(name: str) -> Iterator[Problem]:
    path = "spec.managedBy"
    domain, slash, rest = name.partition("/")
    if not (slash and domain and rest) or list(check_key(name, path)):
        yield Problem(path, f"must be DOMAIN/NAME, the controller's name, not {name!r}")


def _check_policy(cluster: MiniCluster) -> Iterator[Problem]:
    policy = cluster.spec.pod_failure_policy
    if not policy:
        return
    path = "spec.podFailurePolicy"
    if cluster.spec.pod and cluster.spec.pod.restart_policy == "OnFailure":
        yield Problem(path, "needs pods that end when they fail: pod.restartPolicy must be Never, or not given")
    if len(policy.rules) > _MOST_RULES:
        yield Problem(f"{path}.rules", f"has {len(policy.rules)} rules, at most {_MOST_RULES} fit")
    for index, rule in enumerate(policy.rules):
        yield from _check_rule(rule, _container_names(cluster), f"{path}.rules[{index}]")


def _container_names(cluster: MiniCluster) -> set[str]:
    """The names of a pod's containers in Kubernetes, where the container with Flux has the cluster's name."""
    others = {one.name for one in cluster.spec.containers if not one.run_flux and len(cluster.spec.containers) > 1}
    view = cluster.flux.container.name if cluster.flux.container else "flux-view"
    return {cluster.name, view, *others}


def _check_rule(rule: PodFailureRule, containers: set[str], path: str) -> Iterator[Problem]:
    codes = rule.on_exit_codes
    if bool(codes) == bool(rule.on_pod_conditions):
        yield Problem(path, "must have either onExitCodes or onPodConditions")
    if codes:
        where = f"{path}.onExitCodes"
        if not 1 <= len(codes.values) <= _MOST_CODES:
            yield Problem(f"{where}.values", f"must have 1 to {_MOST_CODES} exit codes, not {len(codes.values)}")
        elif sorted(set(codes.values)) != codes.values:
            yield Problem(f"{where}.values", "must be in ascending order, each code once")
        elif codes.operator == "In" and 0 in codes.values:
            yield Problem(f"{where}.values", "must not have 0 with operator: In, a pod that ends with 0 has not failed")
        if codes.container_name and codes.container_name not in containers:
            text = f"{codes.container_name!r} is not a container of the pods: {', '.join(sorted(containers))}"
            yield Problem(f"{where}.containerName", text)
    if len(rule.on_pod_conditions) > _MOST_CONDITIONS:
        count = len(rule.on_pod_conditions)
        yield Problem(f"{path}.onPodConditions", f"has {count} conditions, at most {_MOST_CONDITIONS} fit")
    for index, condition in enumerate(rule.on_pod_conditions):
        where = f"{path}.onPodConditions[{index}]"
        if not _CONDITION.match(condition.type):
            yield Problem(f"{where}.type", f"must be a pod condition such as DisruptionTarget, not {condition.type!r}")
