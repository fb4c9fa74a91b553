"""The actions that `reconcile` returns for one MiniCluster, and the executor of their steps.

Each step is idempotent: if the operator ends between two steps, the next operator starts again from the first. Steps
write objects (`runtime.writes`), create the Secret with fresh keys, or send a request to the lead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union

from msgspec import Struct

from headrace.k8s.objects.kinds import SECRETS, Kind
from headrace.k8s.runtime.events import Report
from headrace.k8s.runtime.steps import Create
from headrace.k8s.runtime.steps import Step as ObjectStep
from headrace.k8s.runtime.writes import Writer, Writes

from . import names

Object = dict[str, Any]


class MakeSecret(Struct, frozen=True):
    """Make the MiniCluster's Secret with fresh keys, unless it exists."""

    name: str


class LeadRequest(Struct, frozen=True):
    """A request to the lead over its channel. The response changes `Observed.lead` later."""

    request: Object


Step = Union[MakeSecret, ObjectStep, LeadRequest]


class Actions(Struct, frozen=True, kw_only=True):
    """The result of one reconcile.

    `notices` are Events about the steps. They are written before the steps, so that a crash does not lose them.
    `events` are Events about changes of the status, and are written before the status. `status` is the whole status to
    write; None if it has not changed. `requeue_at` is the time of the next reconcile if nothing changes (seconds since
    the epoch). `read_events`: the Events of the Jobs and pods must be read.
    """

    steps: tuple[Step, ...] = ()
    notices: tuple[Report, ...] = ()
    events: tuple[Report, ...] = ()
    status: Object | None = None
    requeue_at: float | None = None
    read_events: bool = False


class Executor:
    """Carries out the steps for clusters of one `kind`.

    `seen` is called with each object in a response. `ask_lead` sends a request to the lead. `secret` returns the body
    of a cluster's Secret with fresh keys.
    """

    def __init__(
        self, api: Writer, kind: Kind, seen: Callable[[Kind, Object], None], ask_lead: Callable[[str, Object], None],
        secret: Callable[[Object], Object],
    ) -> None:  # fmt: skip
        self.writes = Writes(api, kind, seen, _is_made_by_us)
        self._ask_lead = ask_lead
        self._secret = secret

    async def carry_out(self, cluster: Object, steps: tuple[Step, ...]) -> None:
        """Carry out the steps in order; stop at the first failure. Raises Taken, ApiError, Unreachable."""
        for step in steps:
            if isinstance(step, MakeSecret):
                await self.writes.carry_out(cluster, Create(SECRETS, self._secret(cluster)))
            elif isinstance(step, LeadRequest):
                self._ask_lead(cluster["metadata"]["uid"], step.request)
            else:
                await self.writes.carry_out(cluster, step)


def _is_made_by_us(item: Object) -> bool:
    """Whether this operator made the object.

    The owner does not show it: the Flux Operator sets the same one.
    """
    return (item["metadata"].get("labels") or {}).get(names.MANAGED_BY) == names.MANAGER
