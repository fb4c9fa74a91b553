"""The common metadata of a MiniCluster's objects: name, namespace, owner and the label of their manager."""

from __future__ import annotations

from typing import Any

from ..api.fields import API_VERSION, KIND, MiniCluster
from . import names


def owned(cluster: MiniCluster, name: str, uid: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Metadata of an object with a name. `uid` is the MiniCluster's, so that the object is deleted with it; with ""
    there is no owner, for objects that are applied without an operator.
    """
    metadata: dict[str, Any] = {"name": name}
    if cluster.namespace:
        metadata["namespace"] = cluster.namespace
    metadata["labels"] = {**(labels or {}), names.MANAGED_BY: names.MANAGER}
    if uid:
        owner = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": cluster.name,
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        metadata["ownerReferences"] = [owner]
    return metadata
