"""Events: numbered on rank 0, handed to who subscribed, private ones to few."""

from __future__ import annotations

import ast
import base64
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.formats.spec import message as m

SOURCE = Path(headrace.__file__).parent
Run = Callable[..., None]


def served(broker: Any) -> Any:
    ctx = broker.context("broker")
    events = broker.events
    methods = {
        "publish": events.handle_publish,
        "subscribe": events.handle_subscribe,
        "unsubscribe": events.handle_subscribe,
    }
    ctx.service("event", methods, open=methods)
    return broker


def heard(peer: Any) -> list[tuple[str, int]]:
    return [(msg.topic, msg.sequence) for msg in peer.got if msg.type == m.EVENT]


def test_subscribers_get_what_begins_with_their_topic_in_order(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        served(broker)
        peer, other = broker.owner_peer(), broker.guest()
        await peer.ask("event.subscribe", {"topic": "a."})
        await other.ask("event.subscribe", {"topic": ""})
        for topic in ("a.b", "ab", "a.c"):
            broker.events.publish(m.event(topic))
        await broker.settle()
        assert heard(peer) == [("a.b", 1), ("a.c", 3)]
        assert heard(other) == [("a.b", 1), ("ab", 2), ("a.c", 3)]

    in_broker(scenario)


def test_the_broker_itself_takes_an_event_when_its_children_get_it(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        said: list[str] = []
        broker.events.down = lambda msg: said.append(f"down {msg.topic}")
        broker.events.take_at_once("a.b", lambda msg: said.append(f"took {msg.topic}"))
        for topic in ("a.b", "a.bc"):
            broker.events.publish(m.event(topic))
        assert said == ["down a.b", "took a.b", "down a.bc"]

    in_broker(scenario)


def test_a_topic_that_is_subscribed_twice_is_heard_once_until_both_are_taken_back(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        served(broker)
        peer = broker.owner_peer()
        for tag, verb in enumerate(("subscribe", "subscribe", "unsubscribe"), 1):
            assert (await peer.ask(f"event.{verb}", {"topic": "x"}, tag=tag))[0].errnum == 0
        broker.events.publish(m.event("x"))
        assert (await peer.ask("event.unsubscribe", {"topic": "x"}, tag=4))[0].errnum == 0
        broker.events.publish(m.event("x"))
        assert (await peer.ask("event.unsubscribe", {"topic": "x"}, tag=5))[0].errnum == errno.ENOENT
        assert heard(peer) == [("x", 1)]

    in_broker(scenario)


def test_a_private_event_is_for_its_sender_and_the_owner(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        served(broker)
        owner, guest, other = broker.owner_peer(), broker.guest(), broker.guest("other")
        other.userid += 1
        for peer in (owner, guest, other):
            await peer.ask("event.subscribe", {"topic": "secret"})
        text = base64.b64encode(b"{}\0").decode()
        body = {"topic": "secret", "flags": m.FLAG_PRIVATE, "payload": text}
        assert (await guest.ask("event.publish", body, tag=2))[0].obj == {"seq": 1}
        assert (heard(owner), heard(guest), heard(other)) == ([("secret", 1)], [("secret", 1)], [])

    in_broker(scenario)


# Events that guests may see: what the nodes and the configuration are is open to them.
FOR_GUESTS = {
    "broker.state",
    "overlay.grow",
    "config.update",
    "heartbeat.pulse",
    "resource-define",
    "resource-expiration",
}


def test_all_other_events_of_the_instance_are_private() -> None:
    """Most topics are literals; a topic that is computed or a constant is in the list by its text or its value."""
    found = set()
    for path in (SOURCE / "engine/broker").rglob("*.py"), (SOURCE / "engine/modules").rglob("*.py"):
        for file in path:
            tree = ast.parse(file.read_text())
            constants = {
                node.targets[0].id: node.value.value
                for node in tree.body
                if isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and isinstance(node.value, ast.Constant)
            }
            for node in ast.walk(tree):
                if not (
                    isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("ctx.publish", "context.publish"))
                ):
                    continue
                if any(word.arg == "private" for word in node.keywords):
                    continue
                topic = node.args[0]
                found.add(constants[topic.id] if isinstance(topic, ast.Name) else ast.literal_eval(topic))
    assert found == FOR_GUESTS


@pytest.mark.parametrize("body", [{}, {"topic": 5}, {"topic": ""}, {"topic": "a\0b"}, {"topic": "a", "payload": "%"}])
def test_what_is_no_event_is_refused(in_broker: Run, body: dict[str, Any]) -> None:
    async def scenario(broker: Any) -> None:
        assert (await served(broker).guest().ask("event.publish", body))[0].errnum == errno.EPROTO

    in_broker(scenario)


def test_elsewhere_an_event_goes_up_and_is_heard_when_it_comes_down(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        served(broker)
        up: list[m.Message] = []
        down: list[m.Message] = []
        broker.events.up = lambda msg: up.append(msg) or True
        broker.events.down = down.append
        peer = broker.owner_peer()
        await peer.ask("event.subscribe", {"topic": "t"})
        assert broker.events.publish(m.event("t")) == 0
        assert heard(peer) == []
        up[0].aux1 = 17
        broker.events.deliver(up[0])
        await broker.settle()
        assert heard(peer) == [("t", 17)]
        assert down == up

    in_broker(scenario, rank=3)


def test_who_left_gets_nothing(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        served(broker)
        peer = broker.owner_peer()
        await peer.ask("event.subscribe", {"topic": "t"})
        broker.events.drop(peer)
        broker.events.publish(m.event("t"))
        await broker.settle()
        assert heard(peer) == []

    in_broker(scenario)
