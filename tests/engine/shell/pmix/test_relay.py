"""Connections passed on to another port: bytes both ways, the end of either side, and strangers turned away."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from headrace.engine.shell.pmix.relay import Relay, owner


class Passing:
    """A relay in a thread, and a server behind it."""

    def __init__(self, uid: int) -> None:
        self.front = socket.create_server(("127.0.0.1", 0))
        self.behind = socket.create_server(("127.0.0.1", 0))
        self._ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        relay = Relay(its, self.behind.getsockname()[1], uid)
        self.thread = threading.Thread(target=relay.run, daemon=True)
        self.thread.start()

    def connect(self) -> socket.socket:
        """A client whose connection the relay was given."""
        client = socket.create_connection(self.front.getsockname(), timeout=60)
        server, _address = self.front.accept()
        with server:
            socket.send_fds(self._ours, [b"."], [server.fileno()])
        return client

    def served(self) -> socket.socket:
        sock, _address = self.behind.accept()
        sock.settimeout(20)
        return sock

    def close(self) -> None:
        self._ours.close()
        self.thread.join(60)
        for sock in (self.front, self.behind):
            sock.close()
        assert not self.thread.is_alive()


@pytest.fixture
def passing() -> Iterator[Passing]:
    made = Passing(os.getuid())
    yield made
    made.close()


def read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := sock.recv(1 << 16)):
        data += more
    return data


def test_bytes_go_both_ways_and_more_than_buffers_hold(passing: Passing) -> None:
    big = os.urandom(1 << 22)
    with passing.connect() as client, passing.served() as server:
        for sender, receiver in ((client, server), (server, client)):
            sending = threading.Thread(target=sender.sendall, args=(big,))
            sending.start()
            assert read(receiver, len(big)) == big
            sending.join(60)


@pytest.mark.parametrize("who", ["client", "server"])
def test_when_one_side_closes_the_other_reads_the_rest_and_the_end(passing: Passing, who: str) -> None:
    client, server = passing.connect(), passing.served()
    first, other = (client, server) if who == "client" else (server, client)
    first.sendall(b"last words")
    first.close()
    with other:
        assert read(other, 100) == b"last words"


def test_another_users_connection_is_closed_at_once() -> None:
    passing = Passing(os.getuid() + 1)
    with passing.connect() as client:
        client.settimeout(20)
        assert client.recv(1) == b""
    passing.close()


def test_the_owner_of_an_end_is_known() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert owner(client.getsockname(), server.getsockname()) == os.getuid()
        assert owner(("127.0.0.1", 1), server.getsockname()) == -1
