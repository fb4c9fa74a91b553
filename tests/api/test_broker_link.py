"""The connections to the broker, against a real one and against one that a test plays."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from headrace.api import broker_link
from headrace.api.broker_link import BrokerLink, BrokerUnreachable
from headrace.spec.message import Deframer, Message, error_response, frame, response
from waiting import until_in_loop


@contextlib.contextmanager
def played(folder: Any, answer: Any) -> Iterator[str]:
    """A broker whose connections are `answer(connection)` in a thread each; yields its address."""
    path = f"{folder}/local"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=one, args=(connection,), daemon=True).start()

        def one(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield f"local://{path}"
        listener.shutdown(socket.SHUT_RDWR)


def requests(connection: socket.socket) -> Iterator[Message]:
    """Greet a client and give its requests."""
    connection.sendall(b"\0")
    deframer = Deframer()
    while data := connection.recv(65536):
        deframer.feed(data)
        yield from deframer


def run(scenario: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(scenario, 100))


def test_answers_find_their_calls_and_refusals_have_the_brokers_words(shared: Any) -> None:
    async def scenario() -> None:
        link = BrokerLink(shared.uri)
        names = ("size", "rank", "hostlist")
        answers = await asyncio.gather(*[link.call("attr.get", {"name": name}) for name in names])
        assert [answer["value"] for answer in answers][:2] == ["1", "0"]
        for topic, code in (("attr.get", errno.ENOENT), ("nosuch.method", errno.ENOSYS)):
            with pytest.raises(OSError) as caught:
                await link.call(topic, {"name": "nosuch"})
            assert caught.value.errno == code
        link.close()

    run(scenario())


def test_requests_at_the_same_time_share_one_connection(tmp_path: Any) -> None:
    connections = []

    def answer(connection: socket.socket) -> None:
        connections.append(connection)
        for request in requests(connection):
            connection.sendall(frame(response(request, {"n": request.obj["n"]})))

    async def scenario(uri: str) -> None:
        link = BrokerLink(uri)
        answers = await asyncio.gather(*[link.call("x.y", {"n": n}) for n in range(100)])
        assert [one["n"] for one in answers] == list(range(100)) and len(connections) == 1
        link.close()

    with played(tmp_path, answer) as uri:
        run(scenario(uri))


def test_another_loop_has_another_connection(shared: Any) -> None:
    link = BrokerLink(shared.uri)
    for _ in range(3):
        assert run(link.call("attr.get", {"name": "size"}))["value"] == "1"
    link.close()


def test_a_lost_connection_fails_its_calls_and_the_next_call_connects_again(tmp_path: Any) -> None:
    def answer(connection: socket.socket) -> None:
        for request in requests(connection):
            if request.topic == "lose.it":
                return
            connection.sendall(frame(response(request, {})))

    async def scenario(uri: str) -> None:
        link = BrokerLink(uri)
        for _ in range(3):
            assert await link.call("x.y") == {}
            with pytest.raises(BrokerUnreachable, match=r"lose\.it: the broker has closed"):
                await link.call("lose.it")
        link.close()

    with played(tmp_path, answer) as uri:
        run(scenario(uri))


@pytest.mark.parametrize("first", [b"", b"\x01"])
def test_a_broker_that_does_not_greet(tmp_path: Any, first: bytes) -> None:
    async def scenario(uri: str) -> None:
        with pytest.raises(BrokerUnreachable, match="Unable to connect"):
            await BrokerLink(uri).call("x.y")

    with played(tmp_path, lambda connection: connection.sendall(first)) as uri:
        run(scenario(uri))


def test_a_broker_that_stands_still(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_link, "GREETING_TIMEOUT", 0.05)

    async def connecting(uri: str) -> None:
        with pytest.raises(BrokerUnreachable, match="timed out"):
            await BrokerLink(uri).call("x.y")

    with played(tmp_path, lambda connection: connection.recv(1)) as uri:
        run(connecting(uri))


def test_what_is_no_message_closes_the_connection(tmp_path: Any) -> None:
    def answer(connection: socket.socket) -> None:
        for _ in requests(connection):
            connection.sendall(b"x" * 100)

    async def scenario(uri: str) -> None:
        with pytest.raises(BrokerUnreachable, match="no message"):
            await BrokerLink(uri).call("x.y")

    with played(tmp_path, answer) as uri:
        run(scenario(uri))


def test_large_requests_and_answers_pass(shared: Any) -> None:
    async def scenario() -> None:
        link = BrokerLink(shared.uri)
        pad = "x" * (3 << 20)
        answers = await asyncio.gather(*[link.call("broker.ping", {"seq": n, "pad": pad}) for n in range(4)])
        assert [answer["seq"] for answer in answers] == [0, 1, 2, 3] and answers[0]["pad"] == pad
        link.close()

    run(scenario())


def test_a_follower_that_is_behind_is_not_read_for_and_holds_up_nobody(tmp_path: Any) -> None:
    sent = []

    def answer(connection: socket.socket) -> None:
        for request in requests(connection):
            if request.topic == "one.call":
                connection.sendall(frame(response(request, {})))
                continue
            for number in range(2000):
                connection.sendall(frame(response(request, {"number": number, "pad": "x" * 10000})))
                sent.append(number)
            connection.sendall(frame(error_response(request, errno.ENODATA)))

    async def scenario(uri: str) -> None:
        link = BrokerLink(uri)
        followed = link.follow("many.answers", {})
        assert (await followed.__anext__())["number"] == 0
        await until_in_loop(lambda: len(sent) > 50)
        for _ in range(50):
            assert await link.call("one.call") == {}
        assert len(sent) < 1000
        numbers = [answer["number"] async for answer in followed]
        assert numbers == list(range(1, 2000))
        link.close()

    with played(tmp_path, answer) as uri:
        run(scenario(uri))


def test_what_is_followed_ends_when_the_link_is_closed(shared: Any) -> None:
    async def scenario() -> None:
        link = BrokerLink(shared.uri)
        followed = link.follow("job-manager.events-journal", {"full": False})
        waiting = asyncio.ensure_future(followed.__anext__())
        await until_in_loop(lambda: bool(link._followed))
        first = await waiting
        assert first is not None
        waiting = asyncio.ensure_future(followed.__anext__())
        await asyncio.sleep(0)
        link.close()
        with contextlib.suppress(StopAsyncIteration), pytest.raises(BrokerUnreachable):
            while True:
                await waiting
                waiting = asyncio.ensure_future(followed.__anext__())
        assert not link._followed

    run(scenario())
