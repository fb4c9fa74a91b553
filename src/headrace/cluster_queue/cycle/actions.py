"""The writes about one workload that the cycle asks for, in order. Pure data.

`controller` carries them out. Each write names its object by uid or version, so a late write is rejected and changes
nothing. The cycle derives the writes from the observed objects, so it asks again for a write that was lost.
"""

from __future__ import annotations

from typing import Any, Union

from msgspec import Struct

from headrace.k8s.objects.kinds import Kind
from headrace.k8s.runtime.events import Report

Object = dict[str, Any]


class Create(Struct, frozen=True):
    """Create a FluxJob."""

    body: Object


class Publish(Struct, frozen=True):
    """Merge `status` into the status of an object, if the object still has the version that was seen."""

    kind: Kind
    item: Object
    status: Object


class Change(Struct, frozen=True):
    """JSON merge patch of the object with this uid."""

    kind: Kind
    item: Object
    body: Object


class PatchPod(Struct, frozen=True):
    """JSON patch (RFC 6902) of a pod. Its first operations test that the pod is unchanged."""

    pod: Object
    operations: tuple[Object, ...]


class Bind(Struct, frozen=True):
    """Bind a pod to a node."""

    pod: Object
    node: str


class Delete(Struct, frozen=True):
    """Delete the object with this uid."""

    kind: Kind
    item: Object


class Tell(Struct, frozen=True):
    """Record an Event about an object of a kind.

    The name of the Event is derived from `before`, so the same Event is recorded once. `component` is the reporter, ""
    for this program.
    """

    kind: Kind
    item: Object
    before: Object
    report: Report
    component: str = ""


Action = Union[Create, Publish, Change, PatchPod, Bind, Delete, Tell]
