"""`overlay.drained`: notifies a streaming service when its reader has read its responses.

The reader may be anywhere in the tree. A request `{route: [uuid, ...]}` has the route stack of a streaming request. It
follows that request's responses along their path, and is answered when the client at the end has read them or has
disconnected. A service that waits for this response after each portion has at most one portion in the brokers' memory.
Otherwise a slow reader would cost memory in every broker on the path, and would finally be disconnected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.engine.broker.local import LocalClient
from headrace.engine.broker.module.context import ModuleContext
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

if TYPE_CHECKING:
    from headrace.engine.broker.parts import BrokerBase
    from headrace.engine.broker.tbon.overlay import Overlay

TOPIC = "overlay.drained"


def handler(broker: BrokerBase, overlay: Overlay, ctx: ModuleContext) -> Any:
    """The method `drained` of the overlay service."""

    def drained(msg: Message) -> None:
        route: list[str] = msg.obj["route"]

        def answer(_reply: Message | None = None) -> None:
            ctx.respond(msg)

        hop = route[-1] if route else ""
        body = {"route": route[:-1]}
        child = overlay.child_of(hop)
        peer = broker.router.peers.get(hop.encode("utf-8", "replace"))
        if isinstance(peer, LocalClient):
            peer.when_drained(answer)
        elif child is not None:
            ctx.call(TOPIC, body, answer, nodeid=child)
        elif hop and overlay.parent is not None and hop == overlay.parent.uuid:
            ctx.call(TOPIC, body, answer, nodeid=broker.rank, flags=m.FLAG_UPSTREAM)
        else:
            answer()

    return drained


def route_of(msg: Message) -> dict[str, list[str]]:
    """The body of an `overlay.drained` request for the reader that sent `msg`."""
    return {"route": [hop.decode("ascii", "replace") for hop in msg.routes]}
