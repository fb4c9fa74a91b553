"""What the objects of a MiniCluster have in common: kinds, metadata, annotations, and records as JSON. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.k8s.objects.kinds import CONFIG_MAPS, EVENTS, JOBS, LEASES, MINICLUSTERS, PODS, SECRETS, SERVICES

from ..api.fields import API_VERSION, KIND, MiniCluster, Record
from . import names

Object = dict[str, Any]

# The kinds of the objects that belong to a MiniCluster, by name.
KINDS = {one.kind: one for one in (MINICLUSTERS, JOBS, PODS, SERVICES, CONFIG_MAPS, SECRETS, EVENTS, LEASES)}

# Annotations by which the operator keeps facts at its own objects.
# The fingerprints of the spec that an object was made from, of its content, and (on a Job) of the fields that need
# another Job and of the brokers' configuration.
SPEC = "flux-framework.org/headrace-spec"
CONTENT = "flux-framework.org/headrace-content"
RECREATES = "flux-framework.org/headrace-recreates"
CONFIG = "flux-framework.org/headrace-config"
# Set on a Job whose pods did not run in time; the value says which resource was short.
START_TIMEOUT = "flux-framework.org/headrace-start-timeout"
# Set on the Jobs of a MiniCluster one of whose groups has failed; the value says which, and why.
GROUP_FAILED = "flux-framework.org/headrace-group-failed"
# Set on a Job that follows others of its MiniCluster: the failures of their pods that count towards spec.backoffLimit.
FORMER_FAILURES = "flux-framework.org/headrace-former-failures"
# Set on a Job while it is suspended by the operator.
SUSPENDED_BY_US = "flux-framework.org/headrace-suspended"


def owned(cluster: MiniCluster, name: str, uid: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Metadata of an object with a name. `uid` is the MiniCluster's, so that the object is deleted with it; with ""
    there is no owner, for objects that are applied without an operator.
    """
    metadata: dict[str, Any] = {"name": name}
    if cluster.namespace:
        metadata["namespace"] = cluster.namespace
    metadata["labels"] = {**(labels or {}), names.MANAGED_BY: names.MANAGER}
    if uid:
        metadata["ownerReferences"] = [controlled_by(API_VERSION, KIND, cluster.name, uid)]
    return metadata


def controlled_by(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    """The owner reference to the object that an object is managed by and deleted with."""
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}
    return {**owner, "controller": True, "blockOwnerDeletion": True}


def annotations_of(item: Object | None) -> dict[str, str]:
    """The annotations of an object; {} without one."""
    return ((item or {}).get("metadata") or {}).get("annotations") or {}


def annotated(body: Object, annotations: dict[str, str]) -> Object:
    """A copy of an object with more annotations."""
    return {**body, "metadata": {**body["metadata"], "annotations": {**annotations_of(body), **annotations}}}


def as_object(record: Record | None) -> dict[str, Any]:
    """The fields of a record that are set, under the API's names. A given `false` or 0 is included."""
    unset: dict[str, Any] = {}
    return unset if record is None else _set_only(msgspec.to_builtins(record))


def without_unset(fields: dict[str, Any]) -> dict[str, Any]:
    """The entries with a value: not None, "" or an empty list or mapping."""
    return {key: value for key, value in fields.items() if value is not None and value not in ("", [], {})}


def _set_only(value: Any) -> Any:
    if isinstance(value, dict):
        return without_unset({key: _set_only(item) for key, item in value.items()})
    if isinstance(value, list):
        return [_set_only(item) for item in value]
    return value
