"""Server-side apply of documents of any kind, resolution of conflicts, and stale fields.

All our commands write as one field manager. But the API server distinguishes fields set by `scale` from fields set by
`apply` (another operation, another subresource), and treats kubectl's commands as other managers. So it reports
conflicts between commands of the same user, which this module resolves. A field of any other manager, such as an
autoscaler, is changed only if the user forces it.

A stale field is a field of a stored MiniCluster that the applied document no longer has. Server-side apply removes only
fields that the same manager applied before. Fields set by another manager, for example by `kubectl apply` or `headrace
mini scale`, stay. Sources: Kubernetes documentation, "Server-Side Apply"; FieldsV1 of meta/v1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from headrace.k8s.objects.kinds import MINICLUSTERS, Kind
from headrace.k8s.runtime.api import Api, ApiError

from ..api import validate
from ..api.fields import InvalidMiniCluster
from .clusters import EndedError, ended

Object = dict[str, Any]
_Path = tuple[str, ...]

# The field manager of our commands, and the prefix of kubectl's managers (kubectl-client-side-apply, kubectl-edit ...).
FIELD_MANAGER = "headrace-mini"
KUBECTL = "kubectl"
_CONFLICT = re.compile(r'conflict with "([^"]*)"')
# The names by which users know some managers.
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
    """The stored object, and the fields whose ownership was taken over from kubectl's managers."""

    stored: Object
    taken_over: tuple[Conflict, ...] = ()


async def apply(api: Api, document: Object, namespace: str, force: bool) -> Applied:
    """Server-side apply of one document of any kind.

    `namespace` is used for a document without a namespace. Raises ConflictError if a manager other than kubectl has set
    one of its fields and `force` is false. Raises ApiError.
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
        raise ConflictError(_refusal(f"{kind.kind}/{metadata['name']}", foreign))
    stored = await api.apply(kind, where, metadata["name"], body, True)
    return Applied(stored, tuple(one for one in found if one.manager != FIELD_MANAGER))


async def check(api: Api, documents: list[Object], namespace: str) -> None:
    """Check, before anything is sent, that all kinds exist and none of the MiniClusters has ended.

    A MiniCluster that has ended would not run again. Raises ApiError, EndedError.
    """
    for document in documents:
        kind, _ = await resource(api, str(document.get("apiVersion", "")), str(document.get("kind", "")))
        metadata = document.get("metadata")
        if kind is MINICLUSTERS and isinstance(metadata, dict) and metadata.get("name"):
            try:
                stored = await api.get(kind, metadata.get("namespace") or namespace, metadata["name"])
            except ApiError as exc:
                # Without the right to read (403), the response to the write reports problems to the user.
                if exc.status not in (403, 404):
                    raise
            else:
                if ended(stored):
                    raise EndedError(ended(stored))


def conflicts(details: Object) -> list[Conflict]:
    """The conflicts in the `details` of a Status; [] for a Status about another error."""
    found = []
    for cause in details.get("causes") or ():
        match = _CONFLICT.match(cause.get("message") or "")
        if cause.get("reason") == "FieldManagerConflict" and match:
            found.append(Conflict((cause.get("field") or "").removeprefix("."), match[1]))
    return found


def _refusal(what: str, foreign: list[Conflict]) -> str:
    fields = "; ".join(f"{one.field} is set by {_KNOWN.get(one.manager, one.manager)}" for one in foreign)
    them = "them" if len(foreign) > 1 else "it"
    return f"{what}: {fields}; remove {them} from the file, or use --force to take {them} over"


async def resource(api: Api, api_version: str, kind: str) -> tuple[Kind, bool]:
    """The resource of a kind, and whether it is namespaced, from the API server's discovery.

    Raises ApiError.
    """
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
    raise ApiError(404, "NotFound", f"the API server has no kind {kind} in apiVersion {api_version or 'none'}")


class StaleFields(NamedTuple):
    """Stale fields ("spec.tasks"), their managers, and the merge patch (RFC 7396) to remove them."""

    fields: tuple[str, ...]
    managers: tuple[str, ...]
    patch: Object

    def __str__(self) -> str:
        verb = "stays" if len(self.fields) == 1 else "stay"
        return f"{', '.join(self.fields)} {verb} as set by {', '.join(self.managers)}, though not in the file"


def find_stale_fields(stored: Object, document: Object) -> StaleFields | None:
    """The stale fields of `spec` after `document` was applied; None if there are none.

    Fields without an effect, such as fields at their defaults, are ignored.
    """
    found: dict[_Path, str] = {}
    for entry in stored["metadata"].get("managedFields") or ():
        manager = entry.get("manager", "")
        ours = manager == FIELD_MANAGER and entry.get("operation") != "Apply"
        if ours or manager.startswith(KUBECTL):
            owned = (entry.get("fieldsV1") or {}).get("f:spec") or {}
            found |= {path: manager for path in _leaves(owned, ("spec",)) if not _has(document, path)}
    paths = [path for path in found if _matters(stored, path)]
    if not paths:
        return None
    patch: Object = {}
    for path in paths:
        inside = patch
        for part in path[:-1]:
            inside = inside.setdefault(part, {})
        inside[path[-1]] = None
    fields = tuple(sorted(".".join(path) for path in paths))
    return StaleFields(fields, tuple(sorted({found[path] for path in paths})), patch)


def removal(stale: StaleFields, namespace: str, name: str) -> str:
    """The kubectl command that removes the fields."""
    return f"kubectl patch minicluster {name} -n {namespace} --type merge -p '{json.dumps(stale.patch)}'"


def _leaves(owned: Object, path: _Path) -> Iterator[_Path]:
    """The paths in a FieldsV1 record.

    Items of lists are omitted, because a merge patch removes a list as a whole.
    """
    for key, inside in owned.items():
        if key.startswith("f:"):
            here = (*path, key[2:])
            if any(one.startswith("f:") for one in inside):
                yield from _leaves(inside, here)
            else:
                yield here


def _has(document: Any, path: _Path) -> bool:
    for part in path:
        if not isinstance(document, dict) or part not in document:
            return False
        document = document[part]
    return True


def _matters(stored: Object, path: _Path) -> bool:
    """Whether the MiniCluster would differ without the field.

    The API server also stores fields at their defaults.
    """
    document = json.loads(json.dumps({key: stored[key] for key in ("apiVersion", "kind", "spec")}))
    document["metadata"] = {"name": stored["metadata"]["name"]}
    try:
        before = validate.check(document)
        inside = document
        for part in path[:-1]:
            inside = inside[part]
        del inside[path[-1]]
        return validate.check(document) != before
    except (InvalidMiniCluster, KeyError):
        return False
