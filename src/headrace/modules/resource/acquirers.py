"""What a load of the resource module leaves to the next one in the same broker: the scheduler that acquired from it.

A scheduler acquires once (RFC 28). Without this it would go on with what it knew when the module was taken away, and
start jobs on nodes that were drained since.
"""

from __future__ import annotations

import errno
from typing import Any, NamedTuple

from headrace.broker.module.context import ModuleContext
from headrace.broker.module.streams import StreamSet
from headrace.spec.message import Message
from headrace.spec.rset import ResourceSet


class Acquirers(NamedTuple):
    """Who acquired `resources`, and which ranks (a bit set) they take for `usable`."""

    ctx: ModuleContext
    acquirers: list[Message]
    resources: dict[str, Any]
    usable: int

    def refuse(self) -> None:
        """They must acquire anew."""
        for msg in self.acquirers:
            self.ctx.respond_error(msg, errno.ENOSYS, "resource was unloaded")

    def save(self, path: str) -> None:
        """Nobody can go on with it in another process."""
        self.refuse()


def leave(ctx: ModuleContext, acquirers: StreamSet, resources: ResourceSet, usable: int) -> None:
    """Take the acquirers out of a module that ends."""
    kept = ctx.broker.modules.kept
    if kept is None:
        return
    messages = list(acquirers)
    for msg in messages:
        acquirers.remove(msg)
    kept[ctx.name] = Acquirers(ctx, messages, _without_end(resources), usable)


def adopt(ctx: ModuleContext, acquirers: StreamSet, resources: ResourceSet) -> Acquirers | None:
    """Give a new load of the module the acquirers of the last one; None without any who know these resources."""
    kept = ctx.broker.modules.kept
    left = kept.pop(ctx.name, None) if kept else None
    if not isinstance(left, Acquirers):
        return None
    if left.resources != _without_end(resources) or len(acquirers):
        left.refuse()
        return None
    for msg in left.acquirers:
        # Who has gone meanwhile could tell nobody.
        if ctx.broker.router.local_peer(msg) is not None:
            acquirers.add(msg)
    return left if len(acquirers) else None


def _without_end(rset: ResourceSet) -> dict[str, Any]:
    return rset.replace(expiration=0.0).to_obj()
