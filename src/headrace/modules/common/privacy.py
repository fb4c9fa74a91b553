"""`access.private-mode`: guests without the role ADMIN see only their own jobs, and no counts of other jobs."""

from __future__ import annotations

import errno

from headrace.broker.module.context import ModuleContext, RpcError
from headrace.spec import message as m
from headrace.spec.message import Message


def is_hidden(ctx: ModuleContext, msg: Message, userid: int | None = None) -> bool:
    """Whether the sender of `msg` must not see jobs of user `userid` (None: of all users)."""
    if msg.rolemask & (m.ROLE_OWNER | m.ROLE_ADMIN) or userid == msg.userid:
        return False
    access = ctx.config.get("access")
    return isinstance(access, dict) and access.get("private-mode") is True


def refuse_if_hidden(ctx: ModuleContext, msg: Message) -> None:
    """Raise RpcError(EPERM) if the sender must not see the jobs of all users."""
    if is_hidden(ctx, msg):
        raise RpcError(errno.EPERM)
