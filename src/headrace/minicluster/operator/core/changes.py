"""Changes of a spec: the changed fields with their effects on running pods, and fingerprints. Pure.

The effect of a field is declared with the field (`api.fields`); `docs/user/minicluster.md` has the same table. The
operator compares fingerprints to detect what has changed since an object was made. The fingerprint of a spec is the
same in all versions of the operator: a field at its default counts as absent, so a field that a later version adds does
not change it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from headrace.formats.spec.hostlist import count_hosts

from ...api.declarations import Effect, fields_of
from ...api.fields import MOST_PODS, MiniCluster, Spec
from ...api.pod_plan import PLAN_FILE, decode

Object = dict[str, Any]

# A cached object has its fingerprint under TRIMMED instead of its content; a ConfigMap has the hosts of its plan under
# HOSTS.
TRIMMED, HOSTS = "headrace-content", "headrace-hosts"


class Change(NamedTuple):
    """A field that differs, such as `spec.containers[0].image`, and its effect."""

    path: str
    effect: Effect


def changes(old: MiniCluster, new: MiniCluster) -> list[Change]:
    """The fields in which two specs differ, sorted by path. A field at its default counts as absent."""
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
    """The effects by path, and the beginnings of these paths.

    Paths have the API's names, and `[]` for any item of a list. A field that is neither listed nor below a listed path
    recreates the pods. Each reconcile looks up all fields, possibly thousands; the beginnings rule out most of them
    quickly.
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


def spec_fingerprint(cluster: MiniCluster) -> str:
    """The fingerprint of the whole spec."""
    return _hash(leaves(cluster))


def recreating_fingerprint(cluster: MiniCluster) -> str:
    """The fingerprint of the fields whose change needs a new Job, because a Job's template is immutable."""
    found = leaves(cluster)
    return _hash({path: found[path] for path in found if effect_of(path) is Effect.RECREATES})


def configuration_fingerprint(cluster: MiniCluster) -> str:
    """The fingerprint of the brokers' configuration, which running brokers reload."""
    return _hash(cluster.flux.broker_config)


def content_fingerprint(body: Object) -> str:
    """The fingerprint of the part of an object's content that the API server stores unchanged.

    A trimmed object of the cache has its fingerprint in a key (TRIMMED).
    """
    if TRIMMED in body:
        return str(body[TRIMMED])
    if body.get("kind") == "Service" or "clusterIP" in (body.get("spec") or {}):
        spec = body["spec"]
        ports = [(one.get("name"), one.get("port")) for one in spec.get("ports") or ()]
        return _hash({"selector": spec.get("selector"), "ports": ports})
    return _hash(body.get("data"))


def hosts_of(config_map: Object) -> str:
    """The hosts of the instance from a MiniCluster's ConfigMap, as a hostlist by rank.

    "" if the ConfigMap has no plan (pods with their image's own Flux) or an unreadable one.
    """
    if HOSTS in config_map:
        return str(config_map[HOSTS])
    try:
        hosts = decode((config_map.get("data") or {}).get(PLAN_FILE, "")).hosts
        # A user who may change the ConfigMap may have written a list of any length.
        count_hosts(hosts, 2 * MOST_PODS)
        return hosts
    except ValueError:
        return ""


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
