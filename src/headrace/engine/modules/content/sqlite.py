"""The content-sqlite module: loads and removes the store behind the content service by its name in Flux.

The store itself is part of the content service (service.py), which keeps blobs in memory without a `statedir`. While
this module is loaded, a flush has a backing store and succeeds (RFC 10).
"""

from __future__ import annotations

from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import ModuleContext

NAME = "content-sqlite"
# Arguments of flux-core's module; here the database has its own journal and is always synced.
_WITHOUT_EFFECT = ("journal_mode", "preallocate", "synchronous", "truncate")


async def load(ctx: ModuleContext, args: list[str]) -> None:
    """Raises RpcError: EINVAL for an unknown argument, ENOSYS without the content service, EBUSY with another store."""
    only(ctx, args, without_effect=_WITHOUT_EFFECT)
    ctx.service(NAME, {})
    await ctx.rpc("content.register-backing", {"name": NAME})
    ctx.on_unload(lambda: ctx.call("content.unregister-backing", {}))
