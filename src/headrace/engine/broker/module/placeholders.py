"""Modules of Flux that a script may load although they have nothing to do here.

Followers hold no state, so services for the whole instance run on rank 0 alone, and some modules of Flux have no
equivalent. Scripts that start an instance load these modules on the broker they run on, and that works: the module is
listed and can be removed. It provides no service, so its requests are routed to the broker that does.
"""

from __future__ import annotations

import logging

from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import ModuleContext

# Modules without work on a follower, with the reason.
_LEADER_ALONE = {
    "barrier": "the leader counts who enters",
    "content": "blobs are kept on the leader, there is no cache in between",
    "content-sqlite": "the leader stores blobs",
    "job-info": "the leader's job manager has the logs",
    "job-ingest": "the leader validates and numbers jobs, many in one go",
    "job-list": "the leader lists jobs",
    "job-manager": "there is one job manager",
    "kvs": "lookups and commits go to the leader, there is no cache in between",
    "kvs-watch": "watchers are kept where commits are made",
}
# Modules without work on any broker, with the reason and the arguments that are accepted without effect.
_NOWHERE = {
    "content-files": ("blobs are kept by the content service itself", ("testing",)),
}


def has(name: str, rank: int) -> bool:
    """True if the module `name` has nothing to do in the broker of `rank`."""
    return name in _NOWHERE or (rank > 0 and name in _LEADER_ALONE)


def load(ctx: ModuleContext, args: list[str]) -> None:
    """Do nothing. Raises RpcError(EINVAL) for unknown arguments.

    A follower accepts any arguments, since the leader's module checks them.
    """
    if ctx.rank and ctx.name in _LEADER_ALONE:
        why = _LEADER_ALONE[ctx.name]
    else:
        why, known = _NOWHERE.get(ctx.name, ("it has another name", ()))
        only(ctx, args, without_effect=known)
    ctx.log(logging.DEBUG, f"nothing to do: {why}")
