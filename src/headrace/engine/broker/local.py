"""The local socket: connections of local clients (RFC 3 framing, credentials from the kernel).

The peer's uid is read before its first byte is parsed. A uid without access gets one errno byte and is disconnected.
Writes are collected during a loop turn and sent in one system call per client. If a client does not read, its streams
pause, then its requests are not read, and finally it is disconnected, so no queue grows without bound. Memory for
guests is charged to their budgets (`budget.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import socket
import struct
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message, MessageError

from .answers import RpcError
from .budget import ENTRY, Account, is_guest
from .guest_frames import GuestFrames
from .router import new_uuid
from .tbon.outstanding import Outstanding, sender_of

if TYPE_CHECKING:
    from .parts import BrokerBase

# Limits for a client's unread output in bytes. From PAUSE_AT on its streams pause, and from STOP_AT on its requests are
# not read. Beyond DROP_AT it is disconnected, or beyond DROP_ANSWERS_AT if all of the output is single responses to its
# own requests, which may be large. STOP_AT is much higher than PAUSE_AT because a client that is writing usually does
# not read: if the broker stopped reading its requests at PAUSE_AT, both sides would deadlock.
PAUSE_AT = 1 << 20
STOP_AT = 16 << 20
DROP_AT = 64 << 20
DROP_ANSWERS_AT = 1 << 30
# SHARE: messages of one client that are routed before the other clients get their turn. HOLD_AT: once more bytes than
# this wait for their turn, the client is not read. A client with thousands of requests does not delay the others.
SHARE = 16
HOLD_AT = 1 << 18
# The largest message of a guest in bytes. The largest messages that guests need are values for their own KVS
# namespaces. GUEST_PAUSE_AT is PAUSE_AT for a guest: beyond it, the unread output is charged until the guest has read
# all of it.
GUEST_FRAME = 16 << 20
GUEST_PAUSE_AT = 64 << 10
# The most services (counted once per broker) that one client may call: each gets a disconnect request when it leaves.
MOST_SERVICES = 1 << 16
# Connections to accept in one loop turn, and seconds between two log lines about a lack of descriptors.
_AT_ONCE = 32
_QUIET = 60.0
_CRED = struct.Struct("3i")
# Bits that `flux module debug` sets for `connector-local`, as in flux-core: refuse the next client, or treat it as a
# guest even if it is the owner.
_REFUSE_NEXT, _NEXT_IS_GUEST = 1, 4
_COUNTED = {m.REQUEST: "request", m.RESPONSE: "response", m.EVENT: "event", m.CONTROL: "control"}


class LocalClient(asyncio.BufferedProtocol):
    """One connection. Its credential is stamped on every message at ingress (RFC 12)."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.broker = server.broker
        self.uuid = new_uuid()
        self._route = self.uuid.encode()
        # Prefix for the first route of a guest's request that already has routes (from `flux proxy`). Services identify
        # a sender by its first route, so a guest could otherwise impersonate another client by writing its uuid there.
        self._guest_prefix = self._route + b"/"
        self.userid = m.USERID_UNKNOWN
        self.rolemask = m.ROLE_NONE
        self._transport: asyncio.Transport | None = None
        self._deframer = m.Deframer()
        self._out: list[bytes] = []
        # True if the unread output has anything but single responses to this client's own requests.
        self._streams = False
        self._used: set[tuple[str, int, int]] = set()
        # Bytes charged to a guest for `_used`.
        self._used_size = 0
        # Requests to services of this client that it has not answered. None before the first: few clients provide
        # services.
        self._unanswered: Outstanding | None = None
        # True while the unread output is above PAUSE_AT (streams pause), and above STOP_AT (requests are not read).
        self._paused = False
        self._stopped = False
        # True while the deframer may hold messages beyond the client's share.
        self._waits = False
        self._drained: list[Callable[[], None]] = []
        # The account for guests behind this connection. It is created for a guest, or for the first message with a
        # guest's credential.
        self.account: Account | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock: socket.socket = transport.get_extra_info("socket")
        _pid, uid, _gid = _CRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CRED.size))
        rolemask = self.server.role_of(uid)
        if rolemask == m.ROLE_NONE:
            self._turn_away(errno.EPERM)
            return
        self.userid, self.rolemask = uid, rolemask
        self._transport.set_write_buffer_limits(high=PAUSE_AT)
        if not rolemask & m.ROLE_OWNER:
            try:
                self.broker.budget.charge(uid, "connections")
            except RpcError as exc:
                self._turn_away(exc.errnum)
                return
            self.account = Account(self.broker.budget)
            self._deframer = GuestFrames(GUEST_FRAME, self._reserve, self._refuse_unread)
            self._transport.set_write_buffer_limits(high=GUEST_PAUSE_AT, low=0)
        self._transport.write(b"\0")
        self.server.clients.add(self)
        self.broker.router.add_peer(self)

    def _turn_away(self, errnum: int) -> None:
        assert self._transport is not None
        self._transport.write(bytes((errnum,)))
        self._transport.close()
        self._transport = None

    def _reserve(self, size: int) -> None:
        """Charge for a message of `size` bytes whose first bytes have arrived. Raises RpcError."""
        assert self.account is not None
        self.account.charge(self.userid, "input", size)

    def _refuse_unread(self, msg: Message, error: RpcError) -> None:
        """Refuse a request whose payload was not kept."""
        if msg.type == m.REQUEST:
            msg.routes.append(self._route)
            self.broker.router.refuse(msg, error.errnum, error.text)

    def _count_input(self) -> None:
        """Charge a guest for its incomplete message and for messages that wait for their turn."""
        if self.account is not None and isinstance(self._deframer, GuestFrames):
            self.account.charge(self.userid, "input", self._deframer.held, checked=False)

    def _count_output(self) -> None:
        """Charge a guest for its unread output."""
        if self.account is not None and self.is_guest and self._transport is not None:
            unread = self._transport.get_write_buffer_size() if self._paused else 0
            self.account.charge(self.userid, "output", unread, checked=False)

    def _within_budget(self, msg: Message, data: bytes) -> bytes:
        """The frame to send to a guest: `data`, or an error if a response is too large for the guest's budget.

        A guest that leaves a stream unread until its budget is used up is disconnected.
        """
        assert self._transport is not None and self.account is not None
        waiting = self._transport.get_write_buffer_size() + sum(map(len, self._out))
        try:
            self.account.charge(self.userid, "output", waiting + len(data))
        except RpcError as exc:
            if msg.type == m.RESPONSE and not msg.flags & m.FLAG_STREAMING:
                return m.frame(m.error_response(msg, exc.errnum, exc.text))
            self._drop(exc)
        return data

    @property
    def is_guest(self) -> bool:
        return not self.rolemask & m.ROLE_OWNER

    def _charge(self, msg: Message) -> bool:
        """Charge for a guest's request or event. If it exceeds the budget, refuse it and return False."""
        if self.account is None:
            self.account = Account(self.broker.budget)
        # The bytes of the message are charged as a request from here on.
        self.account.charge(self.userid, "input", 0, checked=False)
        try:
            if msg.type == m.REQUEST:
                if not msg.flags & m.FLAG_NORESPONSE:
                    self._charge_service(msg)
                self.account.open(msg)
            else:
                self.broker.budget.check_uncounted(msg)
        except RpcError as exc:
            if msg.type == m.REQUEST:
                msg.routes.append(self._route)
                self.broker.router.refuse(msg, exc.errnum, exc.text)
            return False
        return True

    def _charge_service(self, msg: Message) -> None:
        """Charge a guest for the first call of a service, which will get a disconnect request.

        Raises RpcError.
        """
        service = _service_of(msg)
        if self.account is not None and self.is_guest and service not in self._used:
            size = self._used_size + ENTRY + len(service[0])
            self.account.charge(self.userid, "services", size)
            self._used_size = size

    def when_drained(self, then: Callable[[], None]) -> None:
        """Call `then` when the client has read most of its output or has disconnected."""
        if self._paused:
            self._drained.append(then)
        else:
            then()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._stopped = False
        self._count_output()
        if self._waits:
            self.broker.router.when_free(self._accept_share)
        self._resume_reading()
        self._answer_drained()

    def _answer_drained(self) -> None:
        drained, self._drained = self._drained, []
        for then in drained:
            then()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.broker.receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        transport = self._transport
        if transport is None:
            return
        try:
            self._deframer.feed(self.broker.receive_buffer[:nbytes])
        except MessageError as exc:
            self._drop(exc)
            return
        if not self._waits:
            self._accept_share()
        elif self._deframer.pending > HOLD_AT:
            transport.pause_reading()
        self._count_input()

    def _accept_share(self) -> None:
        if self._stopped:
            self._waits = True
            return
        self._waits = self._route_messages(SHARE)
        if self._waits:
            self.broker.router.when_free(self._accept_share)
        else:
            self._resume_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and not (self._stopped or self._waits):
            self._transport.resume_reading()

    def _route_messages(self, most: int) -> bool:
        """Route up to `most` messages of this client (-1: all). True if there may be more."""
        try:
            for msg in self._deframer:
                self._receive(msg)
                most -= 1
                if not most:
                    return True
        except MessageError as exc:
            self._drop(exc)
        self._count_input()
        return False

    def _drop(self, why: Exception) -> None:
        self.broker.log(logging.WARNING, "connector-local", f"client of uid {self.userid} dropped: {why}")
        self.close()

    def _receive(self, msg: Message) -> None:
        if self.rolemask & m.ROLE_OWNER:
            # The owner may send messages with a lesser credential, as tests and gateways do.
            if msg.userid == m.USERID_UNKNOWN:
                msg.userid = self.userid
            if msg.rolemask == m.ROLE_NONE:
                msg.rolemask = self.rolemask
        else:
            msg.userid, msg.rolemask = self.userid, self.rolemask
        kind = msg.type
        self.server.sent[kind] += 1
        if kind == m.REQUEST:
            msg.flags |= m.FLAG_ROUTE
            if self.is_guest and msg.routes:
                msg.routes = [self._guest_prefix + msg.routes[0], *msg.routes[1:]]
            # Charge before the route is appended: `send` sees a response after this route was removed.
            if is_guest(msg) and not self._charge(msg):
                return
            msg.routes.append(self._route)
            if not msg.flags & m.FLAG_NORESPONSE:
                self._used.add(_service_of(msg))
                if len(self._used) > MOST_SERVICES:
                    raise MessageError(f"it called more than {MOST_SERVICES} services")
            self.broker.router.request(msg)
        elif kind == m.RESPONSE:
            if self.is_guest:
                # A guest provides no service, so no request was sent to it.
                return
            if self._unanswered is not None:
                self._unanswered.answered(msg, sender_of(msg))
            self.broker.router.response(msg)
        elif kind == m.EVENT:
            # A guest must not publish events in a service's name.
            if is_guest(msg) and (self.broker.router.service_of(msg.topic) or not self._charge(msg)):
                return
            msg.routes.clear()
            self.broker.events.publish(msg)

    def send(self, msg: Message) -> None:
        """Queue `msg` to be written at the end of this loop turn."""
        if self._transport is None:
            if msg.type == m.REQUEST:
                # The request was queued before the client disconnected.
                self._refuse(msg)
            return
        if msg.type == m.REQUEST:
            if self._unanswered is None:
                self._unanswered = Outstanding()
            self._unanswered.passed(msg, sender_of(msg))
        if self.account is not None and msg.type == m.RESPONSE:
            self.account.answered(msg)
        if self.is_guest and msg.routes and msg.routes[0].startswith(self._guest_prefix):
            msg.routes = [msg.routes[0][len(self._guest_prefix) :], *msg.routes[1:]]
        data = m.frame(msg)
        if self.account is not None and self.is_guest:
            data = self._within_budget(msg, data)
        if not self._out:
            self.broker.router.at_turn_end(self._write)
        self.server.received[msg.type] += 1
        if msg.type != m.RESPONSE or msg.flags & m.FLAG_STREAMING:
            self._streams = True
        self._out.append(data)

    def _refuse(self, msg: Message) -> None:
        """Refuse a request to a service whose client has disconnected."""
        service = msg.topic.partition(".")[0]
        self.broker.router.refuse(msg, errno.ENOSYS, f"the client that provided service {service} has disconnected")

    def forget_request(self, sender: bytes, matchtag: int) -> None:
        """Forget a request to a service of this client: its sender no longer waits for responses."""
        if self._unanswered is not None:
            self._unanswered.forget(sender, matchtag)

    def _write(self) -> None:
        out, self._out = self._out, []
        most = DROP_AT if self._streams else DROP_ANSWERS_AT
        self._streams = False
        transport = self._transport
        if transport is None or not out:
            return
        if transport.get_write_buffer_size() <= most:
            transport.write(b"".join(out))
            self._count_output()
            if not self._stopped and transport.get_write_buffer_size() > STOP_AT:
                self._stopped = True
                transport.pause_reading()
        else:
            text = f"client of uid {self.userid} dropped: it left {most >> 20} MiB unread"
            self.broker.log(logging.WARNING, "connector-local", text)
            self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        if self._waits:
            # Carry out the requests that were sent before the disconnection.
            self._route_messages(-1)
        # asyncio's transport refers to itself by a bound method. Without this reference it is freed at once.
        getattr(self._transport, "__dict__", {}).pop("_read_ready_cb", None)
        self._transport = None
        # A guest's deframer refers to this client and may hold an incomplete message.
        self._deframer = m.Deframer()
        self._paused = False
        self._answer_drained()
        self.server.clients.discard(self)
        broker = self.broker
        broker.router.remove_peer(self)
        broker.events.drop(self)
        for msg in self._unanswered.take() if self._unanswered is not None else ():
            self._refuse(msg)
        for service, nodeid, upstream in self._used:
            note = m.request(service + ".disconnect", None, nodeid, 0, upstream, self.userid, self.rolemask)
            note.routes.append(self._route)
            broker.router.request(note)
        if self.account is not None:
            self.account.close()
            self.account = None
            if self.is_guest:
                broker.budget.credit(self.userid, "connections")


def _service_of(msg: Message) -> tuple[str, int, int]:
    """The key of a request in `_used`: service, rank and the upstream flag."""
    return msg.topic.rpartition(".")[0], msg.aux1, msg.flags & m.FLAG_UPSTREAM


def is_admin(access: dict[str, Any], uid: int) -> bool:
    """True if the table `[access]` gives user `uid` the admin role."""
    admin = access.get("roles", {}).get("admin", {})
    users, groups = admin.get("users", ()), admin.get("groups", ())
    if not users and not groups:
        return False
    # Imported here, since few instances assign the role by name.
    import grp
    import pwd

    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return False
    if user.pw_name in users:
        return True
    return bool(groups) and any(_name(grp, gid) in groups for gid in os.getgrouplist(user.pw_name, user.pw_gid))


def _name(grp: Any, gid: int) -> str:
    try:
        name: str = grp.getgrgid(gid).gr_name
    except KeyError:
        return ""
    return name


class Debugged(Protocol):
    """A service with debug bits."""

    debug: int


class LocalServer:
    """The listening socket at `path`.

    Its mode is 0777 and its folder is private: access is decided by the credential check.
    """

    def __init__(self, broker: BrokerBase, path: str) -> None:
        self.broker = broker
        self.path = path
        # Holds the debug bits that `flux module debug connector-local` sets.
        self.connector: Debugged
        self.clients: set[LocalClient] = set()
        self._listener: socket.socket | None = None
        # A spare descriptor, closed to accept and refuse a client when no other descriptor is free.
        self._spare = -1
        self._quiet_until = 0.0
        self._link = ""
        self.clear_stats()

    def clear_stats(self) -> None:
        # Messages by type: `sent` by clients to the broker, and `received` by clients.
        self.sent = dict.fromkeys(_COUNTED, 0)
        self.received = dict.fromkeys(_COUNTED, 0)

    def stats(self) -> dict[str, dict[str, int]]:
        """Message counts by type, as Flux counts them: `tx` into the broker, `rx` out of it."""
        tables = {"tx": self.sent, "rx": self.received}
        return {way: {name: table[kind] for kind, name in _COUNTED.items()} for way, table in tables.items()}

    def role_of(self, uid: int) -> int:
        """The rolemask of a uid by the table [access], ROLE_NONE if it may not connect.

        A debug bit of `connector-local` refuses the next client, or makes it a guest.
        """
        if self._debug_bit(_REFUSE_NEXT):
            self.broker.log(logging.ERROR, "connector-local", f"connect by uid={uid} denied by debug flag")
            return m.ROLE_NONE
        if self._debug_bit(_NEXT_IS_GUEST):
            return m.ROLE_USER | m.ROLE_LOCAL
        owner = self.broker.owner
        access = self.broker.config.get("access", {})
        if uid == owner or (uid == 0 and access.get("allow-root-owner") is True):
            return m.ROLE_OWNER | m.ROLE_LOCAL
        if access.get("allow-guest-user") is True:
            return m.ROLE_USER | m.ROLE_LOCAL | (m.ROLE_ADMIN if is_admin(access, uid) else 0)
        return m.ROLE_NONE

    def _debug_bit(self, bit: int) -> bool:
        """True if a debug bit of `connector-local` is set. Clears the bit, which applies to one client only."""
        connector = self.connector
        found = bool(connector.debug & bit)
        connector.debug &= ~bit
        return found

    def start(self) -> None:
        """Listen. Raises OSError, also if another instance listens in this run directory."""
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._bind(self._listener)
        except OSError as exc:
            # The error of bind(2) does not name the path.
            raise OSError(exc.errno, exc.strerror, self.path) from None
        self._listener.listen(256)
        self._listener.setblocking(False)
        os.chmod(self.path, 0o777)
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self.broker.loop.add_reader(self._listener, self._accept_connections)
        self._link = link_command(os.path.dirname(self.path))

    def _bind(self, listener: socket.socket) -> None:
        try:
            listener.bind(self.path)
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(self.path) == 0:
                    raise OSError(errno.EADDRINUSE, "another instance listens there, choose another rundir") from None
            # The socket of a broker that was killed.
            os.unlink(self.path)
            listener.bind(self.path)

    def _accept_connections(self) -> None:
        """Accept clients.

        A server of asyncio would retry without a pause when there are no descriptors left.
        """
        assert self._listener is not None
        for _ in range(_AT_ONCE):
            try:
                sock, _address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as exc:
                self._refuse(exc)
                return
            sock.setblocking(False)
            self.broker.spawn(self.broker.loop.connect_accepted_socket(lambda: LocalClient(self), sock))

    def _refuse(self, exc: OSError) -> None:
        """Refuse the next client when no descriptor is free.

        Closes the spare descriptor, accepts the client, and answers with the errno.
        """
        assert self._listener is not None
        os.close(self._spare)
        with contextlib.suppress(OSError), self._listener.accept()[0] as sock:
            sock.send(bytes((exc.errno or errno.EMFILE,)))
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        now = self.broker.loop.time()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET
            self.broker.log(logging.ERROR, "connector-local", f"clients are refused: {exc.strerror} (ulimit -n)")

    def stop(self) -> None:
        """Close all clients at the end of this loop turn."""
        if self._spare >= 0:
            assert self._listener is not None
            self.broker.loop.remove_reader(self._listener)
            self._listener.close()
            os.close(self._spare)
            self._spare = -1
            for client in list(self.clients):
                client._write()
                if client._transport is not None:
                    client._transport.close()
            with contextlib.suppress(OSError):
                os.unlink(self.path)
            if self._link:
                with contextlib.suppress(OSError):
                    os.unlink(self._link)
                    os.rmdir(os.path.dirname(self._link))


def link_command(rundir: str) -> str:
    """Link our `flux` command as RUNDIR/bin/flux, the first path that ssh from other hosts tries.

    Returns the path of the link, or "" if another broker of this run directory has made it, or if our command is not
    found.
    """
    folder = os.path.join(rundir, "bin")
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "flux")
    command = beside if os.access(beside, os.X_OK) else shutil.which("flux")
    if command is None:
        return ""
    try:
        os.makedirs(folder, exist_ok=True)
        os.symlink(command, os.path.join(folder, "flux"))
    except OSError:
        # Without the link, ssh finds no command or another one. Nothing else depends on it.
        return ""
    return os.path.join(folder, "flux")
