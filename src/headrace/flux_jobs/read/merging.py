"""Merges lists by the names of their items, as Kubernetes and Kubeflow Trainer do. Pure.

No argument is changed. The order of items matters: a variable may refer only to variables before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Any

from .field import Field

# The lists of a pod's template that a strategic merge patch merges, each with the field that identifies its items
# (patchMergeKey of core/v1). The patch replaces all other lists, such as tolerations.
MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}


def upserted(before: Field, given: Field) -> list[Any]:
    """The items of `before` with those of `given`, as Trainer's apply.UpsertEnvVars merges them.

    An item of `given` replaces the item of the same name, or else is appended.
    """
    found = [item.value for item in before.items()]
    places = _places(found, "name")
    for item in given.items():
        name = item["name"].required_text()
        if name in places:
            found[places[name]] = item.value
        else:
            places[name] = len(found)
            found.append(item.value)
    return found


def patched(before: Any, patch: Field) -> Any:
    """A value after a strategic merge patch without directives.

    The value is part of a pod's template, or an object around it. A field that is null in the patch counts as absent,
    since the API server drops it from objects of custom kinds. Source: util/strategicpatch of k8s.io/apimachinery.
    """
    if not isinstance(before, dict):
        return patch.value
    found = dict(before)
    for key in patch.mapping():
        member, old = patch[key], found.get(key)
        if key in MERGE_KEYS and isinstance(old, list):
            found[key] = _patched_list(old, member, MERGE_KEYS[key])
        elif member.given:
            found[key] = patched(old, member)
    return found


def _patched_list(before: list[Any], patch: Field, key: str) -> list[Any]:
    """The items of a list after a patch.

    The items of the patch are in the patch's order. An item that only `before` has precedes the next item of the patch
    if it did so in `before`.
    """
    found = list(before)
    places = _places(found, key)
    order: dict[Hashable, int] = {}
    for item in patch.items():
        name = _name(item.value, key)
        if name is None:
            item[key].refuse("is required: items of this list are merged by it")
            continue
        order.setdefault(name, len(order))
        if name in places:
            found[places[name]] = patched(found[places[name]], item)
        else:
            places[name] = len(found)
            found.append(item.value)
    given = deque(sorted((one for one in found if _name(one, key) in order), key=lambda one: order[_name(one, key)]))
    kept = deque(one for one in found if _name(one, key) not in order)
    merged = []
    while given and kept:
        place = places[_name(given[0], key)]
        is_ahead = places[_name(kept[0], key)] < place < len(before)
        merged.append((kept if is_ahead else given).popleft())
    return [*merged, *given, *kept]


def _places(items: list[Any], key: str) -> dict[Hashable, int]:
    """The index of the first item with each name."""
    found: dict[Hashable, int] = {}
    for index, item in enumerate(items):
        found.setdefault(_name(item, key), index)
    return found


def _name(item: Any, key: str) -> Hashable:
    """The value that identifies an item of a list; None if it has none."""
    name = item.get(key) if isinstance(item, dict) else None
    return name if isinstance(name, (str, int)) else None
