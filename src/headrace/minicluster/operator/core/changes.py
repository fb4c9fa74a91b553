"""The effect of a change of a MiniCluster's spec on running pods. Pure.

The effect of a field is declared with it (`api.fields`); `docs/user/minicluster.md` has the same table.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from ...api.declarations import Effect, fields_of
from ...api.fields import MiniCluster, Spec

Object = dict[str, Any]


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
    known, beginnings = effects()
    if not path.startswith(beginnings):
        return Effect.RECREATES
    place = re.sub(r"\[[0-9]+\]", "[]", path)
    while place:
        if place in known:
            return known[place]
        place = place[: max(place.rfind("."), place.rfind("["), 0)]
    return Effect.RECREATES


@functools.cache
def effects() -> tuple[dict[str, Effect], tuple[str, ...]]:
    """The effects by path, with the API's names and `[]` for any item of a list, and the beginnings of these paths.

    A field that is not among them, nor below one of them, recreates the pods. Each reconcile asks for the effects of
    all fields, of which there may be thousands, and most are dismissed by the beginnings of their paths.
    """
    known = dict(_marked(Spec, "spec"))
    return known, tuple({path.partition("[")[0] for path in known})


def _marked(record: type[msgspec.Struct], path: str) -> Iterator[tuple[str, Effect]]:
    for one in fields_of(record).values():
        here, kind = f"{path}.{one.name}", one.type
        if one.effect:
            yield here, one.effect
        while kind.kind is list and kind.item:
            here, kind = f"{here}[]", kind.item
        if issubclass(kind.kind, msgspec.Struct):
            yield from _marked(kind.kind, here)


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


def _given(record: msgspec.Struct) -> Object:
    """The fields of a record that are not at their defaults."""
    found: Object = {}
    for one in fields_of(type(record)).values():
        value = getattr(record, one.attribute)
        if value != one.default or one.required:
            found[one.name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return _given(value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value
