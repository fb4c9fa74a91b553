"""Relay of connections of tasks, which the shell has accepted, to the port of libpmix.

The relay is needed because libpmix chooses its port when it is initialised, after the first task has connected.
"""

from __future__ import annotations

import selectors
import socket
import struct
from typing import Optional

_CHUNK = 1 << 16
# Flow control: a writer is not read while more bytes than this wait for its reader.
_MOST = 1 << 18


class _End:
    """One end of a connection. `buffer` has the bytes to be sent to it."""

    __slots__ = ("buffer", "closing", "events", "other", "sock")

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.other: Optional[_End] = None
        self.buffer = bytearray()
        self.closing = False
        self.events = 0


class Relay:
    """Relays connections to `port` on the loopback.

    The shell passes connections through the socket `clients`. Only connections of processes of user `uid` are relayed.
    """

    def __init__(self, clients: socket.socket, port: int, uid: int) -> None:
        self._clients = clients
        self._port = port
        self._uid = uid
        self._selector = selectors.DefaultSelector()
        self._selector.register(clients, selectors.EVENT_READ)

    def run(self) -> None:
        """Relay connections until the shell closes its end of the socket."""
        while True:
            for key, events in self._selector.select():
                if key.data is not None:
                    self._serve(key.data, events)
                elif not self._take():
                    return

    def _take(self) -> bool:
        """Receive the next connection; False if the shell has closed its end."""
        data, fds, _flags, _address = socket.recv_fds(self._clients, 1, 1)
        for fd in fds:
            self._begin(socket.socket(fileno=fd))
        return bool(data)

    def _begin(self, theirs: socket.socket) -> None:
        try:
            if owner(theirs.getpeername(), theirs.getsockname()) != self._uid:
                theirs.close()
                return
            ours = socket.create_connection(("127.0.0.1", self._port))
        except OSError:
            theirs.close()
            return
        for sock in (theirs, ours):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client, server = _End(theirs), _End(ours)
        client.other, server.other = server, client
        for end in (client, server):
            self._watch(end)

    def _watch(self, end: _End) -> None:
        """Register the events for which the selector must wait on `end`."""
        other = end.other
        wanted = 0
        if other is not None and not other.closing and len(other.buffer) < _MOST:
            wanted |= selectors.EVENT_READ
        if end.buffer or end.closing:
            wanted |= selectors.EVENT_WRITE
        if wanted == end.events:
            return
        if not end.events:
            self._selector.register(end.sock, wanted, end)
        elif wanted:
            self._selector.modify(end.sock, wanted, end)
        else:
            self._selector.unregister(end.sock)
        end.events = wanted

    def _serve(self, end: _End, events: int) -> None:
        if end.other is None:
            return
        if events & selectors.EVENT_READ:
            try:
                data = end.sock.recv(_CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if data:
                end.other.buffer += data
            else:
                end.other.closing = True
            self._send(end.other)
        if events & selectors.EVENT_WRITE:
            self._send(end)

    def _send(self, end: _End) -> None:
        try:
            while end.buffer:
                del end.buffer[: end.sock.send(end.buffer)]
        except BlockingIOError:
            pass
        except OSError:
            self._close(end)
            return
        if end.closing and not end.buffer:
            self._close(end)
            return
        assert end.other is not None
        self._watch(end)
        self._watch(end.other)

    def _close(self, end: _End) -> None:
        """Close both ends: PMIx does not use a connection with only one open direction."""
        other, end.other = end.other, None
        for each in (end, other):
            if each is not None:
                if each.events:
                    self._selector.unregister(each.sock)
                    each.events = 0
                each.other = None
                each.sock.close()


def owner(client: tuple[str, int], server: tuple[str, int]) -> int:
    """The uid of the process at the `client` end of a loopback connection; -1 if it is not found.

    This check is needed because libpmix trusts the user id in a client's messages. Source: proc(5), /proc/net/tcp.
    """
    wanted = f"{_hex(client)} {_hex(server)} "
    try:
        with open("/proc/net/tcp", encoding="ascii") as table:
            for line in table:
                if wanted in line:
                    return int(line.split()[7])
    except (OSError, ValueError, IndexError):
        pass
    return -1


def _hex(address: tuple[str, int]) -> str:
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"
