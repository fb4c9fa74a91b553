"""Modules of Flux that a script may load although they have nothing to do here.

Followers hold no state, so what serves the whole instance runs on rank 0 alone; and some of what Flux has as modules
is done elsewhere or not at all. Scripts that start such an instance load them on the broker they run on: that works,
the module is listed, can be removed, and provides no service, so that requests go on to the broker that has it.
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
    """Whether the module `name` has nothing to do in the broker of `rank`."""
    return name in _NOWHERE or (rank > 0 and name in _LEADER_ALONE)


def load(ctx: ModuleContext, args: list[str]) -> None:
    """Do nothing. Raises RpcError(EINVAL) for arguments nobody knows; a follower leaves that to the leader's module."""
    if ctx.rank and ctx.name in _LEADER_ALONE:
        why = _LEADER_ALONE[ctx.name]
    else:
        why, known = _NOWHERE.get(ctx.name, ("it has another name", ()))
        only(ctx, args, without_effect=known)
    ctx.log(logging.DEBUG, f"nothing to do: {why}")
