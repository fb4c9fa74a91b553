"""Message streams and the listener of `flux proxy`."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.proxy import socket as proxy_socket
from headrace.cli.proxy.socket import Listener, MessageStream
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message
from headrace.wire.client.reactor import Reactor


class End:
    """One end of a pair: the stream, what it received and how it ended."""

    def __init__(self, reactor: Reactor, sock: socket.socket, with_full: bool = False) -> None:
        self.got: list[Message] = []
        self.ended: list[OSError] = []
        self.full: list[bool] = []
        low = socket.socket.detach(sock)
        import _socket

        self.stream = MessageStream(
            reactor,
            _socket.socket(fileno=low),
            self.got.append,
            self.ended.append,
            self.full.append if with_full else None,
        )


@pytest.fixture
def pair() -> Any:
    reactor = Reactor()
    ours, theirs = socket.socketpair()
    return reactor, End(reactor, ours), theirs


def test_messages_of_any_size_arrive_whole_and_in_order() -> None:
    reactor = Reactor()
    ours, theirs = socket.socketpair()
    one, other = End(reactor, ours, with_full=True), End(reactor, theirs)
    sizes = [0, 10, 3_000_000, 1, 9_000_000]
    for size in sizes:
        one.stream.send(m.request("x.y", {"pad": "p" * size}, matchtag=1))
    assert one.full == [True]
    while len(other.got) < len(sizes) or len(one.full) < 2:
        reactor.step()
    assert [len(msg.obj["pad"]) for msg in other.got] == sizes
    assert one.full == [True, False]


def test_the_end_of_the_other_side_is_told_once(pair: Any) -> None:
    reactor, end, theirs = pair
    theirs.close()
    reactor.step()
    assert [exc.errno for exc in end.ended] == [errno.ECONNRESET]
    end.stream.close(OSError(errno.EIO, "again"))
    end.stream.send(m.request("x.y", None))
    assert len(end.ended) == 1


def test_what_the_other_side_said_before_it_left_is_received_though_it_takes_no_more(pair: Any) -> None:
    """The end is one and the same, whether it is seen by a write or by a read first."""
    reactor, end, theirs = pair
    theirs.sendall(m.frame(m.request("last.words", None)))
    theirs.close()
    for _ in range(2):
        end.stream.send(m.request("x.y", None))
    assert end.ended == []
    while not end.ended:
        reactor.step()
    assert [msg.topic for msg in end.got] == ["last.words"]
    assert [exc.errno for exc in end.ended] == [errno.ECONNRESET]


def test_bytes_that_are_no_message_end_the_stream(pair: Any) -> None:
    reactor, end, theirs = pair
    theirs.sendall(b"x" * 8)
    reactor.step()
    assert [exc.errno for exc in end.ended] == [errno.EPROTO]


def test_while_it_does_not_read_messages_wait(pair: Any) -> None:
    reactor, end, theirs = pair
    end.stream.set_reading(False)
    theirs.sendall(m.frame(m.request("x.y", None)))
    reactor.add_timer(0.0, lambda: None)
    reactor.step()
    assert end.got == []
    end.stream.set_reading(True)
    reactor.step()
    assert [msg.topic for msg in end.got] == ["x.y"]


def test_a_client_that_does_not_read_is_given_up(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _reactor, end, _theirs = pair
    monkeypatch.setattr(proxy_socket, "_DROP_AT", 1 << 20)
    answer = m.response(m.request("x.y", None, matchtag=1), {"pad": "p" * (2 << 20)})
    end.stream.send(answer)
    assert end.ended == []
    end.stream.send(m.event("some.event", {}))
    assert [exc.errno for exc in end.ended] == [errno.ENOBUFS]


def connected(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    return client


def test_clients_of_our_user_are_greeted_and_others_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reactor, accepted = Reactor(), []
    listener = Listener(reactor, str(tmp_path / "local"), accepted.append)
    with connected(tmp_path / "local") as client:
        reactor.step()
        assert (client.recv(1), len(accepted)) == (b"\0", 1)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with connected(tmp_path / "local") as client:
        reactor.step()
        assert (client.recv(1), len(accepted)) == (bytes((errno.EPERM,)), 1)
    listener.close()
    listener.close()
    assert not (tmp_path / "local").exists()
