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

from headrace.formats.spec.message import ROLE_NONE, USERID_UNKNOWN, Deframer, Message, error_response, frame, response
from headrace.service import broker_link
from headrace.service.broker_link import Broker, BrokerUnreachable
from headrace.service.users import credential
from waiting import until_in_loop

OWNER = credential.owner()


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
        broker = Broker(shared.uri)
        link = broker.link(OWNER)
        names = ("size", "rank", "hostlist")
        answers = await asyncio.gather(*[link.call("attr.get", {"name": name}) for name in names])
        assert [answer["value"] for answer in answers][:2] == ["1", "0"]
        for topic, code in (("attr.get", errno.ENOENT), ("nosuch.method", errno.ENOSYS)):
            with pytest.raises(OSError) as caught:
                await link.call(topic, {"name": "nosuch"})
            assert caught.value.errno == code
        broker.close()

    run(scenario())


def test_requests_at_the_same_time_share_one_connection(tmp_path: Any) -> None:
    connections = []

    def answer(connection: socket.socket) -> None:
        connections.append(connection)
        for request in requests(connection):
            connection.sendall(frame(response(request, {"n": request.obj["n"]})))

    async def scenario(uri: str) -> None:
        broker = Broker(uri)
        link = broker.link(OWNER)
        answers = await asyncio.gather(*[link.call("x.y", {"n": n}) for n in range(100)])
        assert [one["n"] for one in answers] == list(range(100)) and len(connections) == 1
        broker.close()

    with played(tmp_path, answer) as uri:
        run(scenario(uri))


def test_another_loop_has_another_connection(shared: Any) -> None:
    broker = Broker(shared.uri)
    link = broker.link(OWNER)
    for _ in range(3):
        assert run(link.call("attr.get", {"name": "size"}))["value"] == "1"
    broker.close()


def test_a_lost_connection_fails_its_calls_and_the_next_call_connects_again(tmp_path: Any) -> None:
    def answer(connection: socket.socket) -> None:
        for request in requests(connection):
            if request.topic == "lose.it":
                return
            connection.sendall(frame(response(request, {})))

    async def scenario(uri: str) -> None:
        broker = Broker(uri)
        link = broker.link(OWNER)
        for _ in range(3):
            assert await link.call("x.y") == {}
            with pytest.raises(BrokerUnreachable, match=r"lose\.it: the broker has closed"):
                await link.call("lose.it")
        broker.close()

    with played(tmp_path, answer) as uri:
        run(scenario(uri))


@pytest.mark.parametrize("first", [b"", b"\x01"])
def test_a_broker_that_does_not_greet(tmp_path: Any, first: bytes) -> None:
    async def scenario(uri: str) -> None:
        with pytest.raises(BrokerUnreachable, match="Unable to connect"):
            await Broker(uri).link(OWNER).call("x.y")

    with played(tmp_path, lambda connection: connection.sendall(first)) as uri:
        run(scenario(uri))


def test_a_broker_that_stands_still(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_link, "GREETING_TIMEOUT", 0.05)

    async def connecting(uri: str) -> None:
        with pytest.raises(BrokerUnreachable, match="timed out"):
            await Broker(uri).link(OWNER).call("x.y")

    with played(tmp_path, lambda connection: connection.recv(1)) as uri:
        run(connecting(uri))


def test_what_is_no_message_closes_the_connection(tmp_path: Any) -> None:
    def answer(connection: socket.socket) -> None:
        for _ in requests(connection):
            connection.sendall(b"x" * 100)

    async def scenario(uri: str) -> None:
        with pytest.raises(BrokerUnreachable, match="invalid message"):
            await Broker(uri).link(OWNER).call("x.y")

    with played(tmp_path, answer) as uri:
        run(scenario(uri))


def test_large_requests_and_answers_pass(shared: Any) -> None:
    async def scenario() -> None:
        broker = Broker(shared.uri)
        link = broker.link(OWNER)
        pad = "x" * (3 << 20)
        answers = await asyncio.gather(*[link.call("broker.ping", {"seq": n, "pad": pad}) for n in range(4)])
        assert [answer["seq"] for answer in answers] == [0, 1, 2, 3] and answers[0]["pad"] == pad
        broker.close()

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
        broker = Broker(uri)
        link = broker.link(OWNER)
        followed = link.follow("many.answers", {})
        assert (await followed.__anext__())["number"] == 0
        await until_in_loop(lambda: len(sent) > 50)
        for _ in range(50):
            assert await link.call("one.call") == {}
        assert len(sent) < 1000
        numbers = [answer["number"] async for answer in followed]
        assert numbers == list(range(1, 2000))
        broker.close()

    with played(tmp_path, answer) as uri:
        run(scenario(uri))


def test_what_is_followed_ends_when_the_link_is_closed(shared: Any) -> None:
    async def scenario() -> None:
        broker = Broker(shared.uri)
        link = broker.link(OWNER)
        followed = link.follow("job-manager.events-journal", {"full": False})
        waiting = asyncio.ensure_future(followed.__anext__())
        await until_in_loop(lambda: bool(broker._followed))
        first = await waiting
        assert first is not None
        waiting = asyncio.ensure_future(followed.__anext__())
        await asyncio.sleep(0)
        broker.close()
        with contextlib.suppress(StopAsyncIteration), pytest.raises(BrokerUnreachable):
            while True:
                await waiting
                waiting = asyncio.ensure_future(followed.__anext__())
        assert not broker._followed

    run(scenario())


def test_each_request_has_the_credential_of_its_user(tmp_path: Any) -> None:
    def answer(connection: socket.socket) -> None:
        for request in requests(connection):
            body = {"userid": request.userid, "rolemask": request.rolemask}
            connection.sendall(frame(response(request, body)))
            if request.streaming:
                connection.sendall(frame(error_response(request, errno.ENODATA)))

    async def asked(link: broker_link.BrokerLink, topic: str) -> list[Any]:
        return [
            await link.call(topic),
            *await link.gather(topic, {}),
            *[answer async for answer in link.follow(topic, {})],
        ]

    async def scenario(uri: str) -> None:
        broker = Broker(uri)
        for one in (credential.user("ann", 1234), credential.user("root", 1235, admin=True), OWNER):
            stamps = await asked(broker.link(one), "x.y")
            assert stamps == [{"userid": one.userid, "rolemask": one.rolemask}] * 3
        assert {credential.user("ann", 1).rolemask, credential.user("ann", 1, True).rolemask} == {2, 2 | 8}
        # Of the service's own requests, only those on the list leave as the owner's.
        stamps = await asked(broker.link(None), "job-manager.events-journal")
        assert stamps == [{"userid": USERID_UNKNOWN, "rolemask": ROLE_NONE}] * 3
        with pytest.raises(PermissionError, match=r"x\.y is asked for a user"):
            await asked(broker.link(None), "x.y")
        broker.close()

    with played(tmp_path, answer) as uri:
        run(scenario(uri))


def test_the_broker_treats_a_stamped_user_as_a_guest(shared: Any) -> None:
    async def scenario() -> None:
        broker = Broker(shared.uri)
        guest = broker.link(credential.user("ann", OWNER.userid + 1))
        id = int(shared.flux("job", "id", "--to=dec", shared.flux("submit", "sleep", "1000").strip()))
        lookup = {"id": id, "keys": ["jobspec"]}
        for topic, obj in (
            ("job-manager.raise", {"id": id, "type": "cancel", "severity": 0}),
            ("job-manager.kill", {"id": id, "signum": 9}),
            ("job-manager.urgency", {"id": id, "urgency": 0}),
            ("job-info.lookup", lookup),
            ("job-manager.events-journal", {}),
            ("shutdown.start", {"loglevel": 6}),
            ("rexec.exec", {"cmd": {}, "flags": 0}),
        ):
            with pytest.raises(OSError) as caught:
                await guest.call(topic, obj)
            assert caught.value.errno == errno.EPERM, topic
        ping = await guest.call("broker.ping", {"seq": 1})
        assert (ping["userid"], ping["rolemask"]) == (OWNER.userid + 1, 2)
        assert await broker.link(OWNER).call("job-info.lookup", lookup)
        await broker.link(OWNER).call("job-manager.raise", {"id": id, "type": "cancel", "severity": 0})
        broker.close()

    run(scenario())
