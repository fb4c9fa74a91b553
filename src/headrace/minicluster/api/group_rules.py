"""Rules of `groups`: further pods with other templates, each group in a Job of its own. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.k8s.objects.problems import LABEL, LABEL_RULE, Problem

from .comparisons import check_comparisons
from .fields import Group, MiniCluster
from .object_rules import (
    check_image,
    check_pod,
    check_resources,
    check_variables,
    check_volumes,
    own_volumes,
)

_HOST_LIMIT = 63


def check_groups(cluster: MiniCluster) -> Iterator[Problem]:
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
        # The pods of a group whose name is a number would have the host names of the MiniCluster's own pods.
        yield Problem(path, f"{group.name!r} cannot name hosts: {LABEL_RULE}; the first must be a letter")
        return
    if group.name == "services":
        yield Problem(path, f"{cluster.name}-services is the pod of spec.services, choose another name")
    last = f"{cluster.name}-{group.name}-{max(group.size, group.max_size, 1) - 1}"
    if len(last) > _HOST_LIMIT:
        rule = f"host names such as {last} would have {len(last)} characters, at most {_HOST_LIMIT} fit"
        yield Problem(path, rule)
