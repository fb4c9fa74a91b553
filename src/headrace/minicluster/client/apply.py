"""Server-side apply of users' documents of any kind, and the conflicts that are resolved for the user.

All our commands write as one field manager. The API server still separates a field that `scale` has set from one that
`apply` has set (another operation, another subresource), and treats kubectl's commands as other managers, so it reports
conflicts between commands of the same user. These conflicts are resolved here; a field of any other manager, such as an
autoscaler, is changed only if the user says so. Source: Kubernetes documentation, "Server-Side Apply", conflicts.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from headrace.k8s.objects.kinds import MINICLUSTERS, Kind
from headrace.k8s.runtime.api import Api, ApiError

from .clusters import EndedError, ended

Object = dict[str, Any]

# The field manager of our commands, and the prefix of kubectl's (kubectl-client-side-apply, kubectl-edit ...).
FIELD_MANAGER = "headrace-mini"
KUBECTL = "kubectl"
_CONFLICT = re.compile(r'conflict with "([^"]*)"')
# Managers that users know by another name.
_KNOWN = {
    "kube-controller-manager": "kube-controller-manager (a HorizontalPodAutoscaler)",
    "headrace-operator": "headrace-operator (spec.autoscale)",
}


class Conflict(NamedTuple):
    """A field of another manager, with its path ("spec.size")."""

    field: str
    manager: str


class ConflictError(Exception):
    """Fields of a document belong to another manager; the message names each field and its manager."""


class Applied(NamedTuple):
    """The stored object, and the fields that were taken over from kubectl's managers."""

    stored: Object
    taken_over: tuple[Conflict, ...] = ()


async def apply(api: Api, document: Object, namespace: str, force: bool) -> Applied:
    """Server-side apply of one document of any kind. `namespace` is used for a document without one.

    Raises ConflictError if another manager than kubectl has set one of its fields and `force` is false; ApiError.
    """
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise ApiError(400, "Invalid", f"{document.get('kind', 'a document')} has no metadata.name")
    kind, namespaced = await resource(api, str(document.get("apiVersion", "")), str(document.get("kind", "")))
    where = (metadata.get("namespace") or namespace) if namespaced else ""
    body = {**document, "metadata": {**metadata, **({"namespace": where} if where else {})}}
    try:
        return Applied(await api.apply(kind, where, metadata["name"], body, force))
    except ApiError as exc:
        found = conflicts(exc.details) if exc.status == 409 else []
        if not found:
            raise
    foreign = [one for one in found if one.manager != FIELD_MANAGER and not one.manager.startswith(KUBECTL)]
    if foreign:
        raise ConflictError(_told(f"{kind.kind}/{metadata['name']}", foreign))
    stored = await api.apply(kind, where, metadata["name"], body, True)
    return Applied(stored, tuple(one for one in found if one.manager != FIELD_MANAGER))


async def check(api: Api, documents: list[Object], namespace: str) -> None:
    """What can be known before the first document is sent: that all kinds exist, and that no MiniCluster of these has
    ended, which would not run again. Raises ApiError, EndedError.
    """
    for document in documents:
        kind, _ = await resource(api, str(document.get("apiVersion", "")), str(document.get("kind", "")))
        metadata = document.get("metadata")
        if kind is MINICLUSTERS and isinstance(metadata, dict) and metadata.get("name"):
            try:
                stored = await api.get(kind, metadata.get("namespace") or namespace, metadata["name"])
            except ApiError as exc:
                # Without the right to read (403), the response to the write tells the user what is wrong.
                if exc.status not in (403, 404):
                    raise
            else:
                if ended(stored):
                    raise EndedError(ended(stored))


def conflicts(details: Object) -> list[Conflict]:
    """The conflicts in the `details` of a Status; [] for a Status about anything else."""
    found = []
    for cause in details.get("causes") or ():
        told = _CONFLICT.match(cause.get("message") or "")
        if cause.get("reason") == "FieldManagerConflict" and told:
            found.append(Conflict((cause.get("field") or "").removeprefix("."), told[1]))
    return found


def _told(what: str, foreign: list[Conflict]) -> str:
    fields = "; ".join(f"{one.field} is set by {_KNOWN.get(one.manager, one.manager)}" for one in foreign)
    them = "them" if len(foreign) > 1 else "it"
    return f"{what}: {fields}; leave {them} out of the file, or take {them} over with --force"


async def resource(api: Api, api_version: str, kind: str) -> tuple[Kind, bool]:
    """The resource of a kind, and whether it has namespaces, from the API server's discovery. Raises ApiError."""
    if (api_version, kind) == (MINICLUSTERS.api_version, MINICLUSTERS.kind):
        return MINICLUSTERS, True
    group, _, version = api_version.rpartition("/")
    try:
        found = await api.get(Kind(group, version, "", kind), "", "")
    except ApiError as exc:
        if exc.status != 404:
            raise
        found = {}
    for one in found.get("resources") or ():
        if one.get("kind") == kind and "/" not in one["name"]:
            return Kind(group, version, one["name"], kind), bool(one.get("namespaced"))
    raise ApiError(404, "NotFound", f"the API server knows no {kind} of {api_version or 'no version'}")
