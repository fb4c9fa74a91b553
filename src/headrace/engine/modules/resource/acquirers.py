"""Open `resource.acquire` requests (RFC 28), which a removed resource module leaves to the next load.

A scheduler acquires resources only once. If the next load did not adopt the request, the scheduler would get no more
updates, and would start jobs on nodes that have been drained since.
"""

from __future__ import annotations

import errno
from typing import Any, NamedTuple

from headrace.engine.broker.module.context import ModuleContext
from headrace.engine.broker.module.streams import StreamSet
from headrace.formats.spec.message import Message
from headrace.formats.spec.rset import ResourceSet


class Acquirers(NamedTuple):
    """The open requests for `resources`, and the ranks (a bit set) that were last reported as `usable`."""

    ctx: ModuleContext
    acquirers: list[Message]
    resources: dict[str, Any]
    usable: int

    def refuse(self) -> None:
        """End the requests with an error, so that schedulers acquire resources again."""
        for msg in self.acquirers:
            self.ctx.respond_error(msg, errno.ENOSYS, "resource was unloaded")

    def save(self, path: str) -> None:
        """Refuse the requests: a module in another process cannot adopt them."""
        self.refuse()


def leave(ctx: ModuleContext, acquirers: StreamSet, resources: ResourceSet, usable: int) -> None:
    """Leave the acquirers of a module that is being removed to its next load."""
    kept = ctx.kept
    if kept is None:
        return
    messages = list(acquirers)
    for msg in messages:
        acquirers.remove(msg)
    kept[ctx.name] = Acquirers(ctx, messages, _without_end(resources), usable)


def adopt(ctx: ModuleContext, acquirers: StreamSet, resources: ResourceSet) -> Acquirers | None:
    """Take over the acquirers of the last load; None if there are none or the resources have changed."""
    kept = ctx.kept
    predecessor = kept.pop(ctx.name, None) if kept else None
    if not isinstance(predecessor, Acquirers):
        return None
    if predecessor.resources != _without_end(resources) or len(acquirers):
        predecessor.refuse()
        return None
    for msg in predecessor.acquirers:
        # The sender may have disconnected while there was no module to cancel its request.
        if ctx.is_here(msg):
            acquirers.add(msg)
    return predecessor if len(acquirers) else None


def _without_end(rset: ResourceSet) -> dict[str, Any]:
    return rset.replace(expiration=0.0).to_obj()
