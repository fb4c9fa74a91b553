"""Fingerprints of specs and objects, by which the operator tells what has changed since an object was made. Pure.

They must not differ between versions of the operator for the same spec, so fields that are at their defaults count as
absent: a field that a later version adds changes no fingerprint.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec

from ..minicluster.fields import MiniCluster

Object = dict[str, Any]

# Fields of the spec that a live MiniCluster takes without another Job: they resize, reload or concern the operator.
LIVE = frozenset(
    {
        *("size", "minSize", "maxSize", "suspend", "managedBy", "cleanup", "autoscale"),
        *("ttlSecondsAfterFinished", "startTimeoutSeconds"),
    }
)
# Likewise of spec.flux: the broker's configuration is reloaded.
LIVE_FLUX = frozenset({"brokerConfig"})


def whole(cluster: MiniCluster) -> str:
    """The fingerprint of the whole spec."""
    return _hash(_given(cluster.spec))


def recreating(cluster: MiniCluster) -> str:
    """The fingerprint of the part of the spec whose change needs another Job: its template is immutable."""
    spec = {key: value for key, value in _given(cluster.spec).items() if key not in LIVE}
    if isinstance(spec.get("flux"), dict):
        spec["flux"] = {key: value for key, value in spec["flux"].items() if key not in LIVE_FLUX}
    # The size of a group is its Job's.
    groups = spec.get("groups") or []
    if groups:
        spec["groups"] = [{key: one[key] for key in one if key not in ("size", "maxSize")} for one in groups]
    return _hash(spec)


def configuration(cluster: MiniCluster) -> str:
    """The fingerprint of the brokers' configuration, which a live MiniCluster reloads."""
    return _hash(cluster.flux.broker_config)


def content_of(body: Object) -> str:
    """The fingerprint of what an object says, as far as the API server keeps it as it is."""
    if body.get("kind") == "Service" or "clusterIP" in (body.get("spec") or {}):
        spec = body["spec"]
        ports = [(one.get("name"), one.get("port")) for one in spec.get("ports") or ()]
        return _hash({"selector": spec.get("selector"), "ports": ports})
    return _hash(body.get("data"))


def _given(record: Any) -> Object:
    """The fields of a record that are not at their defaults."""
    found: Object = {}
    for one in msgspec.structs.fields(record):
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


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
