"""The methods that every module has (RFC 5): ping, stats-get, stats-clear, rusage and debug."""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from headrace.engine.broker.answers import RpcError
from headrace.engine.broker.module.privacy import refuse_if_hidden
from headrace.formats.spec.message import Message

_RUSAGE_OF = {
    "self": resource.RUSAGE_SELF,
    "children": resource.RUSAGE_CHILDREN,
    "thread": resource.RUSAGE_THREAD,
}


class Served(Protocol):
    """The part of a module's context that default methods use."""

    debug: int

    @property
    def config(self) -> dict[str, Any]: ...
    @property
    def rank(self) -> int: ...
    def respond(self, msg: Message, obj: Mapping[str, Any] | None = None) -> None: ...


class DefaultMethods:
    """The default methods of one module, and its statistics. `route` is the module's address.

    `for_guests` and `for_owner` have the handlers by method.
    """

    def __init__(self, ctx: Served, route: bytes) -> None:
        self._ctx = ctx
        self._route = route
        self.stats_hooks: list[Callable[[], dict[str, Any]]] = []
        self.clear_hooks: list[Callable[[], None]] = []
        self.for_guests = {"ping": self._ping, "stats-get": self._stats_get}
        self.for_owner = {"stats-clear": self._stats_clear, "rusage": self._rusage, "debug": self._debug}

    def stats(self) -> dict[str, Any]:
        body: dict[str, Any] = {}
        for hook in self.stats_hooks:
            body.update(hook())
        return body

    def clear_stats(self) -> None:
        for hook in self.clear_hooks:
            hook()

    def _ping(self, msg: Message) -> None:
        body = dict(msg.obj or {})
        body["route"] = "!".join(route.decode("ascii", "replace")[:8] for route in [*msg.routes, self._route])
        body.update(userid=msg.userid, rolemask=msg.rolemask, rank=self._ctx.rank)
        self._ctx.respond(msg, body)

    def _stats_get(self, msg: Message) -> None:
        refuse_if_hidden(self._ctx, msg)
        self._ctx.respond(msg, self.stats())

    def _stats_clear(self, msg: Message) -> None:
        self.clear_stats()
        self._ctx.respond(msg)

    def _rusage(self, msg: Message) -> None:
        who = (msg.obj or {}).get("who") or "self"
        if who not in _RUSAGE_OF:
            raise RpcError(errno.EINVAL, f"rusage of {who!r}: use {', '.join(_RUSAGE_OF)}")
        usage = resource.getrusage(_RUSAGE_OF[who])
        names = ("utime", "stime", "maxrss", "minflt", "majflt", "inblock", "oublock", "nvcsw", "nivcsw")
        self._ctx.respond(msg, {name: getattr(usage, f"ru_{name}") for name in names})

    def _debug(self, msg: Message) -> None:
        self._ctx.respond(msg, self.set_debug(msg.obj or {}))

    def set_debug(self, body: dict[str, Any]) -> dict[str, Any]:
        """Handle a debug request `{op, flags}`; returns the response. Raises RpcError(EPROTO)."""
        flags = body.get("flags") or 0
        op = body.get("op") or ""
        if op == "setbit":
            self._ctx.debug |= flags
        elif op == "clrbit":
            self._ctx.debug &= ~flags
        elif op == "set":
            self._ctx.debug = flags
        elif op == "clr":
            self._ctx.debug = 0
        elif op:
            raise RpcError(errno.EPROTO, f"debug: unknown op {op}")
        return {"flags": self._ctx.debug}
