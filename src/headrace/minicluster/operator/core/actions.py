"""The actions that `reconcile` returns for one MiniCluster. Data only; `execute` carries out the steps in this order.

Each step can be repeated, so that an operator that ends between two of them is followed by one that starts again from
the first.
"""

from __future__ import annotations

from typing import Any, Union

from msgspec import Struct

from headrace.k8s.runtime.events import Report
from headrace.k8s.runtime.steps import Step as ObjectStep

Object = dict[str, Any]


class MakeSecret(Struct, frozen=True):
    """Make the MiniCluster's Secret with fresh keys, unless it exists."""

    name: str


class Tell(Struct, frozen=True):
    """A request to the lead over its channel; the response is a later change of `Observed.lead`."""

    request: Object


Step = Union[MakeSecret, ObjectStep, Tell]


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
