"""Kubernetes Events about any object: what a controller did and why, for `kubectl describe`.

Source: core/v1 Event.
"""

from __future__ import annotations

import hashlib
import json
import logging
from typing import Any, Protocol

from msgspec import Struct

from ..objects.kinds import EVENTS, Kind
from ..objects.timestamps import text_of
from .api import ApiError
from .cache import Key, key_of

Object = dict[str, Any]

log = logging.getLogger("headrace.k8s.events")

# The namespace of Events about cluster-scoped objects.
CLUSTER_SCOPED = "default"


class Report(Struct, frozen=True):
    """A Kubernetes Event about an object: `kind` is Normal or Warning."""

    kind: str
    reason: str
    message: str


class Creator(Protocol):
    """The method of `api.Api` that is used here."""

    async def create(self, kind: Kind, namespace: str, body: Object, dry_run: bool = False) -> Object: ...


async def record(api: Creator, kind: Kind, about: Object, event: Report, now: float, component: str) -> None:
    """Write an Event about an object of `kind`. A failure is only logged, and does not fail the reconcile."""
    body = event_body(kind, about, event, now, component)
    try:
        await api.create(EVENTS, body["metadata"]["namespace"], body)
    except ApiError as exc:
        # AlreadyExists: the Event was written before a crash. Forbidden: the namespace is being deleted.
        if exc.status not in (403, 404, 409):
            log.warning("event %s: %s", event.reason, exc, extra=where(kind, key_of(about)))


def where(kind: Kind, key: Key) -> dict[str, str]:
    """Log fields that identify an object of `kind`."""
    return {"namespace": key[0], kind.kind.lower(): key[1]}


def event_body(kind: Kind, about: Object, event: Report, now: float, component: str) -> Object:
    """A core/v1 Event of `component` about an object of `kind`.

    Its name is derived from its content and the object's status, so that a controller that restarts before it has
    written the next status does not write an Event twice.
    """
    meta = about["metadata"]
    identity = json.dumps([meta["uid"], about.get("status"), event.reason, event.message], sort_keys=True)
    moment = text_of(now)
    name = f"{meta['name']}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": name, "namespace": meta.get("namespace") or CLUSTER_SCOPED},
        "involvedObject": {
            **{"apiVersion": kind.api_version, "kind": kind.kind, "name": meta["name"]},
            **{"namespace": meta.get("namespace", ""), "uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
        },
        "type": event.kind,
        "reason": event.reason,
        "message": event.message[:1024],
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
