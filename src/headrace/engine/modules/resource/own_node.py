"""Reports of every broker about its own node: its counted resources and its topology."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from headrace.engine.broker.discovery import bindable_cpus, discover, discover_after_fork
from headrace.engine.broker.module.context import ModuleContext, RpcError
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message

if TYPE_CHECKING:
    # Not imported at run time, because `source` imports the readers of R, which only the leader needs.
    from headrace.engine.modules.resource.source import Found
    from headrace.formats.spec import hwloc


def node_of_file() -> hwloc.Node | None:
    """The node in the topology file FLUX_HWLOC_XMLFILE; None if the variable is not set. Raises RpcError."""
    file = os.environ.get("FLUX_HWLOC_XMLFILE")
    if not file:
        return None
    # Imported here, because few instances have such a file, and importing XML takes time and memory.
    from headrace.formats.spec import hwloc

    try:
        return hwloc.read(file)
    except hwloc.HwlocError as exc:
        raise RpcError(errno.EINVAL, f"FLUX_HWLOC_XMLFILE: {exc}") from None


def count_node(ctx: ModuleContext) -> Found:
    """The report about this broker's node to rank 0. Raises RpcError for an invalid topology file."""
    host, node = ctx.attrs.get("hostname"), node_of_file()
    if node is not None:
        return [ctx.rank, host, str(Idset(range(node.cores))), str(Idset(range(node.gpus)))]
    found = discover(affinity=bindable_cpus()) if _is_unrestricted(ctx) else discover_after_fork()
    return [ctx.rank, host, str(found.cores), str(found.gpus)]


def send_topology(ctx: ModuleContext, msg: Message) -> None:
    """`resource.topo-get`: this node's hwloc topology as XML. Raises RpcError.

    The payload is the XML text, not JSON.
    """
    # Imported here, because the request is rare.
    from headrace.engine.modules.resource import node_topology

    text = node_topology.xml(_is_unrestricted(ctx), os.environ.get("FLUX_HWLOC_XMLFILE", ""))
    ctx.respond(msg, payload=text.encode() + b"\0")


def _is_unrestricted(ctx: ModuleContext) -> bool:
    """True if all CPUs are counted that this process could be bound to, not only those it is bound to."""
    table = ctx.config.get("resource")
    return isinstance(table, dict) and table.get("norestrict") is True
