"""The TBON: one encrypted ZeroMQ link to the parent, one socket for all children (RFC 3, CURVE, ZAP).

A member is authenticated by its CURVE key before any byte of its messages is parsed. A child's hello binds its rank to
its uuid; a second live uuid for a rank is refused. The response tells the child the current state of the instance. A
broker that has not joined yet does not know that state, so it keeps the hellos of its children until it has joined. The
loss of a neighbour is detected by the kernel's timeout or the closed connection: ZeroMQ's monitor reports that some
child has disconnected, and a probe with ROUTER_MANDATORY finds out which. A lost child may rejoin: a new broker of its
rank, with a new uuid, says hello. Reports to the leader (online ranks, health of subtrees) are collected during a turn
and sent once over each link.
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

from headrace.engine.broker.answers import RpcError
from headrace.engine.broker.budget import is_guest
from headrace.engine.broker.tbon.child import Child, Hello, read_hello, refusal
from headrace.engine.broker.tbon.liveness import Liveness, Probes
from headrace.engine.broker.tbon.membership import Membership, decode
from headrace.engine.broker.tbon.outstanding import disconnects, sender_of
from headrace.formats.spec import message as m
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message, MessageError

if TYPE_CHECKING:
    import zmq
    from zmq.backend import Socket

    from headrace.engine.broker.boot.boot import BootInfo
    from headrace.engine.broker.parts import BrokerBase
    from headrace.engine.broker.tbon import sockets as links
    from headrace.engine.broker.tbon.parent import ParentLink
    from headrace.formats.spec.topology import Topology

# CONTROL message types (aux1) of this overlay. Type 4 is liveness.ALIVE, a message without content.
_STATUS = 1
_GOODBYE = 2
_PROBE = 3
_LEAVE = 5


class Overlay:
    """The tree links of one broker. `on_ready` is called when the parent has accepted the hello."""

    def __init__(self, broker: BrokerBase, boot: BootInfo) -> None:
        self.broker = broker
        self.boot = boot
        self.rank = broker.rank
        self.topology = boot.topology
        self.uuid = broker.uuid
        self.children = {rank: Child(rank, self.broker.budget) for rank in boot.topology.children(self.rank)}
        # Called like `Child.changed`, for every child.
        self.on_child_changed: Callable[[Child], None] = lambda _child: None
        self._by_uuid: dict[str, Child] = {}
        # Hellos received before this broker admits children, by the identities of their senders.
        self._admits = self.rank == 0
        self._early: dict[str, tuple[Message, zmq.Frame]] = {}
        self._sockets: links.TreeSockets | None = None
        self.parent: ParentLink | None = None
        self._bound: Socket | None = None
        self._membership = Membership()
        # The time of the last change of this subtree's status.
        self.since = time.monotonic()
        self.closing = False
        self._probes = Probes(broker.loop, self._probe_all)
        self.liveness = Liveness(self)
        self.on_ready: Callable[[dict[str, Any]], None] = lambda _body: None
        self.on_parent_lost: Callable[[str], None] = lambda _why: None
        self.on_members: Callable[[Idset, Idset, Idset], None] = lambda _online, _offline, _lost: None
        self.on_child_lost: list[Callable[[int, frozenset[int]], None]] = []
        self.on_children_gone: Callable[[], None] = lambda: None
        # Called when the parent asks this broker to leave.
        self.on_leave: Callable[[], None] = lambda: None
        # Returns the data about the instance for the response to a child's hello.
        self.answer_hello: Callable[[], dict[str, Any]] = dict
        broker.router.up = self.send_up
        broker.router.toward = self.send_toward
        broker.events.up = self.send_up
        broker.events.down = self.send_down

    # -- life

    def start(self) -> None:
        """Bind for children and say hello to the parent. Raises zmq.ZMQError if the endpoint cannot be bound."""
        if self.topology.size == 1:
            return
        sockets = self._open()
        if self.children:
            self._listen(sockets)
        if self.rank:
            self._connect(sockets)
        self.liveness.start()

    def _open(self) -> links.TreeSockets:
        """The sockets of the tree, created when the first is needed."""
        if self._sockets is None:
            # Imported only here: an instance of one broker starts a tenth faster without ZeroMQ.
            global ParentLink, links, zmq
            import zmq

            from headrace.engine.broker.tbon import sockets as links
            from headrace.engine.broker.tbon.parent import ParentLink

            broker = self.broker
            self._sockets = links.TreeSockets(broker.loop, broker.attrs, self.boot, len(self.children), broker.log)
        return self._sockets

    def _listen(self, sockets: links.TreeSockets) -> None:
        sock = sockets.below()
        sock.bind(self.boot.bind)
        self._bound = sock
        self.broker.attrs.set("tbon.endpoint", links.endpoint_of(sock))
        sockets.watch(sock, self._read_children, lambda _why: self._probes.connection_ended())

    def _connect(self, sockets: links.TreeSockets) -> None:
        self.broker.attrs.set("tbon.parent-endpoint", self.boot.parent_uri)
        if self.boot.parent_unresolved:
            # The address may become known later, so ZeroMQ keeps trying to connect.
            text = f"unable to resolve upstream peer {self.boot.parent_unresolved}"
            self.broker.log(logging.WARNING, "overlay", text)
        self.parent = ParentLink(self.broker, sockets, self.uuid, self._from_parent, self._parent_lost)
        hello = Hello(self.rank, self.uuid, self.boot.hostname)
        self.parent.connect(self.boot.parent_uri, hello.request())

    def grow(self, topology: Topology) -> None:
        """Adapt to a larger tree, and listen for new children of this broker.

        Raises zmq.ZMQError if the endpoint cannot be bound.
        """
        fresh = [rank for rank in topology.children(self.rank) if rank not in self.children]
        if fresh and self._bound is None and not self.closing:
            self._listen(self._open())
        self.topology = topology
        for rank in fresh:
            child = self.children[rank] = Child(rank, self.broker.budget)
            child.changed = self.on_child_changed
        self.liveness.start()
        # Children that have not joined yet make this subtree partial.
        self.report()

    def child_of(self, uuid: str) -> int | None:
        """The rank of the live child with this uuid."""
        child = self._by_uuid.get(uuid)
        return None if child is None else child.rank

    def close(self, in_order: bool = True) -> None:
        """Close every socket. With `in_order`, say goodbye to the parent first.

        The parent then counts this broker as offline instead of lost.
        """
        self.closing = True
        self._probes.close()
        if in_order and self.parent is not None and self.parent.uuid:
            self.parent.transmit(Message(m.CONTROL, aux1=_GOODBYE))
        bound, self.parent, self._bound = self._bound, None, None
        if self._sockets is not None:
            self._sockets.close()
            self._sockets = None
        if bound is not None and self.boot.bind.startswith("ipc://"):
            # ZeroMQ does not remove the file, and the run directory may be kept.
            with contextlib.suppress(OSError):
                os.unlink(self.boot.bind.removeprefix("ipc://"))

    # -- sending

    def _put(self, sock: Socket, parts: list[bytes]) -> bool:
        """Send to a child. False if it is not connected."""
        if not links.put(sock, parts):
            return False
        # ZeroMQ's descriptor is edge-triggered, and a send may consume the edge, so the socket is read after this turn.
        self.broker.router.at_turn_end(self._read_children)
        return True

    def send_up(self, msg: Message) -> bool:
        """Send toward rank 0. False without a parent."""
        parent = self.parent
        return parent is not None and parent.send(msg)

    def stats(self) -> dict[str, int]:
        """The number of neighbours, and of requests without a response."""
        return {
            "child-count": len(self.children),
            "child-connected": sum(child.alive for child in self.children.values()),
            "parent-count": int(self.rank > 0),
            "parent-rpc": 0 if self.parent is None else len(self.parent.sent_requests),
            "child-rpc": sum(len(child.received_requests) for child in self.children.values()),
        }

    def send_toward(self, msg: Message, rank: int) -> bool:
        """Send one hop toward `rank`. False if the rank does not exist or the hop is down."""
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
            child.sent_requests.passed(msg, sender_of(msg))
            msg.forget_body()
        elif msg.type == m.RESPONSE:
            child.received_requests.answered(msg, sender_of(msg))
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

    def _from_parent(self, msg: Message) -> None:
        router, parent = self.broker.router, self.parent
        if parent is None:
            return
        if not parent.uuid:
            if msg.type == m.RESPONSE and msg.topic == "overlay.hello":
                self._hello_answered(parent, msg)
            return
        if msg.type == m.REQUEST:
            msg.routes.append(parent.uuid.encode())
            router.request(msg)
        elif msg.type == m.RESPONSE:
            router.response(msg)
        elif msg.type == m.EVENT:
            self.broker.events.deliver(msg)
        elif msg.type == m.CONTROL and msg.aux1 == _GOODBYE:
            self._parent_lost("parent said goodbye")
        elif msg.type == m.CONTROL and msg.aux1 == _LEAVE:
            self.on_leave()

    def _hello_answered(self, parent: ParentLink, msg: Message) -> None:
        if msg.errnum:
            self._parent_lost(f"hello refused: {msg.text or msg.errnum}")
            return
        body = msg.obj or {}
        parent.uuid = str(body.get("uuid", ""))
        self.broker.router.add_neighbour(parent)
        self.on_ready(body)
        self.admit()

    def admit(self) -> None:
        """Admit children from now on, beginning with those that said hello earlier."""
        self._admits = True
        early, self._early = self._early, {}
        for identity, (msg, origin) in early.items():
            self._hello(identity, msg, origin)

    def _parent_lost(self, why: str) -> None:
        if self.closing:
            return
        self.closing = True
        parent, self.parent = self.parent, None
        for msg in parent.end() if parent is not None else ():
            self._fail(msg, "the parent broker was lost")
        self.on_parent_lost(why)

    def _read_children(self) -> None:
        for _ in range(links.BATCH):
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
                # One invalid message must not block the messages behind it.
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
            child.received_requests.passed(msg, sender_of(msg))
            msg.routes.append(identity.encode())
            msg.flags |= m.FLAG_ROUTE
            router.request(msg)
        elif msg.type == m.RESPONSE:
            child.sent_requests.answered(msg, sender_of(msg))
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
                self._sockets.refusals.log_hello(origin, host, text)
            answer(m.error_response(msg, errnum, text))

        try:
            hello = read_hello(msg)
        except MessageError as exc:
            refuse(errno.EPROTO, str(exc))
            return
        host = hello.host
        wrong = refusal(hello, identity, self.children, self.boot)
        if wrong:
            refuse(errno.EINVAL, wrong)
            return
        child = self.children[hello.rank]
        if child.alive:
            self._probe(child)
        if child.alive:
            refuse(errno.EEXIST, f"rank {child.rank} is already here as {child.uuid}")
            return
        child.host = host
        if child.status == "lost":
            away = time.monotonic() - child.since
            self.broker.log(logging.ERROR, "overlay", f"{child.title} is back, {away:.1f} s after it was lost")
        child.join(identity, self.broker.loop.time(), "partial" if self.topology.children(child.rank) else "full")
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
        """True if the peer with this identity is still connected."""
        probe = m.encode_parts(Message(m.CONTROL, aux1=_PROBE))
        return self._bound is not None and self._put(self._bound, [identity.encode(), *probe])

    def _probe_all(self) -> None:
        for child in list(self.children.values()):
            self._probe(child)
        # Drop the hellos of peers that disconnected before a response: they were not children, so no loss is reported.
        self._early = {identity: hello for identity, hello in self._early.items() if self._reaches(identity)}

    def _lost(self, child: Child, why: str) -> None:
        graceful = why == "goodbye"
        if not graceful:
            # The child's goodbye may still be in the socket.
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
        for msg in child.sent_requests.take():
            self._fail(msg, f"rank {child.rank} was lost")
        for note in disconnects(child.received_requests.take()):
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
        """Respond in place of a lost neighbour. `msg.routes` must be the same as when the request was sent."""
        self.broker.router.response(m.error_response(msg, errno.EHOSTUNREACH, text))

    def report(self, online: Iterable[int] = (), offline: Iterable[int] = (), lost: Iterable[int] = ()) -> None:
        """Report changes of this subtree's members. Rank 0 passes all reports of a turn to `on_members`.

        `lost` are the ranks in `offline` that did not leave in order.
        """
        self._membership.change(online, offline, lost)
        self.broker.router.at_flush(self._send_status)

    def _send_status(self) -> None:
        report, is_new = self._membership.take(self.status)
        if report is None:
            return
        if is_new:
            self.since = time.monotonic()
        if self.rank == 0:
            if report.online or report.offline:
                self.on_members(report.online, report.offline, report.lost)
        elif self.parent is not None:
            self.parent.transmit(Message(m.CONTROL, obj=report.encode(), aux1=_STATUS))

    def _child_status(self, child: Child, msg: Message) -> None:
        """Handle a status message. Raises ValueError for an invalid one."""
        report = decode(msg.obj or {})
        if report.status in ("full", "partial", "degraded"):
            child.become(report.status)
        mine = Idset(self.topology.subtree(child.rank))
        self.report(report.online & mine, report.offline & mine, report.lost & mine)

    @property
    def status(self) -> str:
        """The health of this subtree: full, partial (still joining) or degraded (members lost or torpid)."""
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
        """Tell the children that this broker is about to end, so that they end first."""
        for child in self.children.values():
            self._send_child(child, Message(m.CONTROL, aux1=_LEAVE))

    def disconnect(self, rank: int) -> bool:
        """Disconnect a child as if it had been lost. False if `rank` is not a live child."""
        child = self.children.get(rank)
        if child is None or not child.alive:
            return False
        if self._bound is not None:
            bye = m.encode_parts(Message(m.CONTROL, aux1=_GOODBYE))
            self._put(self._bound, [child.uuid.encode(), *bye])
        self._lost(child, "administratively disconnected")
        return True
