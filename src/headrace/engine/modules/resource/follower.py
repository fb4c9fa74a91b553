"""The resource service of every rank but 0.

It counts its own node, and forwards the counts of its subtree, one message for each connection and loop turn.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from headrace.engine.broker.discovery import bindable_cpus, discover, discover_after_fork
from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.formats.spec import message as m
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message
from headrace.formats.spec.requests.resource import FOLLOWER

if TYPE_CHECKING:
    # Not imported at run time: the module imports the readers of R, which only the leader uses.
    from headrace.engine.modules.resource.source import Found
    from headrace.formats.spec import hwloc

# The number of attempts to forward counts, as the parent may still be loading its modules.
_RETRIES = 50


def node_of_file() -> hwloc.Node | None:
    """The node in the topology file FLUX_HWLOC_XMLFILE; None if the variable is not set. Raises RpcError."""
    file = os.environ.get("FLUX_HWLOC_XMLFILE")
    if not file:
        return None
    # Imported here, since few instances have such a file, and XML takes time and memory to import.
    from headrace.formats.spec import hwloc

    try:
        return hwloc.read(file)
    except hwloc.HwlocError as exc:
        raise RpcError(errno.EINVAL, f"FLUX_HWLOC_XMLFILE: {exc}") from None


def count_node(ctx: ModuleContext) -> Found:
    """This broker's node as it is reported to rank 0. Raises RpcError for an invalid topology file."""
    host, node = ctx.attrs.get("hostname"), node_of_file()
    if node is not None:
        return [ctx.rank, host, str(Idset(range(node.cores))), str(Idset(range(node.gpus)))]
    found = discover(affinity=bindable_cpus()) if _is_unrestricted(ctx) else discover_after_fork()
    return [ctx.rank, host, str(found.cores), str(found.gpus)]


def send_topology(ctx: ModuleContext, msg: Message) -> None:
    """`resource.topo-get`: this node's hwloc topology as XML; the payload is the text itself, not JSON. Raises
    RpcError.
    """
    # Imported here, since the request is rare.
    from headrace.engine.modules.resource import node_topology

    text = node_topology.xml(_is_unrestricted(ctx), os.environ.get("FLUX_HWLOC_XMLFILE", ""))
    ctx.respond(msg, payload=text.encode() + b"\0")


def _is_unrestricted(ctx: ModuleContext) -> bool:
    """Whether the CPUs that this process could be bound to are counted, not only those that it is bound to."""
    table = ctx.config.get("resource")
    return isinstance(table, dict) and table.get("norestrict") is True


class Follower:
    """Counts this node, and forwards the counts of the subtree to the parent."""

    def __init__(self, ctx: ModuleContext) -> None:
        self.ctx = ctx
        self.pending: list[Found] = []
        self.tries = 0
        methods = {"gather": self._add, "status": self._status, "topo-get": lambda msg: send_topology(ctx, msg)}
        ctx.service("resource", methods, open=("topo-get",), requests=FOLLOWER)
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
