"""The effect of a change of a MiniCluster's spec on running pods. Pure.

A Job's template is immutable, so most fields need another Job, whose pods start anew. The fields with another effect
are listed here; `docs/user/minicluster.md` has the same table.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Hashable
from typing import Any, NamedTuple

import msgspec

from ...api.fields import MiniCluster

Object = dict[str, Any]


class Effect(enum.Enum):
    """The effect of a changed field."""

    AT_ONCE = "at once"  # the operator uses it from now on; pods are not affected
    RESIZES = "resizes"  # pods are created, or drained and deleted; brokers join and leave
    RELOADS = "reloads"  # running brokers load it
    NEXT_START = "next start"  # pods that are created later have it
    RECREATES = "recreates"  # another Job: all pods start anew


# Paths with the API's names, `[]` for any item of a list. Every other field recreates, unless a listed one contains it.
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
# How their paths begin: each reconcile asks for the effects of all fields, of which there may be thousands.
_BEGINNINGS = tuple({path.partition("[")[0] for path in EFFECTS})


class Change(NamedTuple):
    """A field that differs, such as `spec.containers[0].image`, and its effect."""

    path: str
    effect: Effect


def changes(old: MiniCluster, new: MiniCluster) -> list[Change]:
    """The fields in which two specs of a MiniCluster differ, by path. A field at its default counts as not given."""
    before, after = leaves(old), leaves(new)
    missing = object()
    differ = [path for path in before | after if before.get(path, missing) != after.get(path, missing)]
    return [Change(path, effect_of(path)) for path in sorted(differ)]


def effect_of(path: str) -> Effect:
    """The effect of a change of the field at this path."""
    if not path.startswith(_BEGINNINGS):
        return Effect.RECREATES
    place = re.sub(r"\[[0-9]+\]", "[]", path)
    while place:
        if place in EFFECTS:
            return EFFECTS[place]
        place = place[: max(place.rfind("."), place.rfind("["), 0)]
    return Effect.RECREATES


def leaves(cluster: MiniCluster) -> dict[str, Any]:
    """The values of a spec by path, without defaults: text, numbers, and empty lists or mappings."""
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
    """The fields of a type of records; cached, since msgspec evaluates all annotations at each call, and each reconcile
    needs them.
    """
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
