"""What `reconcile` wants done about one MiniCluster. Data only; `execute` carries it out in this order.

Each step can be repeated: an operator that dies between two of them is followed by one that starts over and finds the
first done.
"""

from __future__ import annotations

from typing import Any, Union

from msgspec import Struct

from .api import Kind

Object = dict[str, Any]


class MakeSecret(Struct, frozen=True):
    """Make the MiniCluster's Secret with fresh keys, unless it is there."""

    name: str


class Create(Struct, frozen=True):
    """Make an object. One of its name that is somebody else's is left alone and reported as taken."""

    kind: Kind
    body: Object


class Apply(Struct, frozen=True):
    """Server-side apply of the object of this uid; none is made."""

    kind: Kind
    name: str
    uid: str
    body: Object


class Patch(Struct, frozen=True):
    """JSON merge patch of the object of this uid."""

    kind: Kind
    name: str
    uid: str
    body: Object


class Delete(Struct, frozen=True):
    kind: Kind
    name: str
    uid: str
    propagation: str = "Background"


class Tell(Struct, frozen=True):
    """A request to the lead over its channel; the answer comes as a change of `Observed.lead`."""

    request: Object


class Report(Struct, frozen=True):
    """A Kubernetes Event about the MiniCluster: `kind` is Normal or Warning."""

    kind: str
    reason: str
    message: str


Step = Union[MakeSecret, Create, Apply, Patch, Delete, Tell]


class Actions(Struct, frozen=True, kw_only=True):
    """`notices` are Events about the steps, told before them: afterwards, a crash in between would have them forgotten.
    `events` are about changes of the status, told before it is written. `status` is the whole status to write, None to
    leave it. `again_at` is when to look again though nothing changed (seconds since the epoch). `look_for_warnings`
    asks for the Events of the Jobs and pods.
    """

    steps: tuple[Step, ...] = ()
    notices: tuple[Report, ...] = ()
    events: tuple[Report, ...] = ()
    status: Object | None = None
    again_at: float | None = None
    look_for_warnings: bool = False
