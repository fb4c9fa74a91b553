"""The resource service (RFC 28, RFC 44): rank 0 keeps the inventory, and every broker reports its node's resources."""

from __future__ import annotations

from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import ModuleContext
from headrace.engine.modules.resource.follower import Follower, node_of_file

NAME = "resource"

# Do not verify R against nodes; treat every broker as online, for tests; keep all events, which is always the case.
_ARGS = ("noverify", "monitor-force-up", "notruncate")


def load(ctx: ModuleContext, args: list[str]) -> None:
    only(ctx, args, known=_ARGS)
    if ctx.rank == 0:
        # Imported here, so that the other ranks need no memory for it.
        from headrace.engine.modules.resource.leader import Leader

        # Rank 0 counts its node later, when an invalid topology file could not fail the load any more.
        node_of_file()
        Leader(ctx, args)
    else:
        Follower(ctx)
