"""Events (RFC 3): rank 0 numbers them, and every broker passes them to its subscribers and children."""

from __future__ import annotations

import base64
import binascii
import errno
from collections.abc import Callable

from headrace.engine.broker.answers import EMPTY, Empty, RpcError
from headrace.engine.broker.budget import Account, is_guest
from headrace.engine.broker.router import Peer, Router
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message


class Events:
    """Event state of one broker. The overlay sets `up` and `down`."""

    def __init__(self, rank: int, router: Router, owner: int) -> None:
        self.rank = rank
        self.router = router
        self.owner = owner
        self.sequence = 0
        self.up: Callable[[Message], bool] = lambda _msg: False
        self.down: Callable[[Message], None] = lambda _msg: None
        self._subscribers: dict[Peer, dict[str, int]] = {}
        # The broker's own event handlers, by topic.
        self._own: dict[str, Callable[[Message], None]] = {}

    def subscribe(self, peer: Peer, prefix: str) -> None:
        prefixes = self._subscribers.setdefault(peer, {})
        prefixes[prefix] = prefixes.get(prefix, 0) + 1

    def unsubscribe(self, peer: Peer, prefix: str) -> bool:
        """Unsubscribe; False if `peer` had not subscribed to `prefix`."""
        prefixes = self._subscribers.get(peer, {})
        if prefix not in prefixes:
            return False
        prefixes[prefix] -= 1
        if not prefixes[prefix]:
            del prefixes[prefix]
        return True

    def drop(self, peer: Peer) -> None:
        self._subscribers.pop(peer, None)

    def take_at_once(self, topic: str, take: Callable[[Message], None]) -> None:
        """Call `take` with each event `topic` at once, before the broker reads another message.

        A child that joins later does not get the event, so the response to the child's hello must include the effect of
        `take`.
        """
        self._own[topic] = take

    def publish(self, msg: Message) -> int:
        """Number and distribute an event on rank 0, or send it to rank 0.

        Returns the number, or 0 on other ranks.
        """
        if msg.userid == m.USERID_UNKNOWN:
            msg.userid = self.owner
            msg.rolemask = m.ROLE_OWNER
        if self.rank != 0:
            self.up(msg)
            return 0
        self.sequence += 1
        msg.aux1 = self.sequence
        self.deliver(msg)
        return self.sequence

    def deliver(self, msg: Message) -> None:
        """Pass a numbered event to the children and to local subscribers."""
        self.sequence = msg.aux1
        self.down(msg)
        private = bool(msg.flags & m.FLAG_PRIVATE)
        for peer, prefixes in list(self._subscribers.items()):
            if any(msg.topic.startswith(prefix) for prefix in prefixes):
                userid = getattr(peer, "userid", self.owner)
                if private and userid not in (self.owner, msg.userid):
                    continue
                self.router.post(peer.send, msg)
        take = self._own.get(msg.topic)
        if take is not None:
            take(msg)

    def handle_publish(self, msg: Message) -> dict[str, int] | Empty | None:
        """Handle `event.publish {topic, flags, payload?}`, with the payload in base64, as clients send it.

        Other ranks pass the request on to rank 0. The response has the number of the event.
        """
        if self.rank:
            if not self.router.up(msg):
                raise RpcError(errno.EHOSTUNREACH)
            return None
        body = msg.obj
        topic = body["topic"]
        if not topic or "\0" in topic:
            raise RpcError(errno.EPROTO, "event.publish: topic must be a string without NUL that is not empty")
        payload = None
        if body.get("payload") is not None:
            try:
                payload = base64.b64decode(body["payload"], validate=True)
            except (binascii.Error, ValueError):
                raise RpcError(errno.EPROTO, "event.publish: payload is not base64") from None
        event = m.event(topic, None, (body.get("flags") or 0) & m.FLAG_PRIVATE, payload)
        event.userid = msg.userid
        event.rolemask = msg.rolemask
        return {"seq": self.publish(event)}

    def handle_subscribe(self, msg: Message) -> Empty | None:
        """Handle event.subscribe and event.unsubscribe of a local client or a module.

        The response has no payload.
        """
        peer = self.router.local_peer(msg)
        topic = msg.obj["topic"]
        if peer is None:
            raise RpcError(errno.EPROTO, f"{msg.topic}: only clients and modules of this broker have subscriptions")
        # A client connection that guests use has an account. Modules have none.
        account: Account | None = getattr(peer, "account", None)
        if msg.topic.endswith(".subscribe"):
            if account is not None and is_guest(msg):
                account.subscribe(msg.userid, topic)
            self.subscribe(peer, topic)
        elif not self.unsubscribe(peer, topic):
            raise RpcError(errno.ENOENT)
        elif account is not None and topic not in self._subscribers.get(peer, {}):
            account.unsubscribe(topic)
        return EMPTY
