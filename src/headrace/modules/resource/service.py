"""The resource service (RFC 28, RFC 44): rank 0 keeps the inventory, and each broker tells what its node has."""

from __future__ import annotations

from headrace.broker.module.args import only
from headrace.broker.module.context import ModuleContext
from headrace.modules.resource.follower import Follower, node_of_file

NAME = "resource"

# Take R's word for what nodes have; take every broker for online, as tests do; keep all events, which is always so.
_ARGS = ("noverify", "monitor-force-up", "notruncate")


def load(ctx: ModuleContext, args: list[str]) -> None:
    only(ctx, args, known=_ARGS)
    if ctx.rank == 0:
        # Not in the memory of all the others.
        from headrace.modules.resource.leader import Leader

        # Rank 0 counts its node later, when a file that cannot be read would no longer fail the load.
        node_of_file()
        Leader(ctx, args)
    else:
        Follower(ctx)
