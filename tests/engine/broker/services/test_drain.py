"""`overlay.drained`: the question goes where the answers to its stream go, hop by hop."""

from __future__ import annotations

import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.broker.local import LocalClient
from headrace.engine.broker.services import drain
from headrace.formats.spec import message as m
from headrace.formats.spec.requests.broker import OVERLAY

Run = Callable[..., None]


def asking(broker: Any) -> Any:
    """A broker with child `below` of rank 5, parent `above`, and a peer that asks it."""
    child_of = lambda uuid: 5 if uuid == "below" else None  # noqa: E731
    broker.overlay = SimpleNamespace(child_of=child_of, parent=SimpleNamespace(uuid="above"))
    ctx = broker.context("overlay")
    ctx.service("overlay", {"drained": drain.handler(broker, broker.overlay, ctx)}, requests=OVERLAY)
    return broker.owner_peer()


@pytest.mark.parametrize(("hop", "nodeid", "upstream"), [("below", 5, False), ("above", 2, True)])
def test_it_is_passed_on_without_the_hop_it_took(in_broker: Run, hop: str, nodeid: int, upstream: bool) -> None:
    async def scenario(broker: Any) -> None:
        peer = asking(broker)
        assert await peer.ask(drain.TOPIC, {"route": ["client", "far", hop]}) == []
        (msg,) = broker.up
        assert (msg.topic, msg.obj, msg.nodeid) == (drain.TOPIC, {"route": ["client", "far"]}, nodeid)
        assert bool(msg.flags & m.FLAG_UPSTREAM) == upstream
        broker.router.response(m.response(msg, {}))
        await broker.settle()
        assert [(reply.matchtag, reply.errnum) for reply in peer.got] == [(1, 0)]

    in_broker(scenario, rank=2)


def test_a_client_here_answers_when_it_has_read(in_broker: Run) -> None:
    class Reading(LocalClient):
        def __init__(self) -> None:
            self.uuid, self.waiting = "client", []

        def when_drained(self, then: Callable[[], None]) -> None:
            self.waiting.append(then)

    async def scenario(broker: Any) -> None:
        peer, client = asking(broker), Reading()
        broker.router.add_peer(client)
        assert await peer.ask(drain.TOPIC, {"route": ["client"]}) == []
        client.waiting.pop()()
        await broker.settle()
        assert [(reply.matchtag, reply.errnum) for reply in peer.got] == [(1, 0)]

    in_broker(scenario)


@pytest.mark.parametrize("route", [[], ["who-left"], [""]])
def test_nobody_waits_for_a_reader_that_is_gone(in_broker: Run, route: list[str]) -> None:
    async def scenario(broker: Any) -> None:
        assert [reply.errnum for reply in await asking(broker).ask(drain.TOPIC, {"route": route})] == [0]

    in_broker(scenario)


@pytest.mark.parametrize("body", [{}, {"route": "x"}, {"route": [5]}])
def test_a_route_that_is_none_is_refused(in_broker: Run, body: dict[str, Any]) -> None:
    async def scenario(broker: Any) -> None:
        assert (await asking(broker).ask(drain.TOPIC, body))[0].errnum == errno.EPROTO

    in_broker(scenario)
