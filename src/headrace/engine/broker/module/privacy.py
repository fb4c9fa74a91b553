"""`access.private-mode`: guests without the role ADMIN see only their own jobs.

They do not see counts of other jobs either. The context of each module refuses them statistics, and the services
enforce the rest.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, Protocol

from headrace.engine.broker.answers import RpcError
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message


class Configured(Protocol):
    """An object with the configuration, such as a module's context."""

    @property
    def config(self) -> dict[str, Any]: ...


def is_hidden(ctx: Configured, msg: Message, userid: int | None = None) -> bool:
    """True if the sender of `msg` must not see jobs of user `userid` (None: of all users)."""
    if msg.rolemask & (m.ROLE_OWNER | m.ROLE_ADMIN) or userid == msg.userid:
        return False
    return is_private(ctx.config)


def is_private(config: dict[str, Any]) -> bool:
    """True if the configuration sets `access.private-mode`."""
    access = config.get("access")
    return isinstance(access, dict) and access.get("private-mode") is True


def refuse_if_hidden(ctx: Configured, msg: Message) -> None:
    """Raise RpcError(EPERM) if the sender must not see the jobs of all users."""
    if is_hidden(ctx, msg):
        raise RpcError(errno.EPERM)


def guarded(ctx: Configured, handler: Callable[[Message], Any]) -> Callable[[Message], Any]:
    """Wrap `handler` to respond EPERM to senders who must not see the jobs of all users."""

    def handle(msg: Message) -> Any:
        refuse_if_hidden(ctx, msg)
        return handler(msg)

    return handle
