"""Broker groups: named sets of ranks (`broker.online` and others), joined on any rank.

A broker is in a group while at least one of its clients or modules has joined it. A client leaves its groups when it
disconnects. Only rank 0 knows all members. A lost subtree leaves every group at once.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable
from typing import Any

from headrace.engine.broker.module.context import EMPTY, Empty, ModuleContext, RpcError
from headrace.engine.broker.tbon.outstanding import sender_of
from headrace.formats.spec.idset import Idset, IdsetError
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.broker import GROUPS

# The most groups with members: any name creates a group.
_MOST = 1024


class Groups:
    """The groups service of a broker. On rank 0, `members` has all groups."""

    def __init__(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.members: dict[str, Idset] = {}
        # The local members by group.
        self._joined: dict[str, set[str]] = {}
        self._watchers = ctx.streams("get")
        ctx.service(
            "groups",
            {"get": self._get, "join": self._join, "leave": self._leave, "update": self._update},
            open=("get",),
            requests=GROUPS,
        )
        ctx.on_disconnect(self._disconnected)
        ctx.on_stats(self._stats)

    def change(self, name: str, add: Iterable[int] = (), remove: Iterable[int] = ()) -> None:
        """Change the members of a group on rank 0. Raises RpcError(EINVAL, ENOSPC)."""
        old = self.members.get(name, Idset())
        new = (old | Idset(add)) - Idset(remove)
        if new == old:
            return
        if new and new.last >= self.ctx.size:
            raise RpcError(errno.EINVAL, f"group {name}: rank {new.last} is not in this instance of {self.ctx.size}")
        if len(self.members) >= _MOST and name not in self.members:
            raise RpcError(errno.ENOSPC, f"group {name}: there are {_MOST} groups already")
        if new:
            self.members[name] = new
        else:
            del self.members[name]
        self.ctx.log(logging.DEBUG, f"{name}: members are {new}" if new else f"{name}: has no members")
        for msg in self._watchers:
            if (msg.obj or {}).get("name") == name:
                self.ctx.respond(msg, {"members": str(new)})

    def _stats(self) -> dict[str, Any]:
        """The members of each group. `broker.torpid` is listed even without members."""
        return {"subtree": {"broker.torpid": "", **{name: str(ranks) for name, ranks in self.members.items()}}}

    def lost(self, ranks: Iterable[int]) -> None:
        """Remove `ranks` from every group."""
        lost = list(ranks)
        for name in list(self.members):
            self.change(name, remove=lost)

    # -- requests

    def _get(self, msg: Message) -> dict[str, Any] | None:
        self._require_leader("get")
        body = {"members": str(self.members.get(_name(msg), Idset()))}
        if not msg.streaming:
            return body
        self._watchers.add(msg)
        self.ctx.respond(msg, body)
        return None

    async def _join(self, msg: Message) -> Empty:
        _require_local(msg)
        name, sender = _name(msg), _sender(msg)
        joined = self._joined.setdefault(name, set())
        if sender in joined:
            raise RpcError(errno.EEXIST, f"requestor is already a member of {name}")
        joined.add(sender)
        try:
            if len(joined) == 1:
                await self._report_change(name, "add")
        except RpcError:
            self._drop(name, sender)
            raise
        return EMPTY

    async def _leave(self, msg: Message) -> Empty:
        _require_local(msg)
        name, sender = _name(msg), _sender(msg)
        if sender not in self._joined.get(name, ()):
            raise RpcError(errno.ENOENT, f"requestor is not a member of {name}")
        if self._drop(name, sender):
            await self._report_change(name, "remove")
        return EMPTY

    def _drop(self, name: str, sender: str) -> bool:
        """Remove a local member. True if it was the last one."""
        joined = self._joined.get(name, set())
        joined.discard(sender)
        if joined:
            return False
        self._joined.pop(name, None)
        return True

    async def _report_change(self, name: str, what: str) -> None:
        """Report to rank 0 that this broker joined or left a group."""
        if self.ctx.rank == 0:
            self.change(name, **{what: [0]})
        else:
            await self.ctx.rpc("groups.update", {"update": {name: {what: str(self.ctx.rank)}}}, nodeid=0)

    def _disconnected(self, sender: str) -> None:
        for name in [name for name, joined in self._joined.items() if sender in joined]:
            if not self._drop(name, sender):
                continue
            if self.ctx.rank == 0:
                self.change(name, remove=[0])
            else:
                self.ctx.call("groups.update", {"update": {name: {"remove": str(self.ctx.rank)}}}, nodeid=0)

    def _update(self, msg: Message) -> Empty:
        """Handle `groups.update {name: {add?: idset, remove?: idset}}`: the changes of a subtree."""
        self._require_leader("update")
        try:
            update = msg.obj["update"]
            for name, delta in update.items():
                self.change(name, Idset.parse(delta.get("add", "")), Idset.parse(delta.get("remove", "")))
        except (IdsetError, AttributeError, KeyError, TypeError) as exc:
            raise RpcError(errno.EPROTO, f"groups.update: {exc}") from None
        return EMPTY

    def _require_leader(self, method: str) -> None:
        if self.ctx.rank:
            raise RpcError(errno.EPROTO, f"groups.{method} is only available on rank 0")


def _require_local(msg: Message) -> None:
    """Raise RpcError(EPROTO) for a request from another broker: its disconnect would go unnoticed here."""
    if len(msg.routes) > 1:
        raise RpcError(errno.EPROTO, f"{msg.topic} is restricted to the local broker")


def _name(msg: Message) -> str:
    name: str = msg.obj["name"]
    if not name:
        raise RpcError(errno.EPROTO, f"{msg.topic}: name must not be empty")
    return name


def _sender(msg: Message) -> str:
    return sender_of(msg).decode("ascii", "replace")
