"""Routing of messages (RFC 3, RFC 6): to a local service or client, or up or down the tree.

Messages are queued and delivered from one loop callback, so a handler never runs inside another one. Everything that
one loop turn produces (journal records, socket writes, tree sends) is flushed together when the queue is empty. A large
request of a guest is delivered last, since the service may need long to decode it. When a request arrives, the link
appends its peer's uuid to the request's routes. A response goes to the peer whose uuid is last. There is no other
routing state.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from headrace.formats.exposition.histogram import Histogram
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

# Seconds of deliveries in one turn, after which the loop handles its sockets before it continues.
_SLICE = 0.002
# The most turns that a flush is deferred while busy senders send more: one large flush is cheaper.
_MOST_DEFERRALS = 4
# A guest's request above this size in bytes is delivered after everything else, at most this many turns late.
_LARGE = 16 << 10
_MOST_GUEST_DEFERRALS = 25


class Peer(Protocol):
    """A destination of messages: a client, a module, or a neighbour in the tree."""

    uuid: str

    def send(self, msg: Message) -> object: ...


def new_uuid() -> str:
    """A random UUID (RFC 4122, version 4), without importing package uuid."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


class Router:
    """Routing state of one broker."""

    def __init__(self, rank: int, loop: asyncio.AbstractEventLoop) -> None:
        self.rank = rank
        self.loop = loop
        self.services: dict[str, Peer] = {}
        self.peers: dict[bytes, Peer] = {}
        # The keys in `peers` that belong to other brokers.
        self.neighbours: set[bytes] = set()
        self.up: Callable[[Message], bool] = lambda _msg: False
        self.toward: Callable[[Message, int], bool] = lambda _msg, _rank: False
        self._queue: deque[tuple[Callable[[Message], object], Message]] = deque()
        # Large requests of guests. While there are any, all requests of guests queue here, to keep each sender's order.
        self._guests: deque[tuple[Callable[[Message], object], Message]] = deque()
        self._guests_put_off = 0
        self._waiting: dict[Callable[[], None], None] = {}
        self._flush: dict[Callable[[], None], None] = {}
        self._last: dict[Callable[[], None], None] = {}
        self._scheduled = False
        # Consecutive turns that ended with something left to flush.
        self._put_off = 0
        self.delivered = 0
        self.longest_turn = 0.0
        # Durations of turns in seconds. Nothing else in the loop runs during a turn.
        self.turns = Histogram()

    def when_free(self, fn: Callable[[], None]) -> None:
        """Run `fn` once when the queued messages are delivered.

        For a sender that has more than its share of messages.
        """
        self._waiting[fn] = None
        self._schedule()

    def at_flush(self, fn: Callable[[], None]) -> None:
        """Run `fn` once when the queued messages are delivered.

        Messages that `fn` sends are delivered in the same turn.
        """
        self._flush[fn] = None
        self._schedule()

    def at_turn_end(self, fn: Callable[[], None]) -> None:
        """Run `fn` once when nothing is left to deliver or flush, to write to a socket or wait for a disk."""
        self._last[fn] = None
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._turn)

    def post(self, deliver: Callable[[Message], object], msg: Message) -> None:
        """Queue `deliver(msg)` for this turn."""
        self._queue.append((deliver, msg))
        self._schedule()

    def _turn(self) -> None:
        start = time.monotonic()
        queue = self._queue
        delivered = 0
        late = False
        overdue = self._put_off >= _MOST_DEFERRALS
        try:
            if self._guests_put_off >= _MOST_GUEST_DEFERRALS:
                self._deliver_guests(start)
            while not late:
                while queue:
                    deliver, msg = queue.popleft()
                    deliver(msg)
                    delivered += 1
                    if time.monotonic() - start > _SLICE:
                        late = True
                        break
                if self._waiting and not late and not overdue:
                    # Call one function at a time: a sender that registers again is queued behind the others.
                    fn = next(iter(self._waiting))
                    del self._waiting[fn]
                    fn()
                elif self._flush and not late:
                    _run_all(self._flush)
                    overdue = False
                    self._put_off = 0
                elif self._last:
                    _run_all(self._last)
                    late = late or time.monotonic() - start > _SLICE
                elif self._guests:
                    late = self._deliver_guests(start)
                elif not queue:
                    break
        finally:
            # Deliver the remaining messages even if a handler raised an exception.
            self.delivered += delivered
            took = time.monotonic() - start
            self.longest_turn = max(self.longest_turn, took)
            self.turns.observe(took)
            self._put_off += bool(self._flush)
            self._guests_put_off += bool(self._guests)
            if queue or self._guests or self._waiting or self._flush or self._last:
                self.loop.call_soon(self._turn)
            else:
                self._scheduled = False

    def _deliver_guests(self, start: float) -> bool:
        """Deliver requests of guests until the turn that began at `start` is over. True if it is over."""
        self._guests_put_off = 0
        while self._guests:
            deliver, msg = self._guests.popleft()
            deliver(msg)
            self.delivered += 1
            if time.monotonic() - start > _SLICE:
                return True
        return False

    def request(self, msg: Message) -> None:
        """Route a request whose `routes` already include its sender."""
        nodeid = msg.aux1
        if nodeid == m.NODEID_ANY:
            if self._to_service(msg) or self.up(msg):
                return
        elif msg.flags & m.FLAG_UPSTREAM:
            # nodeid is the sender's own rank: the request starts at the sender's parent.
            if (nodeid != self.rank and self._to_service(msg)) or self.up(msg):
                return
            if nodeid == self.rank:
                self.refuse(msg, errno.EHOSTUNREACH, f"rank {nodeid} has no parent")
                return
        elif nodeid == self.rank:
            if self._to_service(msg):
                return
        elif self.toward(msg, nodeid):
            return
        else:
            self.refuse(msg, errno.EHOSTUNREACH, f"rank {nodeid} cannot be reached")
            return
        self.refuse(msg, errno.ENOSYS, "No service matching " + msg.topic + " is registered")

    def _to_service(self, msg: Message) -> bool:
        peer = self.service_of(msg.topic)
        if peer is None:
            return False
        if not msg.rolemask & m.ROLE_OWNER and (self._guests or msg.encoded_size > _LARGE):
            self._guests.append((peer.send, msg))
            self._schedule()
        else:
            self.post(peer.send, msg)
        return True

    def service_of(self, topic: str) -> Peer | None:
        """The provider of `topic`: the longest registered prefix that ends before a dot."""
        name = topic
        while True:
            cut = name.rfind(".")
            if cut < 0:
                return self.services.get(topic) if name == topic else None
            name = name[:cut]
            peer = self.services.get(name)
            if peer is not None:
                return peer

    def forget(self, topic: str, sender: bytes, matchtag: int) -> None:
        """Tell the provider of a streaming request that `sender` no longer waits for responses."""
        keeper = getattr(self.service_of(topic), "forget_request", None)
        if keeper is not None:
            keeper(sender, matchtag)

    def refuse(self, msg: Message, errnum: int, text: str = "") -> None:
        """Respond to request `msg` with an error, unless it requests no response."""
        if not msg.flags & m.FLAG_NORESPONSE:
            self.response(m.error_response(msg, errnum, text))

    def response(self, msg: Message) -> None:
        """Send a response to the peer on top of its route stack, or drop it if there is no such peer."""
        if not msg.routes:
            return
        peer = self.peers.get(msg.routes.pop())
        if peer is not None:
            self.post(peer.send, msg)

    def provide(self, name: str, peer: Peer) -> None:
        """Let `peer` respond to requests for service `name`."""
        self.services[name] = peer

    def withdraw(self, name: str) -> None:
        """Remove the provider of service `name`."""
        self.services.pop(name, None)

    def add_peer(self, peer: Peer) -> None:
        self.peers[peer.uuid.encode()] = peer

    def add_neighbour(self, peer: Peer) -> None:
        """Add a parent or child in the tree."""
        self.add_peer(peer)
        self.neighbours.add(peer.uuid.encode())

    def local_peer(self, msg: Message) -> Peer | None:
        """The local client or module that sent request `msg`, or None if the request came through the tree."""
        last = msg.routes[-1] if msg.routes else b""
        return None if last in self.neighbours else self.peers.get(last)

    def remove_peer(self, peer: Peer) -> list[str]:
        """Remove `peer` and its services; returns the names of the services."""
        self.peers.pop(peer.uuid.encode(), None)
        self.neighbours.discard(peer.uuid.encode())
        withdrawn = [name for name, owner in self.services.items() if owner is peer]
        for name in withdrawn:
            del self.services[name]
        return withdrawn

    def stats(self) -> dict[str, Any]:
        return {
            "delivered": self.delivered,
            "queued": len(self._queue) + len(self._guests),
            "longest_turn_ms": round(self.longest_turn * 1000, 3),
            "turns": self.turns.as_object(),
        }


def _run_all(table: dict[Callable[[], None], None]) -> None:
    """Call and remove the functions in `table`. Functions that they add are called in the next round."""
    pending = list(table)
    table.clear()
    for index, fn in enumerate(pending):
        try:
            fn()
        except BaseException:
            # Keep the functions that were not called: most are registered only once until they are called.
            table.update(dict.fromkeys(pending[index + 1 :]))
            raise
