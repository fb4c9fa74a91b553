"""The barrier service: processes anywhere in the instance wait for each other under a common name.

Rank 0 counts the processes; other brokers pass requests up the tree. Each user has separate barriers, even if the names
are equal. If a process leaves a barrier or enters it twice, the barrier can never be complete, so all waiting requests
fail with ECONNABORTED, as in Flux.
"""

from __future__ import annotations

import errno

from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.execution import BARRIER

NAME = "barrier"


class _Barrier:
    """A barrier for `nprocs` processes. `waiting` has their `enter` requests by the sender's uuid."""

    __slots__ = ("nprocs", "waiting")

    def __init__(self, nprocs: int) -> None:
        self.nprocs = nprocs
        self.waiting: dict[bytes, Message] = {}


class _Barriers:
    def __init__(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        # Open barriers by user and name.
        self.open: dict[tuple[int, str], _Barrier] = {}
        ctx.service(NAME, {"enter": self._enter}, open=("enter",), requests=BARRIER)
        ctx.on_disconnect(self._disconnected)
        ctx.on_stats(lambda: {"barriers": len(self.open)})
        ctx.on_unload(self._unload)

    def _enter(self, msg: Message) -> None:
        """`barrier.enter {name, nprocs}`: responds when `nprocs` processes have entered.

        Raises RpcError(EPROTO, EINVAL, EEXIST).
        """
        name, nprocs = msg.obj["name"], msg.obj["nprocs"]
        if nprocs < 1:
            raise RpcError(errno.EINVAL, f"barrier {name}: nprocs is {nprocs}, it must be at least 1")
        key = (msg.userid, name)
        barrier = self.open.setdefault(key, _Barrier(nprocs))
        if barrier.nprocs != nprocs:
            raise RpcError(errno.EINVAL, f"barrier {name} was begun for {barrier.nprocs} processes, not {nprocs}")
        sender = msg.routes[0]
        if sender in barrier.waiting:
            self._end(key, errno.ECONNABORTED, f"barrier {name}: a process entered it twice")
            raise RpcError(errno.EEXIST, f"barrier {name} was entered before by the same handle")
        barrier.waiting[sender] = msg
        if len(barrier.waiting) == nprocs:
            self._end(key)

    def _end(self, key: tuple[int, str], errnum: int = 0, text: str = "") -> None:
        for msg in self.open.pop(key).waiting.values():
            if errnum:
                self.ctx.respond_error(msg, errnum, text)
            else:
                self.ctx.respond(msg)

    def _disconnected(self, uuid: str) -> None:
        sender = uuid.encode()
        for key in [key for key, barrier in self.open.items() if sender in barrier.waiting]:
            self._end(key, errno.ECONNABORTED, f"barrier {key[1]}: a process left")

    def _unload(self) -> None:
        for key in list(self.open):
            self._end(key, errno.ENOSYS, "barrier was unloaded")


def load(ctx: ModuleContext, args: list[str]) -> None:
    only(ctx, args)
    _Barriers(ctx)
