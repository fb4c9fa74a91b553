"""The service's connections to its broker, within an asyncio loop.

Requests share one connection. If it is lost, the next request makes a new one. A long stream, such as a job's output,
has a connection of its own, which is not read while its reader is behind. So a slow reader delays no other request, and
the broker limits the data that it queues for such a connection.

`Connection.ask` makes all requests, and stamps each with the credential of its user. The broker decides what this user
may do, as for a user who connects to its socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from headrace.formats.spec.message import (
    FLAG_STREAMING,
    NODEID_ANY,
    ROLE_NONE,
    USERID_UNKNOWN,
    Deframer,
    Message,
    MessageError,
    frame,
    request,
)
from headrace.service.users.credential import Identity
from headrace.wire.client.handle import response_error
from headrace.wire.client.transport import DEFAULT_URI, connect

# Bytes of a stream that are buffered for its reader. While more are buffered, its connection is not read.
UNREAD_LIMIT = 1 << 20
# Seconds, longer than a healthy broker takes.
GREETING_TIMEOUT = 10.0
ANSWER_TIMEOUT = 60.0
_RECV_SIZE = 1 << 18
# Topics of requests that the service makes with the owner's credential; all other requests have that of a user.
OWN_TOPICS = frozenset(
    (
        *("attr.get", "config.get", "job-manager.events-journal", "shutdown.start"),
        # Counters for /metrics. They name neither jobs nor users.
        *("broker.stats-get", "job-list.job-stats", "job-list.metrics", "job-manager.stats-get"),
        *("resource.sched-status", "resource.status"),
    )
)
_JOBS, _ONE_JOB, _WHY = "job-list.list", "job-list.list-id", "accounting.why"

# The errnos of a broker that lacks a service because it is starting or stopping.
AWAY = frozenset((errno.ENOSYS, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ESHUTDOWN))


class BrokerUnreachable(ConnectionError):
    """The broker cannot be reached, or has not answered. The text is for users."""

    def __init__(self, text: str) -> None:
        # The connection's own errno could be mistaken for the errno of a response from the broker.
        super().__init__(errno.EHOSTUNREACH, text)


class Call:
    """The responses to one request, in order of arrival."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._inbox: deque[Message] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._unread = 0

    def deliver(self, msg: Message) -> None:
        self._inbox.append(msg)
        self._unread += len(msg.payload or b"")
        if self._unread > UNREAD_LIMIT:
            self._connection.pause()
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self, timeout: float | None = ANSWER_TIMEOUT) -> Message:
        """The next response. Raises BrokerUnreachable, and OSError with the broker's errno and text."""
        while not self._inbox:
            if self._connection.lost:
                raise BrokerUnreachable(f"{self._topic}: {self._connection.lost}")
            self._waiter = self._connection.loop.create_future()
            try:
                await asyncio.wait_for(self._waiter, timeout)
            except asyncio.TimeoutError:
                text = f"{self._topic}: the broker has not answered within {timeout:.0f} s"
                raise BrokerUnreachable(text) from None
        msg = self._inbox.popleft()
        self._unread -= len(msg.payload or b"")
        if not self._inbox:
            self._connection.resume()
        if msg.errnum:
            raise response_error(msg)
        return msg


class Connection:
    """One socket to the broker, in the running loop.

    A `paced` connection has one call, and is read no faster than the reader of the call reads.
    """

    def __init__(self, sock: socket.socket, paced: bool) -> None:
        sock.setblocking(False)
        self.loop = asyncio.get_running_loop()
        # Why the connection was lost, "" while it is usable.
        self.lost = ""
        self._sock = sock
        self._deframer = Deframer()
        self._calls: dict[int, Call] = {}
        self._next_tag = 1
        self._unsent = bytearray()
        self._paced = paced
        self._paused = False
        self.loop.add_reader(sock, self._read)

    def ask(
        self,
        identity: Identity | None,
        topic: str,
        obj: Any,
        flags: int = 0,
        nodeid: int = NODEID_ANY,
        payload: bytes | None = None,
    ) -> Call:
        """Send a request as a user; with an identity of None as the service, which may use OWN_TOPICS only.

        The payload is `obj` as JSON, or `payload` unchanged.
        """
        # A message without a userid gets the credential of the connection, which is the owner's (RFC 12).
        userid, rolemask = USERID_UNKNOWN, ROLE_NONE
        if identity is not None:
            userid, rolemask = identity.userid, identity.rolemask
        elif topic not in OWN_TOPICS:
            raise PermissionError(errno.EPERM, f"{topic} is asked for a user, never for the service itself")
        tag = self._next_tag
        self._next_tag += 1
        call = self._calls[tag] = Call(self, topic)
        if not self.lost:
            self._unsent += frame(request(topic, obj, nodeid, tag, flags, userid, rolemask, payload))
            self._write()
        return call

    def close(self, why: str = "the connection was closed") -> None:
        if self.lost:
            return
        self.lost = why
        if not self.loop.is_closed():
            self.loop.remove_reader(self._sock)
            self.loop.remove_writer(self._sock)
        self._sock.close()
        for call in self._calls.values():
            call.wake()

    def pause(self) -> None:
        """Stop reading a paced connection until its call has delivered all buffered responses."""
        if self._paced and not self._paused and not self.lost:
            self._paused = True
            self.loop.remove_reader(self._sock)

    def resume(self) -> None:
        if self._paused and not self.lost:
            self._paused = False
            self.loop.add_reader(self._sock, self._read)

    def _write(self) -> None:
        try:
            sent = self._sock.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError as exc:
            self.close(f"the broker has closed the connection: {exc.strerror}")
            return
        del self._unsent[:sent]
        if self._unsent:
            self.loop.add_writer(self._sock, self._write)
        else:
            self.loop.remove_writer(self._sock)

    def _read(self) -> None:
        try:
            data = self._sock.recv(_RECV_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close("the broker has closed the connection")
            return
        self._deframer.feed(data)
        try:
            for msg in self._deframer:
                self._dispatch(msg)
        except MessageError as exc:
            self.close(f"the broker has sent an invalid message: {exc}")

    def _dispatch(self, msg: Message) -> None:
        call = self._calls.get(msg.matchtag)
        if call is None:
            return
        if msg.errnum or not msg.streaming:
            del self._calls[msg.matchtag]
        call.deliver(msg)


class Broker:
    """The broker at `uri` (default: FLUX_URI, else the system instance), used by one loop at a time."""

    def __init__(self, uri: str = "") -> None:
        self.uri = uri or os.environ.get("FLUX_URI") or DEFAULT_URI
        self._shared: Connection | None = None
        self._connecting: asyncio.Future[Connection] | None = None
        self._followed: set[Connection] = set()

    def link(self, identity: Identity | None) -> BrokerLink:
        """The link of a user; with None the link of the service, for OWN_TOPICS only."""
        return BrokerLink(self, identity)

    def close(self) -> None:
        """Close all connections. Streams end with BrokerUnreachable. A later call makes a new connection."""
        for connection in (*self._followed, *([self._shared] if self._shared else [])):
            connection.close()

    @contextlib.asynccontextmanager
    async def paced_connection(self) -> AsyncIterator[Connection]:
        """A connection for one stream. Raises BrokerUnreachable."""
        connection = await _connect(self.uri, paced=True)
        self._followed.add(connection)
        try:
            yield connection
        finally:
            self._followed.discard(connection)
            connection.close()

    async def connection(self) -> Connection:
        """The connection that all requests of this loop share. Raises BrokerUnreachable."""
        loop = asyncio.get_running_loop()
        shared = self._shared
        if shared is not None and not shared.lost and shared.loop is loop:
            return shared
        if shared is not None:
            shared.close()
        # Concurrent requests wait for the same new connection.
        pending = self._connecting
        if pending is None or pending.get_loop() is not loop:
            pending = self._connecting = asyncio.ensure_future(_connect(self.uri))
        try:
            self._shared = await asyncio.shield(pending)
        finally:
            if pending.done() and self._connecting is pending:
                self._connecting = None
        return self._shared


class BrokerLink:
    """The broker for one user. All requests have the credential of `identity` (None: the service's own)."""

    def __init__(self, broker: Broker, identity: Identity | None) -> None:
        self.identity = identity
        self._broker = broker

    @property
    def uri(self) -> str:
        return self._broker.uri

    @property
    def userid(self) -> int | None:
        """The userid of the requests; None for the service's own."""
        return self.identity.userid if self.identity else None

    async def call(self, topic: str, obj: Any = None, nodeid: int = NODEID_ANY, payload: bytes | None = None) -> Any:
        """Send a request and return the object of its response (None without payload).

        Raises BrokerUnreachable, and OSError with the broker's errno and text.
        """
        asked = self._of_own_jobs(topic, obj)
        connection = await self._broker.connection()
        answer = (await connection.ask(self.identity, topic, asked, nodeid=nodeid, payload=payload).next()).obj
        if topic == _ONE_JOB and self._sees_own_only and answer["job"]["userid"] != self.userid:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return answer

    async def gather(self, topic: str, obj: Any) -> list[Any]:
        """The objects of all responses of a streaming method that ends by itself. Raises as `call` does."""
        asked = self._of_own_jobs(topic, obj)
        call = (await self._broker.connection()).ask(self.identity, topic, asked, FLAG_STREAMING)
        return [answer async for answer in _objects(call, ANSWER_TIMEOUT)]

    @property
    def _sees_own_only(self) -> bool:
        return self.identity is not None and not self.identity.sees_all

    def _of_own_jobs(self, topic: str, obj: Any) -> Any:
        """Limit a request about jobs to the user's own jobs, unless the user sees all jobs.

        The broker does so only with `access.private-mode`; a service with several users always does.
        """
        if not self._sees_own_only:
            return obj
        if topic == _JOBS:
            mine = {"userid": [self.userid]}
            return {**obj, "constraint": {"and": [obj["constraint"], mine]} if obj.get("constraint") else mine}
        if topic == _ONE_JOB and "all" not in obj["attrs"]:
            return {**obj, "attrs": [*obj["attrs"], "userid"]}
        if topic == _WHY:
            return {**obj, "only_userid": self.userid}
        return obj

    async def follow(self, topic: str, obj: Any) -> AsyncIterator[Any]:
        """The objects of a streaming method as they arrive, over a new connection. Raises as `call` does."""
        async with self._broker.paced_connection() as connection:
            asked = self._of_own_jobs(topic, obj)
            async for answer in _objects(connection.ask(self.identity, topic, asked, FLAG_STREAMING), None):
                yield answer


async def _objects(call: Call, timeout: float | None) -> AsyncIterator[Any]:
    while True:
        try:
            msg = await call.next(timeout)
        except OSError as exc:
            if exc.errno == errno.ENODATA:
                return
            raise
        yield msg.obj


async def _connect(uri: str, paced: bool = False) -> Connection:
    # The kernel accepts connections for a hung broker, which then sends no greeting. So a thread waits for it.
    try:
        greeted = await asyncio.to_thread(connect, uri, GREETING_TIMEOUT)
    except OSError as exc:
        raise BrokerUnreachable(exc.strerror or str(exc)) from None
    # The client uses `_socket.socket`, the base class that asyncio rejects. A socket.socket takes over its descriptor.
    return Connection(socket.socket(fileno=greeted.detach()), paced)
