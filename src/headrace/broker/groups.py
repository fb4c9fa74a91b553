"""Broker groups: named sets of ranks (`broker.online` and friends), joined on any rank, gathered on rank 0.

Only rank 0 keeps membership; a broker or module elsewhere joins with an RPC that climbs the tree, and a lost subtree
leaves every group at once.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Any

from ..spec.idset import Idset, IdsetError
from ..spec.message import Message
from .module import EMPTY, ModuleContext, RpcError, _Empty

# Groups with members. Nobody needs more; somebody may make them up.
_MOST = 1024


class Groups:
    """The groups service of rank 0."""

    def __init__(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.members: dict[str, Idset] = {}
        self._watchers = ctx.streams("get")
        self._names: dict[tuple[bytes, int], str] = {}
        ctx.service(
            "groups",
            {"get": self._get, "join": self._join, "leave": self._leave, "update": self._update},
            open=("get",),
        )
        ctx.on_stats(lambda: {"groups": {name: str(ranks) for name, ranks in self.members.items()}})

    def change(self, name: str, add: Iterable[int] = (), remove: Iterable[int] = ()) -> None:
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
        for msg in self._watchers:
            if (msg.obj or {}).get("name") == name:
                self.ctx.respond(msg, {"members": str(new)})

    def lost(self, ranks: Iterable[int]) -> None:
        """Take `ranks` out of every group."""
        gone = list(ranks)
        for name in list(self.members):
            self.change(name, remove=gone)

    def _get(self, msg: Message) -> dict[str, Any] | None:
        name = (msg.obj or {}).get("name")
        if not isinstance(name, str):
            raise RpcError(errno.EPROTO, "groups.get: name is missing")
        body = {"members": str(self.members.get(name, Idset()))}
        if not msg.streaming:
            return body
        self._watchers.add(msg)
        self.ctx.respond(msg, body)
        return None

    def _join(self, msg: Message) -> _Empty:
        self.change(_name(msg), add=[_rank(msg)])
        return EMPTY

    def _leave(self, msg: Message) -> _Empty:
        self.change(_name(msg), remove=[_rank(msg)])
        return EMPTY

    def _update(self, msg: Message) -> _Empty:
        """`groups.update {name: {add?: idset, remove?: idset}}`: what a subtree gathered, in one message."""
        try:
            for name, delta in (msg.obj or {}).get("update", {}).items():
                self.change(name, Idset.parse(delta.get("add", "")), Idset.parse(delta.get("remove", "")))
        except (IdsetError, AttributeError) as exc:
            raise RpcError(errno.EPROTO, f"groups.update: {exc}") from None
        return EMPTY


def _name(msg: Message) -> str:
    name = (msg.obj or {}).get("name")
    if not isinstance(name, str) or not name:
        raise RpcError(errno.EPROTO, "groups: name is missing")
    return name


def _rank(msg: Message) -> int:
    rank = (msg.obj or {}).get("rank", 0)
    if not isinstance(rank, int):
        raise RpcError(errno.EPROTO, "groups: rank must be a number")
    return rank
