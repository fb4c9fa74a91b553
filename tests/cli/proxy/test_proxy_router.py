"""Many clients on one connection: whose a message is, and what the broker hears of clients that left."""

from __future__ import annotations

import errno

import pytest

from headrace.cli.proxy.router import Client, ProxyRouter
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message


class World:
    """A router, what it sent up, and clients with what they got."""

    def __init__(self) -> None:
        self.up: list[Message] = []
        self.router = ProxyRouter(self.up.append)
        self.got: dict[str, list[Message]] = {}

    def client(self, name: str) -> Client:
        self.got[name] = []
        client = Client(name.encode(), self.got[name].append)
        self.router.join(client)
        return client

    def sent(self) -> list[tuple[str, object]]:
        """Topic and body of what went up since the last call."""
        up, self.up[:] = self.up[:], []
        return [(msg.topic, msg.obj) for msg in up]


@pytest.fixture
def world() -> World:
    return World()


def ask(world: World, client: Client, topic: str, obj: object = None, tag: int = 1, **more: int) -> Message:
    """What goes up when a client asks, as the broker gets it; None-like when nothing does."""
    before = len(world.up)
    world.router.from_client(client, m.request(topic, obj, matchtag=tag, **more))
    return world.up[before] if len(world.up) > before else m.request("", None)


def test_a_response_finds_the_client_that_asked(world: World) -> None:
    one, two = world.client("one"), world.client("two")
    asked = [ask(world, client, "kvs.lookup", {"key": "a"}, tag=7) for client in (one, two)]
    assert [msg.routes for msg in asked] == [[b"one"], [b"two"]]
    world.router.from_broker(m.response(asked[1], {"val": 2}))
    world.router.from_broker(m.response(asked[0], {"val": 1}))
    for name, value in (("one", 1), ("two", 2)):
        (answer,) = world.got[name]
        assert (answer.obj, answer.matchtag, answer.routes) == ({"val": value}, 7, [])


def test_a_response_for_a_client_that_left_is_dropped(world: World) -> None:
    client = world.client("one")
    asked = ask(world, client, "kvs.lookup")
    world.router.leave(client)
    world.router.leave(client)
    world.router.from_broker(m.response(asked, {}))
    assert world.got["one"] == []


def test_events_go_to_each_subscriber_once_and_the_broker_hears_of_a_topic_once(world: World) -> None:
    one, two, three = world.client("one"), world.client("two"), world.client("three")
    ask(world, one, "event.subscribe", {"topic": "job"})
    ask(world, one, "event.subscribe", {"topic": "job-state"}, tag=2)
    ask(world, two, "event.subscribe", {"topic": "job"}, tag=5)
    assert world.sent() == [("event.subscribe", {"topic": "job"}), ("event.subscribe", {"topic": "job-state"})]
    assert [(msg.matchtag, msg.errnum) for msg in world.got["two"]] == [(5, 0)]
    world.router.from_broker(m.event("job-state", {"x": 1}))
    assert [len([msg for msg in got if msg.type == m.EVENT]) for got in world.got.values()] == [1, 1, 0]
    ask(world, one, "event.unsubscribe", {"topic": "job"}, tag=3)
    assert world.sent() == []
    ask(world, two, "event.unsubscribe", {"topic": "job"}, tag=6)
    assert world.sent() == [("event.unsubscribe", {"topic": "job"})]
    # A topic that it does not have is the broker's to refuse.
    ask(world, three, "event.unsubscribe", {"topic": "job"})
    assert world.sent() == [("event.unsubscribe", {"topic": "job"})]


@pytest.mark.parametrize("body", [None, {}, {"topic": 3}])
def test_a_wrong_subscription_is_the_brokers_to_refuse(world: World, body: object) -> None:
    ask(world, world.client("one"), "event.subscribe", body)
    assert world.sent() == [("event.subscribe", body)]


def test_of_a_client_that_leaves_the_broker_and_the_services_that_it_asked_hear(world: World) -> None:
    one, two = world.client("one"), world.client("two")
    for client in (one, two):
        ask(world, client, "event.subscribe", {"topic": "shared"}, tag=1)
    ask(world, one, "event.subscribe", {"topic": "own"}, tag=2)
    ask(world, one, "job-info.eventlog-watch", {"id": 1}, tag=3, flags=m.FLAG_STREAMING)
    ask(world, one, "rexec.exec", {}, tag=4, nodeid=3)
    ask(world, one, "log.append", {}, tag=m.MATCHTAG_NONE)
    world.sent()
    world.router.leave(one)
    up = world.up[:]
    assert [(msg.topic, msg.obj, msg.noresponse) for msg in up if msg.topic == "event.unsubscribe"] == [
        ("event.unsubscribe", {"topic": "own"}, True)
    ]
    notes = [msg for msg in up if msg.topic.endswith(".disconnect")]
    assert [(msg.topic, msg.nodeid) for msg in notes] == [
        ("event.disconnect", m.NODEID_ANY),
        ("job-info.disconnect", m.NODEID_ANY),
        ("rexec.disconnect", 3),
    ]
    assert {(tuple(msg.routes), msg.noresponse) for msg in notes} == {((b"one",), True)}


def test_requests_for_a_service_go_to_the_client_that_registered_it(world: World) -> None:
    server, other = world.client("server"), world.client("other")
    added = ask(world, server, "service.add", {"service": "mine.own"}, tag=2)
    refused = ask(world, other, "service.add", {"service": "mine"}, tag=2)
    world.router.from_broker(m.response(added, None))
    world.router.from_broker(m.error_response(refused, errno.EEXIST))
    wanted = m.request("mine.own.do", {"n": 1}, matchtag=9)
    wanted.routes[:] = [b"far", b"near"]
    world.sent()
    world.router.from_broker(wanted)
    assert world.got["server"][-1] is wanted
    answer = m.response(wanted, {"n": 2})
    world.router.from_client(server, answer)
    assert world.up == [answer]
    assert answer.routes == [b"far", b"near"]
    # Nobody has it: `mine` was refused.
    nowhere = m.request("mine.do", None, matchtag=1)
    world.router.from_broker(nowhere)
    assert (world.up[-1].errnum, world.up[-1].topic) == (errno.ENOSYS, "mine.do")


def test_a_service_that_leaves_is_taken_back_and_its_requests_are_answered(world: World) -> None:
    server = world.client("server")
    world.router.from_broker(m.response(ask(world, server, "service.add", {"service": "mine"}, tag=2), None))
    world.router.from_broker(m.request("mine.done", None, matchtag=1))
    world.router.from_client(server, m.response(m.request("mine.done", None, matchtag=1)))
    world.router.from_broker(m.request("mine.open", None, matchtag=2))
    world.up.clear()
    world.router.leave(server)
    assert ("service.remove", {"service": "mine"}) in [(msg.topic, msg.obj) for msg in world.up]
    assert [(msg.topic, msg.errnum) for msg in world.up if msg.type == m.RESPONSE] == [("mine.open", errno.ENOSYS)]


def test_a_service_that_was_removed_is_nobodys(world: World) -> None:
    server = world.client("server")
    world.router.from_broker(m.response(ask(world, server, "service.add", {"service": "mine"}, tag=2), None))
    world.router.from_broker(m.response(ask(world, server, "service.remove", {"service": "mine"}, tag=3), None))
    world.router.from_broker(m.request("mine.open", None, matchtag=2))
    assert world.up[-1].errnum == errno.ENOSYS


def test_when_the_broker_is_lost_open_requests_fail_and_the_rest_is_made_anew(world: World) -> None:
    one, two = world.client("one"), world.client("two")
    stream = ask(world, one, "x.watch", {}, tag=1, flags=m.FLAG_STREAMING)
    world.router.from_broker(m.response(stream, {"n": 1}))
    ended = ask(world, one, "x.watch", {}, tag=2, flags=m.FLAG_STREAMING)
    world.router.from_broker(m.error_response(ended, errno.ENODATA))
    world.router.from_broker(m.response(ask(world, one, "x.ask", {}, tag=3), {}))
    world.router.from_broker(m.response(ask(world, two, "service.add", {"service": "mine"}, tag=1), None))
    for client in (one, two):
        ask(world, client, "event.subscribe", {"topic": "a"}, tag=8)
    world.got["one"].clear()
    world.router.lost()
    failed = [(msg.topic, msg.matchtag, msg.errnum) for msg in world.got["one"]]
    assert failed == [("x.watch", 1, errno.ECONNRESET), ("event.subscribe", 8, errno.ECONNRESET)]
    world.sent()
    world.router.restored()
    assert world.sent() == [("event.subscribe", {"topic": "a"}), ("service.add", {"service": "mine"})]


def test_events_of_clients_go_up_and_control_messages_do_not(world: World) -> None:
    client = world.client("one")
    world.router.from_client(client, m.event("hello", {"x": 1}))
    assert world.sent() == [("hello", {"x": 1})]
    with pytest.raises(m.MessageError):
        world.router.from_client(client, Message(m.CONTROL))
