"""The writes of a controller, and those that bring an owner's objects to their desired state. Pure.

Each write concerns one object; `writes` carries them out in order. Each can be repeated, so a process that replaces an
interrupted one starts again from the first. Desired objects that are absent are created, objects that differ are
applied, and objects that are no longer desired are deleted. An object differs if it was made from another desired
state, according to its fingerprint, or if somebody has changed a field of it. Fields that the desired state leaves to
the API server are not compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Union

from msgspec import Struct

from ..objects.kinds import Kind
from .events import Report

Object = dict[str, Any]


class Create(Struct, frozen=True):
    """Create an object. If an object of that name has another owner, `writes` raises Taken."""

    kind: Kind
    body: Object


class Apply(Struct, frozen=True):
    """Server-side apply of the object with this uid; a missing object is not created."""

    kind: Kind
    name: str
    uid: str
    body: Object


class Patch(Struct, frozen=True):
    """JSON merge patch of the object with this uid."""

    kind: Kind
    name: str
    uid: str
    body: Object


class Delete(Struct, frozen=True):
    kind: Kind
    name: str
    uid: str
    propagation: str = "Background"


Step = Union[Create, Apply, Patch, Delete]


class Observed(Struct, frozen=True):
    """An object, and the objects that it controls, by kind ("ConfigMap") and name."""

    item: Object
    owned: dict[str, dict[str, Object]]


class Outcome(Struct, frozen=True, kw_only=True):
    """The decision of a reconcile.

    `objects` are all objects that the reconciled object should own. `status` is the whole status, None to leave it
    unchanged. `events` are about the change of the status. `requeue_at` is the time of the next reconcile if nothing
    changes (seconds since the epoch).
    """

    objects: tuple[Object, ...] = ()
    status: Object | None = None
    events: tuple[Report, ...] = ()
    requeue_at: float | None = None


def steps_towards(
    observed: Observed, objects: tuple[Object, ...], owner: Kind, kinds: Mapping[str, Kind], annotation: str
) -> Iterator[Step]:
    """The steps that turn the objects that `observed.item`, of the kind `owner`, owns into `objects`.

    `kinds` are the observed kinds by name; another kind in `objects` raises ValueError. `annotation` is the name of the
    annotation with an object's fingerprint.
    """
    wanted = {(body["kind"], body["metadata"]["name"]): body for body in objects}
    for (kind, name), body in wanted.items():
        if kind not in kinds:
            raise ValueError(f"{kind}/{name} is wanted, but only {', '.join(kinds)} are observed")
        found = observed.owned[kind].get(name)
        made = _owned(body, observed.item, owner, annotation)
        if found is None:
            yield Create(kinds[kind], made)
        elif not _covers(found, made):
            yield Apply(kinds[kind], name, found["metadata"]["uid"], made)
    for kind, items in observed.owned.items():
        for name, found in items.items():
            if (kind, name) not in wanted and not found["metadata"].get("deletionTimestamp"):
                yield Delete(kinds[kind], name, found["metadata"]["uid"])


def _owned(body: Object, item: Object, owner: Kind, annotation: str) -> Object:
    meta = item["metadata"]
    reference = {
        **{"apiVersion": owner.api_version, "kind": owner.kind, "name": meta["name"], "uid": meta["uid"]},
        **{"controller": True, "blockOwnerDeletion": True},
    }
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    fingerprint = hashlib.sha256(text.encode()).hexdigest()[:32]
    annotations = {**(body["metadata"].get("annotations") or {}), annotation: fingerprint}
    return {**body, "metadata": {**body["metadata"], "annotations": annotations, "ownerReferences": [reference]}}


def _covers(found: Any, wanted: Any) -> bool:
    """True if `found` has all that `wanted` has, except apiVersion and kind, which objects of a list lack."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            _covers(found.get(key), value) for key, value in wanted.items() if key not in ("apiVersion", "kind")
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(_covers, found, wanted))
    return bool(found == wanted)
