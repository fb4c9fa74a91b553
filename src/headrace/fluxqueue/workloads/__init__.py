"""The kinds of workloads that wait in queues, a file each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...kube.runtime.api import PODS
from . import group, job, pod
from .workload import Malformed, Wish, Workload

Object = dict[str, Any]

KINDS: dict[str, Workload] = {module.WORKLOAD.kind.kind: module.WORKLOAD for module in (pod, job)}
BY_PLURAL = {one.kind.plural: one for one in KINDS.values()}


def owner_of(item: Object) -> Object | None:
    """The reference to the controller of an object, if that is of a known kind."""
    for one in item["metadata"].get("ownerReferences") or ():
        known = KINDS.get(one.get("kind", ""))
        if one.get("controller") and known and one.get("apiVersion") == known.kind.api_version:
            return dict(one)
    return None


def uid_of_workload(pod: Object) -> str:
    """The uid of the workload that a pod belongs to: its controller if that is of a known kind, else its group, else
    the pod.
    """
    owner = owner_of(pod)
    if owner:
        return str(owner["uid"])
    name = group.name_of(pod)
    return uid_of_group(pod["metadata"]["namespace"], name) if name else str(pod["metadata"]["uid"])


def uid_of_group(namespace: str, name: str) -> str:
    """What stands for the uid of a group, which is no object."""
    return f"group/{namespace}/{name}"


def others() -> Iterator[Workload]:
    """The kinds whose objects make pods."""
    return (one for one in KINDS.values() if one.kind != PODS)


__all__ = [
    "BY_PLURAL",
    "KINDS",
    "Malformed",
    "Wish",
    "Workload",
    "group",
    "others",
    "owner_of",
    "uid_of_group",
    "uid_of_workload",
]
