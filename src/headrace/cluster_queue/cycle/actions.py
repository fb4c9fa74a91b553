"""The writes that the cycle asks for, in order, about one workload. Data only; `controller` carries them out.

Each names what it is about by uid or version, so that one that comes too late is refused and changes nothing. What is
to be done follows from what is observed, so a write that is lost is asked for again.
"""

from __future__ import annotations

from typing import Any, Union

from msgspec import Struct

from headrace.k8s.objects.kinds import Kind
from headrace.k8s.runtime.events import Report

Object = dict[str, Any]


class Create(Struct, frozen=True):
    """Make a FluxJob."""

    body: Object


class Publish(Struct, frozen=True):
    """Merge `status` into that of an object, if it still is of the version that was seen."""

    kind: Kind
    item: Object
    status: Object


class Change(Struct, frozen=True):
    """JSON merge patch of the object with this uid."""

    kind: Kind
    item: Object
    body: Object


class PatchPod(Struct, frozen=True):
    """JSON patch (RFC 6902) of a pod, whose first operations test that it is as it was seen."""

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
    """An Event about an object of a kind. `before` is what its name follows from: the same is told once. `component` is
    who reports it, "" for this program.
    """

    kind: Kind
    item: Object
    before: Object
    report: Report
    component: str = ""


Action = Union[Create, Publish, Change, PatchPod, Bind, Delete, Tell]
