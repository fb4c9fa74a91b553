"""The content-sqlite module, which registers as the backing store of the content service, as in Flux.

The store itself is a part of the content service (service.py), which keeps blobs in memory if there is no `statedir`.
While this module is loaded, a flush has a backing store and succeeds (RFC 10).
"""

from __future__ import annotations

from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import ModuleContext

NAME = "content-sqlite"
# Arguments of flux-core's module. They have no effect here, because the database always uses a journal and is synced.
_WITHOUT_EFFECT = ("journal_mode", "preallocate", "synchronous", "truncate")


async def load(ctx: ModuleContext, args: list[str]) -> None:
    """Register the backing store.

    Raises RpcError(EINVAL) for an unknown argument, RpcError(ENOSYS) without the content service, and RpcError(EBUSY)
    if another store is registered.
    """
    only(ctx, args, without_effect=_WITHOUT_EFFECT)
    ctx.service(NAME, {})
    await ctx.rpc("content.register-backing", {"name": NAME})
    ctx.on_unload(lambda: ctx.call("content.unregister-backing", {}))
