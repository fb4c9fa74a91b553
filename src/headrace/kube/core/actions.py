"""The actions that `reconcile` returns for one MiniCluster. Data only; `execute` carries out the steps in this order.

Each step can be repeated, so that an operator that ends between two of them is followed by one that starts again from
the first.
"""

from __future__ import annotations

from typing import Any, Union

from msgspec import Struct

from ..runtime.api import Kind

Object = dict[str, Any]


class MakeSecret(Struct, frozen=True):
    """Make the MiniCluster's Secret with fresh keys, unless it exists."""

    name: str


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


class Tell(Struct, frozen=True):
    """A request to the lead over its channel; the response is a later change of `Observed.lead`."""

    request: Object


class Report(Struct, frozen=True):
    """A Kubernetes Event about the MiniCluster: `kind` is Normal or Warning."""

    kind: str
    reason: str
    message: str


Step = Union[MakeSecret, Create, Apply, Patch, Delete, Tell]


class Actions(Struct, frozen=True, kw_only=True):
    """`notices` are Events about the steps, written before them, so that a crash in between does not lose them.
    `events` are about changes of the status, written before the status. `status` is the whole status to write, None to
    leave it. `requeue_at` is the time of the next reconcile if nothing changes (seconds since the epoch). With
    `read_events` the Events of the Jobs and pods are read.
    """

    steps: tuple[Step, ...] = ()
    notices: tuple[Report, ...] = ()
    events: tuple[Report, ...] = ()
    status: Object | None = None
    requeue_at: float | None = None
    read_events: bool = False
