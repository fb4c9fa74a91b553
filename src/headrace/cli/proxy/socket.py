"""The sockets of `flux proxy`: non-blocking message streams, and the listener for clients.

A client that does not read is disconnected at the same limits as by a broker. While the broker does not read, nothing
is read from clients.
"""

from __future__ import annotations

import errno
import os
import struct

from headrace.formats.spec.message import FLAG_STREAMING, RESPONSE, Deframer, Message, MessageError, frame
from headrace.formats.spec.stdlib_parts import socket
from headrace.wire.client.reactor import POLLIN, POLLOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    from headrace.wire.client.reactor import Reactor

_CHUNK = 1 << 18
# Unsent bytes at which the senders are paused, and at which they are resumed.
PAUSE_AT, RESUME_AT = 4 << 20, 1 << 20
# Unread bytes at which a client is disconnected: for streams and events, and for responses to its own requests.
_DROP_AT, _DROP_ANSWERS_AT = 64 << 20, 1 << 30
_CRED = struct.Struct("3i")


class MessageStream:
    """Messages over a connected socket.

    `received(msg)` is called for each message, `closed(exc)` once at the end. `full(True)` is called when there are
    too many unsent bytes, `full(False)` when they are below the limit again.
    """

    def __init__(
        self,
        reactor: Reactor,
        sock: socket.socket,
        received: Callable[[Message], None],
        closed: Callable[[OSError], None],
        full: Optional[Callable[[bool], None]] = None,
    ) -> None:
        sock.setblocking(False)
        self._reactor = reactor
        self._sock = sock
        self._received = received
        self._closed = closed
        self._full = full
        self._is_full = False
        self._reads = True
        # True after a write error: nothing can be sent any more.
        self._unwritable = False
        self._deframer = Deframer()
        self._out = bytearray()
        self._watch()

    def send(self, msg: Message) -> None:
        if self._unwritable or self._sock.fileno() < 0:
            return
        self._out += frame(msg)
        answer = msg.type == RESPONSE and not msg.flags & FLAG_STREAMING
        if len(self._out) > (_DROP_ANSWERS_AT if answer else _DROP_AT) and self._full is None:
            self.close(OSError(errno.ENOBUFS, f"the client has {len(self._out) >> 20} MiB of unread messages"))
            return
        self._write()

    def set_reading(self, reads: bool) -> None:
        if self._reads != reads and self._sock.fileno() >= 0:
            self._reads = reads
            self._watch()

    def close(self, exc: Optional[OSError] = None) -> None:
        """Close the socket; with `exc`, `closed` is called."""
        if self._sock.fileno() < 0:
            return
        self._reactor.remove_fd(self._sock.fileno())
        self._sock.close()
        if exc is not None:
            self._closed(exc)

    def _watch(self) -> None:
        events = (POLLIN if self._reads else 0) | (POLLOUT if self._out else 0)
        self._reactor.add_fd(self._sock.fileno(), self._ready, events)

    def _ready(self, revents: int) -> None:
        if revents & POLLOUT:
            self._write()
        if revents & ~POLLOUT and self._sock.fileno() >= 0:
            self._read()

    def _read(self) -> None:
        try:
            data = self._sock.recv(_CHUNK)
            if not data:
                raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            self._deframer.feed(data)
            for msg in self._deframer:
                self._received(msg)
        except BlockingIOError:
            return
        except OSError as exc:
            self.close(exc)
        except MessageError as exc:
            self.close(OSError(errno.EPROTO, str(exc)))

    def _write(self) -> None:
        try:
            while self._out:
                sent = self._sock.send(self._out[:_CHUNK])
                del self._out[:sent]
        except BlockingIOError:
            pass
        except OSError:
            # Messages that the peer sent before it closed the connection must still be read. The read that finds the
            # end closes the stream.
            self._unwritable = True
            self._out.clear()
        self._watch()
        if self._full is not None and (len(self._out) > PAUSE_AT if not self._is_full else len(self._out) < RESUME_AT):
            self._is_full = not self._is_full
            self._full(self._is_full)


class Listener:
    """Listens at `path` and calls `accepted(sock)` for clients of the same user, once greeted (RFC 3).

    Clients of other users get the errno EPERM as the greeting.
    """

    def __init__(self, reactor: Reactor, path: str, accepted: Callable[[socket.socket], None]) -> None:
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._sock.bind(path)
        self._sock.listen(256)
        self._sock.setblocking(False)
        self._reactor = reactor
        self._path = path
        self._accepted = accepted
        reactor.add_fd(self._sock.fileno(), self._ready)

    def close(self) -> None:
        """Stop listening and remove the socket."""
        if self._sock.fileno() >= 0:
            self._reactor.remove_fd(self._sock.fileno())
            self._sock.close()
            os.unlink(self._path)

    def _ready(self, _revents: int) -> None:
        try:
            fd, _address = self._sock._accept()  # type: ignore[attr-defined]
        except OSError:
            # The client has disconnected, or no file descriptor is free.
            return
        os.set_inheritable(fd, False)
        sock = socket.socket(fileno=fd)
        _pid, uid, _gid = _CRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CRED.size))
        refused = uid != os.getuid()
        try:
            sock.send(bytes((errno.EPERM if refused else 0,)))
        except OSError:
            refused = True
        if refused:
            sock.close()
        else:
            self._accepted(sock)
