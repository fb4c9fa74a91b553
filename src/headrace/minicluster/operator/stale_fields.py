"""Stale fields: those that a stored MiniCluster keeps although the document applied to it no longer has them.

Server-side apply removes the fields that the same manager applied before. Fields that another manager set stay, as of
`kubectl apply` or `headrace mini scale`. Sources: Kubernetes documentation, "Server-Side Apply", field management;
FieldsV1 of meta/v1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..api.problems import InvalidMiniCluster
from ..api.validate import check
from ..client.apply import FIELD_MANAGER, KUBECTL

Object = dict[str, Any]
_Path = tuple[str, ...]


class StaleFields(NamedTuple):
    """Paths of stale fields ("spec.tasks"), the managers that set them, and the merge patch (RFC 7396) that removes
    them."""

    fields: tuple[str, ...]
    managers: tuple[str, ...]
    patch: Object

    def __str__(self) -> str:
        verb = "stays" if len(self.fields) == 1 else "stay"
        return f"{', '.join(self.fields)} {verb} as set by {', '.join(self.managers)}, though not in the file"


def find_stale_fields(stored: Object, document: Object) -> StaleFields | None:
    """The stale fields of `spec` after `document` was applied; None without any. Fields without an effect, such as
    defaults, are ignored.
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
    """The paths that a FieldsV1 names. Items of lists are left out: a merge patch removes lists as a whole."""
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
    """Whether the field makes the MiniCluster a different one; the API server stores defaults, too."""
    document = json.loads(json.dumps({key: stored[key] for key in ("apiVersion", "kind", "spec")}))
    document["metadata"] = {"name": stored["metadata"]["name"]}
    try:
        before = check(document)
        inside = document
        for part in path[:-1]:
            inside = inside[part]
        del inside[path[-1]]
        return check(document) != before
    except (InvalidMiniCluster, KeyError):
        return False
