"""What a change of a MiniCluster's spec does to pods that run already. Pure.

A Job's template is immutable, so most fields need another Job, whose pods start anew. The fields that running pods
can take are listed here; `docs/user/minicluster.md` has the same table.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Hashable
from typing import Any, NamedTuple

import msgspec

from ..minicluster.fields import MiniCluster

Object = dict[str, Any]


class Effect(enum.Enum):
    """What is done about a changed field."""

    AT_ONCE = "at once"  # the operator goes by it from now on; pods do not notice
    RESIZES = "resizes"  # pods come, or are drained and go; brokers join and leave
    RELOADS = "reloads"  # running brokers take it
    NEXT_START = "next start"  # counts when the pods are next made
    RECREATES = "recreates"  # another Job: all pods start anew


# Paths as the API names them, `[]` for any item of a list. What is not here, and not below what is here, recreates.
EFFECTS = {
    "spec.size": Effect.RESIZES,
    "spec.maxSize": Effect.RESIZES,
    "spec.groups[].size": Effect.RESIZES,
    "spec.groups[].maxSize": Effect.RESIZES,
    "spec.flux.brokerConfig": Effect.RELOADS,
    "spec.minSize": Effect.NEXT_START,
    "spec.suspend": Effect.AT_ONCE,
    "spec.cleanup": Effect.AT_ONCE,
    "spec.ttlSecondsAfterFinished": Effect.AT_ONCE,
    "spec.startTimeoutSeconds": Effect.AT_ONCE,
    "spec.autoscale": Effect.AT_ONCE,
    "spec.managedBy": Effect.AT_ONCE,
}


class Change(NamedTuple):
    """A field that differs, as `spec.containers[0].image`, and what that does."""

    path: str
    effect: Effect


def changes(old: MiniCluster, new: MiniCluster) -> list[Change]:
    """The fields in which two specifications of a MiniCluster differ, by path. A field at its default is not given."""
    before, after = leaves(old), leaves(new)
    missing = object()
    differ = [path for path in before | after if before.get(path, missing) != after.get(path, missing)]
    return [Change(path, effect_of(path)) for path in sorted(differ)]


def effect_of(path: str) -> Effect:
    """What a change of the field at this path does."""
    place = re.sub(r"\[[0-9]+\]", "[]", path)
    while place:
        if place in EFFECTS:
            return EFFECTS[place]
        place = place[: max(place.rfind("."), place.rfind("["), 0)]
    return Effect.RECREATES


def leaves(cluster: MiniCluster) -> dict[str, Any]:
    """The values of a specification by path, without those at their defaults: text, numbers, and what is empty."""
    found: dict[str, Any] = {}
    _collect(_given(cluster.spec), "spec", found)
    return found


def _collect(value: Any, path: str, found: dict[str, Any]) -> None:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            _collect(item, f"{path}.{key}", found)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            _collect(item, f"{path}[{index}]", found)
    else:
        found[path] = value


@functools.lru_cache(maxsize=None)
def _fields(kind: Hashable) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a kind of records. msgspec evaluates all annotations at each call, and each look at a MiniCluster
    needs them."""
    assert isinstance(kind, type)
    return msgspec.structs.fields(kind)


def _given(record: Any) -> Object:
    """The fields of a record that are not at their defaults."""
    found: Object = {}
    kind: Hashable = record.__class__
    for one in _fields(kind):
        value = getattr(record, one.name)
        default = one.default_factory() if one.default_factory is not msgspec.NODEFAULT else one.default
        if value != default:
            found[one.encode_name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return _given(value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value
