"""The TBON: one encrypted ZeroMQ link to the parent, one socket for all children (RFC 3, CURVE with ZAP).

A member is authenticated by its CURVE key, before a byte of its messages is parsed. Rank and uuid are bound by the
hello of a child; a second live uuid for a rank is refused. A child learns from the answer what the instance has come
to, so a broker that has not joined yet keeps the hellos of its children until it knows that itself. A lost neighbour is
noticed by the kernel's time-out or by the closed connection: ZeroMQ's monitor reports that some child has gone, and a
probe with ROUTER_MANDATORY determines which. A lost child may return: a new broker of its rank, with a new uuid, says
hello. Reports to the leader (online ranks, health of subtrees) are collected during a turn and sent once over each
link.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace import __version__
from headrace.engine.broker.answers import RpcError
from headrace.engine.broker.budget import is_guest
from headrace.engine.broker.tbon.child import Child
from headrace.engine.broker.tbon.liveness import Liveness
from headrace.engine.broker.tbon.outstanding import Outstanding, disconnects, sender_of
from headrace.formats.spec import message as m
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message, MessageError

if TYPE_CHECKING:
    import zmq
    from zmq.backend import Socket

    from headrace.engine.broker.boot.boot import BootInfo
    from headrace.engine.broker.parts import BrokerBase
    from headrace.engine.broker.tbon import sockets as links
    from headrace.formats.spec.topology import Topology

# CONTROL message types (aux1) of this overlay; 4 is liveness.ALIVE, which says nothing more.
_STATUS = 1
_GOODBYE = 2
_PROBE = 3
_LEAVE = 5

_BATCH = 200
# Seconds after which ZeroMQ refuses to send to a child that is gone.
_PROBE_AGAIN = 0.05
# Characters of a host's name that are kept.
_LONGEST_NAME = 64


class Overlay:
    """The tree links of one broker. `on_ready` is called when the parent has accepted the hello."""

    def __init__(self, broker: BrokerBase, boot: BootInfo) -> None:
        self.broker = broker
        self.boot = boot
        self.rank = broker.rank
        self.topology = boot.topology
        self.uuid = broker.uuid
        self.parent_uuid = ""
        self.children = {rank: Child(rank, self.broker.budget) for rank in boot.topology.children(self.rank)}
        # Told, as `Child.changed`, of every child.
        self.on_child_changed: Callable[[Child], None] = lambda _child: None
        self._by_uuid: dict[str, Child] = {}
        # Hellos that have come before this broker admits children, by the identities of their senders.
        self._admits = self.rank == 0
        self._early: dict[str, tuple[Message, zmq.Frame]] = {}
        self._sockets: links.TreeSockets | None = None
        self._parent: Socket | None = None
        self._bound: Socket | None = None
        self._online: Idset = Idset()
        self._offline: Idset = Idset()
        # The lost ranks among the last that went offline, without those that left in order.
        self._torn_off: Idset = Idset()
        self._status_sent = ""
        self.since = time.monotonic()
        self.closing = False
        # The state of the probe for lost children: whether one is scheduled, and whether another must follow it.
        self._probing = self._probe_more = False
        # Whether nothing was sent to the parent since this was set.
        self.quiet = False
        self.liveness = Liveness(self)
        self._parent_owing = Outstanding()
        self.on_ready: Callable[[dict[str, Any]], None] = lambda _body: None
        self.on_parent_lost: Callable[[str], None] = lambda _why: None
        self.on_members: Callable[[Idset, Idset, Idset], None] = lambda _online, _offline, _lost: None
        self.on_child_lost: list[Callable[[int, frozenset[int]], None]] = []
        self.on_children_gone: Callable[[], None] = lambda: None
        # The parent tells us to go.
        self.on_leave: Callable[[], None] = lambda: None
        # What a child learns from the answer to its hello.
        self.answer_hello: Callable[[], dict[str, Any]] = dict
        broker.router.up = self.send_up
        broker.router.toward = self.send_toward
        broker.events.up = self.send_up
        broker.events.down = self.send_down

    # -- life

    def start(self) -> None:
        """Bind for children and say hello to the parent. Raises zmq.ZMQError when the endpoint cannot be bound."""
        if self.topology.size == 1:
            return
        sockets = self._open()
        if self.children:
            self._listen(sockets)
        if self.rank:
            self._connect(sockets)
        self.liveness.start()

    def _open(self) -> links.TreeSockets:
        """The sockets of the tree, made when the first is needed."""
        if self._sockets is None:
            # Imported only now: an instance of one broker starts in a tenth less time without it.
            global links, zmq
            import zmq

            from headrace.engine.broker.tbon import sockets as links

            broker = self.broker
            self._sockets = links.TreeSockets(broker.loop, broker.attrs, self.boot, len(self.children), broker.log)
        return self._sockets

    def _listen(self, sockets: links.TreeSockets) -> None:
        sock = sockets.below()
        sock.bind(self.boot.bind)
        self._bound = sock
        self.broker.attrs.set("tbon.endpoint", links.endpoint_of(sock))
        sockets.watch(sock, self._read_children, lambda _why: self._probe_children())

    def _connect(self, sockets: links.TreeSockets) -> None:
        self._parent = sock = sockets.above(self.uuid)
        self.broker.attrs.set("tbon.parent-endpoint", self.boot.parent_uri)
        if self.boot.parent_unresolved:
            # The address may become known later, so connecting is tried again.
            text = f"unable to resolve upstream peer {self.boot.parent_unresolved}"
            self.broker.log(logging.WARNING, "overlay", text)
        sockets.watch(sock, self._read_parent, lambda why: self._parent_lost(why or "connection closed"))
        sock.connect(self.boot.parent_uri)
        hello = m.request(
            "overlay.hello",
            {"rank": self.rank, "uuid": self.uuid, "version": __version__, "host": self.boot.hostname},
            matchtag=1,
        )
        self._put(sock, m.encode_parts(hello))

    def grow(self, topology: Topology) -> None:
        """Be part of a larger tree, and listen for the children that it gives us.

        Raises zmq.ZMQError when the endpoint cannot be bound.
        """
        fresh = [rank for rank in topology.children(self.rank) if rank not in self.children]
        if fresh and self._bound is None and not self.closing:
            self._listen(self._open())
        self.topology = topology
        for rank in fresh:
            child = self.children[rank] = Child(rank, self.broker.budget)
            child.changed = self.on_child_changed
        self.liveness.start()
        # Children that are not there yet make this subtree partial.
        self.report()

    def child_of(self, uuid: str) -> int | None:
        """The rank of the live child with this uuid."""
        child = self._by_uuid.get(uuid)
        return None if child is None else child.rank

    def close(self, in_order: bool = True) -> None:
        """Say goodbye to the parent, which then counts this broker as offline instead of lost; close every socket."""
        self.closing = True
        if in_order and self._parent is not None and self.parent_uuid:
            self._put(self._parent, m.encode_parts(Message(m.CONTROL, aux1=_GOODBYE)))
        bound, self._parent, self._bound = self._bound, None, None
        if self._sockets is not None:
            self._sockets.close()
            self._sockets = None
        if bound is not None and self.boot.bind.startswith("ipc://"):
            # ZeroMQ leaves the file, and the run directory may be kept.
            with contextlib.suppress(OSError):
                os.unlink(self.boot.bind.removeprefix("ipc://"))

    # -- sending

    def _put(self, sock: Socket, parts: list[bytes]) -> bool:
        try:
            links.send(sock, parts)
        except zmq.ZMQError as exc:
            if exc.errno in (errno.EHOSTUNREACH, errno.EAGAIN):
                return False
            raise
        self.quiet = self.quiet and sock is not self._parent
        # ZeroMQ's descriptor is edge-triggered, and a send may consume the edge, so the socket is read after this turn.
        self.broker.router.at_turn_end(self._read_parent if sock is self._parent else self._read_children)
        return True

    def send_up(self, msg: Message) -> bool:
        """Send toward rank 0; False without a parent."""
        sock = self._parent
        if sock is None:
            return False
        msg.rolemask &= ~m.ROLE_LOCAL
        parts = m.encode_parts(msg)
        if msg.type == m.REQUEST:
            self._parent_owing.passed(msg, sender_of(msg))
            msg.forget_body()
        return self._put(sock, parts)

    def stats(self) -> dict[str, int]:
        """The number of neighbours, and of requests to which neighbours owe a response."""
        return {
            "child-count": len(self.children),
            "child-connected": sum(child.alive for child in self.children.values()),
            "parent-count": int(self.rank > 0),
            "parent-rpc": len(self._parent_owing),
            "child-rpc": sum(len(child.asking) for child in self.children.values()),
        }

    def send_toward(self, msg: Message, rank: int) -> bool:
        """Send one hop toward `rank`; False if it does not exist or the hop is down."""
        if not 0 <= rank < self.topology.size:
            return False
        hop = self.topology.next_hop(self.rank, rank)
        child = self.children.get(hop)
        if child is None:
            return self.send_up(msg)
        return self._send_child(child, msg)

    def _send_child(self, child: Child, msg: Message) -> bool:
        if not child.alive or self._bound is None:
            return False
        msg.rolemask &= ~m.ROLE_LOCAL
        if not self._put(self._bound, [child.uuid.encode(), *m.encode_parts(msg)]):
            self._lost(child, "unreachable")
            return False
        if msg.type == m.REQUEST:
            child.owing.passed(msg, sender_of(msg))
            msg.forget_body()
        elif msg.type == m.RESPONSE:
            child.asking.answered(msg, sender_of(msg))
            if child.account:
                child.account.answered(msg)
        return True

    def send_down(self, msg: Message) -> None:
        """Send an event to every child."""
        if self._bound is None:
            return
        parts: list[bytes] | None = None
        for child in list(self.children.values()):
            if child.alive:
                parts = parts or m.encode_parts(msg)
                if not self._put(self._bound, [child.uuid.encode(), *parts]):
                    self._lost(child, "unreachable")

    # -- receiving

    def _read_parent(self) -> None:
        for _ in range(_BATCH):
            sock = self._parent
            if sock is None or sock.closed:
                return
            try:
                parts = links.receive(sock)
            except zmq.Again:
                return
            try:
                msg = m.decode_parts(parts)
            except MessageError as exc:
                self.broker.log(logging.ERROR, "overlay", f"message from parent dropped: {exc}")
                continue
            try:
                self._from_parent(msg)
            except Exception as exc:
                self.broker.log(logging.ERROR, "overlay", f"{msg} from the parent: {exc!r}")
        self.broker.loop.call_soon(self._read_parent)

    def _from_parent(self, msg: Message) -> None:
        router = self.broker.router
        if not self.parent_uuid:
            if msg.type == m.RESPONSE and msg.topic == "overlay.hello":
                self._welcome(msg)
            return
        if msg.type == m.REQUEST:
            msg.routes.append(self.parent_uuid.encode())
            router.request(msg)
        elif msg.type == m.RESPONSE:
            self._parent_owing.answered(msg, sender_of(msg))
            router.response(msg)
        elif msg.type == m.EVENT:
            self.broker.events.deliver(msg)
        elif msg.type == m.CONTROL and msg.aux1 == _GOODBYE:
            self._parent_lost("parent said goodbye")
        elif msg.type == m.CONTROL and msg.aux1 == _LEAVE:
            self.on_leave()

    def _welcome(self, msg: Message) -> None:
        if msg.errnum:
            self._parent_lost(f"hello refused: {msg.text or msg.errnum}")
            return
        body = msg.obj or {}
        self.parent_uuid = str(body.get("uuid", ""))
        self.broker.router.add_neighbour(_ParentPeer(self, self.parent_uuid))
        self.on_ready(body)
        self.admit()

    def admit(self) -> None:
        """Let children in from now on, beginning with those that said hello before."""
        self._admits = True
        early, self._early = self._early, {}
        for identity, (msg, origin) in early.items():
            self._hello(identity, msg, origin)

    def _parent_lost(self, why: str) -> None:
        if self.closing:
            return
        self.closing = True
        self._leave_parent()
        for msg in self._parent_owing.take():
            self._fail(msg, "the parent broker was lost")
        self.on_parent_lost(why)

    def _leave_parent(self) -> None:
        """End the link to the parent without a goodbye.

        Without this, ZeroMQ would connect again by itself, so that the parent would find this broker reachable although
        it no longer serves. After a goodbye, the parent would count a broker that was cut off as one that left in
        order.
        """
        sock, self._parent = self._parent, None
        if sock is not None and self._sockets is not None:
            self._sockets.end(sock)

    def _read_children(self) -> None:
        for _ in range(_BATCH):
            sock = self._bound
            if sock is None or sock.closed:
                return
            try:
                origin, parts = links.receive_with_origin(sock)
            except zmq.Again:
                return
            try:
                msg = m.decode_parts(parts)
                identity = origin.bytes.decode("ascii")
            except (MessageError, UnicodeDecodeError) as exc:
                self.broker.log(logging.WARNING, "overlay", f"message from a child dropped: {exc}")
                continue
            try:
                self._from_child(identity, msg, origin)
            except Exception as exc:
                # One invalid message must not block those behind it.
                self.broker.log(logging.ERROR, "overlay", f"{msg} from a child: {exc!r}")
        self.broker.loop.call_soon(self._read_children)

    def _from_child(self, identity: str, msg: Message, origin: zmq.Frame) -> None:
        router = self.broker.router
        child = self._by_uuid.get(identity)
        if child is None:
            if msg.type == m.REQUEST and msg.topic == "overlay.hello":
                if self._admits:
                    self._hello(identity, msg, origin)
                else:
                    self._early[identity] = (msg, origin)
                    self.broker.log(logging.DEBUG, "overlay", "a hello waits until this broker has joined itself")
            elif identity not in self._early:
                self.broker.log(logging.DEBUG, "overlay", f"dropped {msg} of an unknown peer")
            return
        child.heard = self.broker.loop.time()
        if child.torpid:
            self.liveness.heard(child)
        if msg.type == m.REQUEST:
            if is_guest(msg):
                try:
                    child.account.open(msg)
                except RpcError as exc:
                    msg.routes.append(identity.encode())
                    router.refuse(msg, exc.errnum, exc.text)
                    return
            child.asking.passed(msg, sender_of(msg))
            msg.routes.append(identity.encode())
            msg.flags |= m.FLAG_ROUTE
            router.request(msg)
        elif msg.type == m.RESPONSE:
            child.owing.answered(msg, sender_of(msg))
            router.response(msg)
        elif msg.type == m.EVENT:
            self.broker.events.publish(msg)
        elif msg.type == m.CONTROL:
            if msg.aux1 == _GOODBYE:
                self._lost(child, "goodbye")
            elif msg.aux1 == _STATUS:
                try:
                    self._child_status(child, msg)
                except ValueError as exc:
                    self.broker.log(logging.WARNING, "overlay", f"bad status of rank {child.rank}: {exc}")

    def _hello(self, identity: str, msg: Message, origin: zmq.Frame) -> None:
        host = "a broker"

        def answer(reply: Message) -> None:
            if self._bound is not None:
                self._put(self._bound, [identity.encode(), *m.encode_parts(reply)])

        def refuse(errnum: int, text: str) -> None:
            if self._sockets is not None:
                self._sockets.refusals.tell_of_hello(origin, host, text)
            answer(m.error_response(msg, errnum, text))

        try:
            body = msg.obj or {}
            rank, uuid = body.get("rank"), body.get("uuid")
        except MessageError as exc:
            refuse(errno.EPROTO, str(exc))
            return
        host = str(body.get("host", ""))[:_LONGEST_NAME]
        child = self.children.get(rank) if type(rank) is int else None
        if child is None or uuid != identity:
            refuse(errno.EINVAL, f"rank {rank} is not a child of rank {self.rank}, or its uuid is not its own")
            return
        if self.boot.method == "config" and host in self.boot.hosts and host != self.boot.hosts[child.rank]:
            # The child has the hosts in another order, so messages for other ranks would reach it.
            expected, actual = self.boot.hosts[child.rank], self.boot.hosts.index(host)
            refuse(errno.EINVAL, f"rank {rank} is {expected} here, and {host} is rank {actual}")
            return
        if child.alive:
            self._probe(child)
        if child.alive:
            refuse(errno.EEXIST, f"rank {rank} is already here as {child.uuid}")
            return
        child.host = host
        if child.status == "lost":
            gone = time.monotonic() - child.since
            self.broker.log(logging.ERROR, "overlay", f"{child.title} is back, {gone:.1f} s after it was lost")
        child.uuid = identity
        child.error = ""
        child.torpid = False
        child.heard = self.broker.loop.time()
        child.become("partial" if self.topology.children(child.rank) else "full")
        child.send = partial(self._send_or_refuse, child)
        self._by_uuid[identity] = child
        self.broker.router.add_neighbour(child)
        answer(m.response(msg, {"uuid": self.uuid, **self.answer_hello()}))

    def _send_or_refuse(self, child: Child, msg: Message) -> None:
        if not self._send_child(child, msg) and msg.type == m.REQUEST:
            self.broker.router.refuse(msg, errno.EHOSTUNREACH)

    # -- health

    def _probe(self, child: Child) -> None:
        if child.alive and self._bound is not None and not self._reaches(child.uuid):
            self._lost(child, "connection closed")

    def _reaches(self, identity: str) -> bool:
        """Whether the peer of this identity is still connected."""
        probe = m.encode_parts(Message(m.CONTROL, aux1=_PROBE))
        return self._bound is not None and self._put(self._bound, [identity.encode(), *probe])

    def _probe_children(self) -> None:
        """A connection ended: probe now for the lost child, and again later, as ZeroMQ forgets a peer only after this
        event.
        """
        if self._probing:
            self._probe_more = True
            return
        self._probing = True
        self._probe_all()
        self.broker.loop.call_later(_PROBE_AGAIN, self._probe_again)

    def _probe_again(self) -> None:
        if self.closing:
            return
        self._probing = False
        if self._probe_more:
            # For those that ended since.
            self._probe_more = False
            self._probe_children()
            return
        self._probe_all()

    def _probe_all(self) -> None:
        for child in list(self.children.values()):
            self._probe(child)
        # A peer that disconnects before its hello was answered was no child yet, so its loss is not reported.
        self._early = {identity: hello for identity, hello in self._early.items() if self._reaches(identity)}

    def _lost(self, child: Child, why: str) -> None:
        graceful = why == "goodbye"
        if not graceful:
            # Its goodbye may not have been read yet.
            self._read_children()
        if not child.alive:
            return
        child.torpid = False
        child.become("offline" if graceful else "lost")
        child.error = "" if graceful else f"lost connection: {why}"
        self._by_uuid.pop(child.uuid, None)
        self.broker.router.remove_peer(child)
        if not graceful and not self.broker.stopping:
            silence = self.broker.loop.time() - child.heard
            text = f"{child.title} was lost: {why}, it was last heard {silence:.1f} s ago"
            self.broker.log(logging.ERROR, "overlay", text)
        for msg in child.owing.take():
            self._fail(msg, f"rank {child.rank} was lost")
        for note in disconnects(child.asking.take()):
            self.broker.router.request(note)
        child.account.close()
        ranks = self.topology.subtree(child.rank)
        self.report(offline=ranks, lost=() if graceful else ranks)
        for hook in list(self.on_child_lost):
            hook(child.rank, ranks)
        if not any(other.alive for other in self.children.values()):
            self.on_children_gone()

    def lose_absent(self) -> None:
        """Report the subtrees of children that have never said hello as lost."""
        for child in self.children.values():
            if not child.heard and not child.alive:
                child.error = "it has never connected"
                child.become("lost")
                ranks = self.topology.subtree(child.rank)
                self.report(offline=ranks, lost=ranks)

    def _fail(self, msg: Message, text: str) -> None:
        """Respond for a neighbour that is lost. `msg.routes` is as it was when the request was sent."""
        self.broker.router.response(m.error_response(msg, errno.EHOSTUNREACH, text))

    def report(self, online: Iterable[int] = (), offline: Iterable[int] = (), lost: Iterable[int] = ()) -> None:
        """Report members of this subtree that came or went; rank 0 gets all reports of a turn by `on_members`.

        `lost` are those `offline` that did not leave in order.
        """
        came, went = Idset(online), Idset(offline)
        self._online = (self._online | came) - went
        self._offline = (self._offline | went) - came
        self._torn_off = (self._torn_off | Idset(lost)) - came
        self.broker.router.at_flush(self._send_status)

    def _send_status(self) -> None:
        status = self.status
        if not self._online and not self._offline and status == self._status_sent:
            return
        online, self._online = self._online, Idset()
        offline, self._offline = self._offline, Idset()
        lost, self._torn_off = self._torn_off, Idset()
        if status != self._status_sent:
            self.since = time.monotonic()
        self._status_sent = status
        if self.rank == 0:
            if online or offline:
                self.on_members(online, offline, lost)
            return
        if self._parent is not None:
            body = {"status": status, "online": str(online), "offline": str(offline), "lost": str(lost)}
            self._put(self._parent, m.encode_parts(Message(m.CONTROL, obj=body, aux1=_STATUS)))

    def _child_status(self, child: Child, msg: Message) -> None:
        """Handle a status message. Raises ValueError for an invalid one."""
        body = msg.obj or {}
        status, *members = (body.get(key, "") for key in ("status", "online", "offline", "lost"))
        if not (isinstance(status, str) and all(isinstance(text, str) for text in members)):
            raise ValueError("status, online, offline and lost must be strings")
        came, went, lost = (Idset.parse(text) for text in members)
        if status in ("full", "partial", "degraded"):
            child.become(status)
        mine = Idset(self.topology.subtree(child.rank))
        self.report(came & mine, went & mine, lost & mine)

    @property
    def status(self) -> str:
        """Health of this subtree: full, partial (still coming up) or degraded (something was lost or is torpid)."""
        states = {child.state for child in self.children.values()}
        if states & {"lost", "degraded", "torpid"}:
            return "degraded"
        if states & {"offline", "partial"}:
            return "partial"
        return "full"

    def health(self) -> dict[str, Any]:
        """The response of overlay.health: this broker and its children, durations in seconds."""
        now = time.monotonic()
        kids = [child.health(now) for child in self.children.values()]
        return {"rank": self.rank, "status": self.status, "duration": now - self.since, "children": kids}

    def shape(self, rank: int) -> dict[str, Any]:
        """The response of overlay.topology for the subtree at `rank`."""
        kids = [self.shape(child) for child in self.topology.children(rank)]
        return {"rank": rank, "size": len(self.topology.subtree(rank)), "children": kids}

    def ask_to_leave(self) -> None:
        """Tell the children that this broker is about to end; they end first."""
        for child in self.children.values():
            self._send_child(child, Message(m.CONTROL, aux1=_LEAVE))

    def disconnect(self, rank: int) -> bool:
        """Disconnect a child as if it had been lost; False if `rank` is not a live child."""
        child = self.children.get(rank)
        if child is None or not child.alive:
            return False
        if self._bound is not None:
            bye = m.encode_parts(Message(m.CONTROL, aux1=_GOODBYE))
            self._put(self._bound, [child.uuid.encode(), *bye])
        self._lost(child, "administratively disconnected")
        return True


class _ParentPeer:
    """The parent as a destination of responses."""

    def __init__(self, overlay: Overlay, uuid: str) -> None:
        self.uuid = uuid
        self._overlay = overlay

    def send(self, msg: Message) -> None:
        self._overlay.send_up(msg)
