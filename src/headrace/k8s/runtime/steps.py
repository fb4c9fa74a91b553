"""The writes that a controller asks for, each about one object. Data only; `writes` carries them out in order.

Each can be repeated, so that a process that ends between two of them is followed by one that starts again from the
first.
"""

from __future__ import annotations

from typing import Any, Union

from msgspec import Struct

from ..objects.kinds import Kind

Object = dict[str, Any]


class Create(Struct, frozen=True):
    """Make an object. An object of that name with another owner is not changed, and reported as taken."""

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
