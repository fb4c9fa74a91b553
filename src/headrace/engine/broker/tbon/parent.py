"""The link of a broker to its parent in the tree: a ZeroMQ socket, and the pending requests.

This file needs ZeroMQ, which an instance of one broker does not import. So it is imported when a link is made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import zmq

from headrace.engine.broker.tbon import sockets as links
from headrace.engine.broker.tbon.outstanding import Outstanding, sender_of
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message, MessageError

if TYPE_CHECKING:
    from headrace.engine.broker.parts import BrokerBase


class ParentLink:
    """The link to the parent of a broker. `own_uuid` identifies the broker to the parent.

    `receive` gets the parent's messages. `lost` is called with the reason when the connection ends. The link is also a
    peer of the router, for responses to the parent's requests. Its `uuid` is the parent's, or "" until the hello is
    accepted.
    """

    def __init__(
        self,
        broker: BrokerBase,
        sockets: links.TreeSockets,
        own_uuid: str,
        receive: Callable[[Message], None],
        lost: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._sockets = sockets
        self._receive = receive
        self._lost = lost
        self._sock = sockets.above(own_uuid)
        self.uuid = ""
        # Requests without a response from the parent.
        self.sent_requests = Outstanding()
        # True if no message was sent since `Liveness` set it.
        self.quiet = False

    def connect(self, uri: str, hello: Message) -> None:
        """Connect to the parent at `uri`, and send the hello."""
        self._sockets.watch(self._sock, self.read, lambda why: self._lost(why or "connection closed"))
        self._sock.connect(uri)
        self.transmit(hello)

    def send(self, msg: Message) -> bool:
        """Send toward rank 0. False if the message cannot be sent."""
        msg.rolemask &= ~m.ROLE_LOCAL
        if msg.type == m.REQUEST:
            self.sent_requests.passed(msg, sender_of(msg))
            sent = self.transmit(msg)
            msg.forget_body()
            return sent
        return self.transmit(msg)

    def transmit(self, msg: Message) -> bool:
        """Send a message of this broker itself. False if it cannot be sent."""
        if not links.put(self._sock, m.encode_parts(msg)):
            return False
        self.quiet = False
        # ZeroMQ's descriptor is edge-triggered, and a send may consume the edge, so the socket is read after this turn.
        self._broker.router.at_turn_end(self.read)
        return True

    def read(self) -> None:
        """Receive available messages in batches, between which other callbacks of the loop run."""
        for _ in range(links.BATCH):
            if self._sock.closed:
                return
            try:
                parts = links.receive(self._sock)
            except zmq.Again:
                return
            try:
                msg = m.decode_parts(parts)
            except MessageError as exc:
                self._broker.log(logging.ERROR, "overlay", f"message from parent dropped: {exc}")
                continue
            if msg.type == m.RESPONSE and self.uuid:
                self.sent_requests.answered(msg, sender_of(msg))
            try:
                self._receive(msg)
            except Exception as exc:
                self._broker.log(logging.ERROR, "overlay", f"{msg} from the parent: {exc!r}")
        self._broker.loop.call_soon(self.read)

    def end(self) -> list[Message]:
        """End the link without a goodbye. Returns the requests without a response from the parent.

        Without this, ZeroMQ would reconnect on its own, and the parent would take this broker for reachable although it
        no longer serves. After a goodbye, the parent would count a broker that was cut off as one that left in order.
        """
        self._sockets.end(self._sock)
        return self.sent_requests.take()
