"""The resource service (RFC 28, RFC 44): every broker reports its node's resources to rank 0."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from headrace.engine.broker.module.args import only
from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.engine.modules.resource.own_node import count_node, node_of_file, send_topology
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.resource import FOLLOWER

if TYPE_CHECKING:
    # Not imported at run time, because `source` imports the readers of R, which only the leader needs.
    from headrace.engine.modules.resource.source import Found

NAME = "resource"

# Module arguments: do not verify R against nodes; treat every broker as online, for tests; keep all events (accepted
# for compatibility: all events are always kept).
_ARGS = ("noverify", "monitor-force-up", "notruncate")
# The number of attempts to forward counts. The parent may still be loading its modules.
_RETRIES = 50


def load(ctx: ModuleContext, args: list[str]) -> None:
    only(ctx, args, known=_ARGS)
    if ctx.rank == 0:
        # Imported here to save memory on the other ranks.
        from headrace.engine.modules.resource.leader import Leader

        # Rank 0 counts its node later. Reading the topology file now lets the load fail if the file is invalid.
        node_of_file()
        Leader(ctx, args)
    else:
        Follower(ctx)


class Follower:
    """The service of all ranks except 0: counts its node, and forwards the counts of its subtree.

    The counts that arrive in one loop turn are sent to the parent in one message.
    """

    def __init__(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.pending: list[Found] = []
        self.tries = 0
        methods = {"gather": self._add, "status": self._status, "topo-get": lambda msg: send_topology(ctx, msg)}
        ctx.service(NAME, methods, open=("topo-get",), requests=FOLLOWER)
        self.pending.append(count_node(ctx))
        ctx.at_flush(self._forward)

    def _add(self, msg: Message) -> Any:
        self.pending.extend(msg.obj["nodes"])
        self.ctx.at_flush(self._forward)
        return EMPTY

    def _status(self, msg: Message) -> Any:
        raise RpcError(errno.EPROTO, "this RPC only works on rank 0")

    def _forward(self) -> None:
        nodes, self.pending = self.pending, []
        if not nodes:
            return

        def done(reply: Message) -> None:
            if reply.errnum and self.tries < _RETRIES:
                self.tries += 1
                self.pending.extend(nodes)
                self.ctx.call_later(0.1, self._forward)

        body = {"nodes": nodes}
        self.ctx.call("resource.gather", body, done, nodeid=self.ctx.rank, flags=m.FLAG_UPSTREAM)
