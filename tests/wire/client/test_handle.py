from __future__ import annotations

import errno
import os
import socket
import threading
from pathlib import Path
from typing import Callable, Optional

import pytest

from headrace.formats.spec.message import REQUEST, Deframer, Message, error_response, event, frame, response
from headrace.wire.client.handle import Handle
from headrace.wire.client.reactor import Reactor

ENODATA = errno.ENODATA
# The answers to a request, or None: the broker hangs up.
Answer = Callable[[Message], Optional["list[Message]"]]


@pytest.fixture
def broker(tmp_path: Path):
    """Start a socket that answers each request with what a function makes of it; returns its URI and what it saw."""
    served: list[tuple[Path, threading.Thread]] = []

    def start(answer: Answer, greeting: bytes = b"\0") -> tuple[str, list[Message]]:
        path = tmp_path / f"local-{len(served)}"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        seen: list[Message] = []

        def serve() -> None:
            with listener:
                client, _ = listener.accept()
            with client:
                client.sendall(greeting)
                deframer = Deframer()
                while data := client.recv(65536):
                    deframer.feed(data)
                    for msg in deframer:
                        seen.append(msg)
                        if msg.type != REQUEST:
                            continue
                        replies = answer(msg)
                        if replies is None:
                            return
                        client.sendall(b"".join(map(frame, replies)))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        served.append((path, thread))
        return f"local://{path}", seen

    yield start
    for path, thread in served:
        thread.join(60)
        assert not thread.is_alive(), f"a client of {path} was not closed"


@pytest.fixture
def connect(broker):
    """Make a Handle that is closed before the broker is waited for."""
    handles: list[Handle] = []

    def make(uri: str) -> Handle:
        handles.append(Handle(uri))
        return handles[-1]

    yield make
    for handle in handles:
        handle.close()


def echo(msg: Message) -> list[Message]:
    return [response(msg, {"topic": msg.topic, "got": msg.obj})]


def stream_of_three(msg: Message) -> list[Message]:
    return [*(response(msg, {"n": n}) for n in range(3)), error_response(msg, ENODATA)]


def test_call_returns_the_response_object(broker):
    uri, seen = broker(echo)
    with Handle(uri) as handle:
        assert handle.rpc("a.b", {"x": 1}).get() == {"topic": "a.b", "got": {"x": 1}}
    assert seen[0].matchtag == 1


def test_error_becomes_the_oserror_of_its_errno_with_the_brokers_text(broker, connect):
    uri, _ = broker(lambda msg: [error_response(msg, errno.ENOENT, "unknown job id")])
    with pytest.raises(FileNotFoundError, match="unknown job id"):
        connect(uri).rpc("x").get()


def test_error_without_text_has_the_errnos(broker, connect):
    uri, _ = broker(lambda msg: [error_response(msg, errno.EPERM)])
    with pytest.raises(PermissionError, match="Operation not permitted"):
        connect(uri).rpc("x").get()


def test_a_broker_that_waits_for_us_to_read_gets_a_long_request_all_the_same(broker, connect):
    def long(msg: Message) -> list[Message]:
        return [*(response(msg, {"text": "x" * 1_000_000}) for _ in range(16)), error_response(msg, ENODATA)]

    uri, seen = broker(long)
    handle = connect(uri)
    calls: list[list[dict[str, str]]] = []

    def ask() -> None:
        streams = [handle.stream("x", {"text": "y" * 4_000_000}) for _ in range(3)]
        calls.extend(list(stream) for stream in streams)

    asker = threading.Thread(target=ask, daemon=True)
    asker.start()
    asker.join(60)
    assert [len(answers) for answers in calls] == [16, 16, 16]
    assert len(seen) == 3


def test_stream_ends_at_enodata_and_frees_its_tag(broker, connect):
    uri, _ = broker(stream_of_three)
    handle = connect(uri)
    first = handle.stream("x")
    assert [answer["n"] for answer in first] == [0, 1, 2]
    again = handle.stream("x")
    assert again.matchtag == first.matchtag
    assert [answer["n"] for answer in again] == [0, 1, 2]


def test_stream_raises_other_errors(broker, connect):
    uri, _ = broker(lambda msg: [response(msg, {"n": 0}), error_response(msg, errno.EIO, "lost")])
    with pytest.raises(OSError, match="lost"):
        list(connect(uri).stream("x"))


def test_answers_find_their_calls_in_any_order(broker, connect):
    held: list[Message] = []

    def reversed_pairs(msg: Message) -> list[Message]:
        held.append(msg)
        return [response(m, {"tag": m.matchtag}) for m in reversed(held)] if len(held) == 2 else []

    uri, _ = broker(reversed_pairs)
    handle = connect(uri)
    one, two = handle.rpc("x"), handle.rpc("x")
    assert one.get() == {"tag": 1}
    assert two.get() == {"tag": 2}


def test_wait_for_an_answer_can_be_limited(broker, connect):
    uri, _ = broker(lambda _msg: [])
    with pytest.raises(TimeoutError):
        connect(uri).rpc("x").get(timeout=0.01)


@pytest.mark.parametrize("seconds", [1e7, 1e300, float("inf")])
def test_a_wait_may_be_as_long_as_anybody_likes(broker, connect, seconds):
    uri, _ = broker(lambda msg: [response(msg, {"x": 1})])
    assert connect(uri).rpc("x").get(timeout=seconds) == {"x": 1}


def test_events_wait_until_they_are_read(broker, connect):
    uri, _ = broker(lambda msg: [event("a.pulse", {"n": 1}), response(msg)])
    handle = connect(uri)
    handle.subscribe("a")
    found = handle.next_event(1.0)
    assert (found.topic, found.obj) == ("a.pulse", {"n": 1})
    assert handle.next_event(0.01) is None


def test_claimed_identity_is_stamped_on_requests(broker, connect, monkeypatch):
    monkeypatch.setenv("FLUX_HANDLE_USERID", "1234")
    monkeypatch.setenv("FLUX_HANDLE_ROLEMASK", "0x2")
    uri, seen = broker(echo)
    connect(uri).rpc("x").get()
    assert (seen[0].userid, seen[0].rolemask) == (1234, 2)


def test_missing_socket_is_named():
    with pytest.raises(FileNotFoundError, match="Unable to connect to Flux: broker socket /nosuch was not found"):
        Handle("local:///nosuch")


def test_refusal_is_the_errno_the_broker_sends(broker):
    uri, _ = broker(echo, greeting=bytes([errno.EPERM]))
    with pytest.raises(PermissionError, match="Unable to connect to Flux"):
        Handle(uri)


@pytest.mark.parametrize("uri", ["", "nonsense", "ftp://host/x", "ssh://host", "local://"])
def test_other_uris_are_refused(uri, monkeypatch):
    monkeypatch.delenv("FLUX_URI", raising=False)
    with pytest.raises(OSError, match="Unable to connect to Flux"):
        Handle(uri)


def test_lost_broker_is_an_error_not_a_wait(broker, connect):
    uri, seen = broker(lambda msg: echo(msg) if len(seen) == 1 else None)
    handle = connect(uri)
    handle.rpc("x").get()
    # The other end goes away without a word.
    with pytest.raises(ConnectionResetError):
        handle.rpc("x").get()


def test_reactor_runs_callbacks_timers_and_descriptors(broker, connect):
    uri, _ = broker(stream_of_three)
    handle = connect(uri)
    reactor = Reactor()
    reactor.add_handle(handle)
    got: list[object] = []

    def answered(call) -> None:
        try:
            got.append(call.get()["n"])
        except OSError:
            read_end, write_end = os.pipe()
            os.write(write_end, b"x")
            reactor.add_fd(read_end, lambda _revents: (reactor.remove_fd(read_end), got.append("fd")))
            reactor.add_timer(0.02, lambda: (got.append("timer"), reactor.stop()))

    handle.stream("x").then(answered)
    reactor.run()
    assert got == [0, 1, 2, "fd", "timer"]


def test_stopped_timer_does_not_fire():
    reactor = Reactor()
    fired: list[str] = []
    timer = reactor.add_timer(0.0, lambda: fired.append("no"))
    timer.stop()
    reactor.add_timer(0.01, reactor.stop)
    reactor.run()
    assert fired == []
