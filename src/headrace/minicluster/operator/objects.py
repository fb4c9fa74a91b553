"""Kinds, metadata and annotations of a MiniCluster's objects, and records as JSON. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.k8s.objects.kinds import CONFIG_MAPS, EVENTS, JOBS, LEASES, MINICLUSTERS, PODS, SECRETS, SERVICES

from ..api.fields import API_VERSION, KIND, MiniCluster, Record
from . import names

Object = dict[str, Any]

# The kinds of the objects that belong to a MiniCluster, by name.
KINDS = {one.kind: one for one in (MINICLUSTERS, JOBS, PODS, SERVICES, CONFIG_MAPS, SECRETS, EVENTS, LEASES)}

# Annotations that the operator sets on its own objects.
# Fingerprints: of the spec that an object was made from, of its content, and (on a Job) of the fields whose change
# needs a new Job, and of the brokers' configuration.
SPEC = "flux-framework.org/headrace-spec"
CONTENT = "flux-framework.org/headrace-content"
RECREATES = "flux-framework.org/headrace-recreates"
CONFIG = "flux-framework.org/headrace-config"
# Set on a Job whose pods did not run in time; the value says which resource was short.
START_TIMEOUT = "flux-framework.org/headrace-start-timeout"
# Set on all Jobs of a MiniCluster when one of its groups has failed; the value names the group and the reason.
GROUP_FAILED = "flux-framework.org/headrace-group-failed"
# Set on a Job that replaces former Jobs: the number of their pod failures that count towards spec.backoffLimit.
FORMER_FAILURES = "flux-framework.org/headrace-former-failures"
# Set on a Job while it is suspended by the operator.
SUSPENDED_BY_US = "flux-framework.org/headrace-suspended"


def owned(cluster: MiniCluster, name: str, uid: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Metadata of the MiniCluster's object `name`.

    `uid` is the MiniCluster's: the owner reference has the object deleted with it. With "" there is no owner reference,
    for objects that are applied without an operator.
    """
    metadata: dict[str, Any] = {"name": name}
    if cluster.namespace:
        metadata["namespace"] = cluster.namespace
    metadata["labels"] = {**(labels or {}), names.MANAGED_BY: names.MANAGER}
    if uid:
        metadata["ownerReferences"] = [controlled_by(API_VERSION, KIND, cluster.name, uid)]
    return metadata


def controlled_by(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    """The owner reference to the controller of an object, with which the object is deleted."""
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}
    return {**owner, "controller": True, "blockOwnerDeletion": True}


def annotations_of(item: Object | None) -> dict[str, str]:
    """The annotations of an object; {} for None."""
    return ((item or {}).get("metadata") or {}).get("annotations") or {}


def annotated(body: Object, annotations: dict[str, str]) -> Object:
    """A copy of an object with additional annotations."""
    return {**body, "metadata": {**body["metadata"], "annotations": {**annotations_of(body), **annotations}}}


def as_object(record: Record | None) -> dict[str, Any]:
    """The fields of a record that are set, under the API's names. A given `false` or 0 is included."""
    unset: dict[str, Any] = {}
    return unset if record is None else _set_only(msgspec.to_builtins(record))


def without_unset(fields: dict[str, Any]) -> dict[str, Any]:
    """The entries whose value is not None, "" or an empty list or mapping."""
    return {key: value for key, value in fields.items() if value is not None and value not in ("", [], {})}


def _set_only(value: Any) -> Any:
    if isinstance(value, dict):
        return without_unset({key: _set_only(item) for key, item in value.items()})
    if isinstance(value, list):
        return [_set_only(item) for item in value]
    return value
