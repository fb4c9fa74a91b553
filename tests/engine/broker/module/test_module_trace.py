"""`module.trace`: who is listened to, what of it is told, and that nobody pays when nobody looks."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from headrace.engine.broker.module.trace import ModuleTrace
from headrace.formats.spec import message as m
from headrace.formats.spec.requests.broker import MODULE

Run = Callable[..., None]


def traced(broker: Any) -> tuple[Any, dict[str, Any]]:
    """A peer of a broker with modules a and b, where a asks b."""
    loaded = {name: broker.context(name) for name in "ab"}
    loaded["b"].service("b", {"get": lambda msg: {"n": msg.obj["n"] + 1}})
    ctx = broker.context("broker")
    ctx.service("module", {"trace": ModuleTrace(ctx, loaded).start}, requests=MODULE)
    return broker.owner_peer(), loaded


def told(peer: Any) -> list[tuple[Any, ...]]:
    return [(each["name"], each["prefix"], each["type"], each["topic"]) for each in (msg.obj for msg in peer.got)]


def test_both_ways_of_the_named_modules_are_told_until_it_is_cancelled(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        peer, loaded = traced(broker)
        await peer.ask("module.trace", {"names": ["b"], "full": True}, m.FLAG_STREAMING)
        assert loaded["a"].tracer is None
        await loaded["a"].rpc("b.get", {"n": 1})
        await broker.settle()
        assert told(peer) == [("b", "rx", m.REQUEST, "b.get"), ("b", "tx", m.RESPONSE, "b.get")]
        assert [msg.obj["payload"] for msg in peer.got] == [{"n": 1}, {"n": 2}]
        await peer.ask("module.trace-cancel", {"matchtag": 1}, m.FLAG_NORESPONSE, 9)
        peer.got.clear()
        assert loaded["b"].tracer is None
        await loaded["a"].rpc("b.get", {"n": 1})
        await broker.settle()
        assert peer.got == []

    in_broker(scenario)


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ({"typemask": m.REQUEST}, [("a", "tx", m.REQUEST, "b.get")]),
        ({"topic_glob": "b.g*", "typemask": m.RESPONSE}, [("a", "rx", m.RESPONSE, "b.get")]),
        ({"topic_glob": "c.*"}, []),
    ],
)
def test_filters_leave_out_the_rest(in_broker: Run, filters: dict[str, Any], wanted: list[Any]) -> None:
    async def scenario(broker: Any) -> None:
        peer, loaded = traced(broker)
        await peer.ask("module.trace", {"names": ["a"], **filters}, m.FLAG_STREAMING)
        await loaded["a"].rpc("b.get", {"n": 1})
        await broker.settle()
        assert told(peer) == wanted
        assert all("payload" not in msg.obj for msg in peer.got)

    in_broker(scenario)


@pytest.mark.parametrize(
    ("body", "number"),
    [({}, errno.EPROTO), ({"names": "a"}, errno.EPROTO), ({"names": ["a", 1]}, errno.EPROTO)],
)
def test_only_modules_that_are_loaded_can_be_traced(in_broker: Run, body: dict[str, Any], number: int) -> None:
    async def scenario(broker: Any) -> None:
        peer, loaded = traced(broker)
        assert (await peer.ask("module.trace", body, m.FLAG_STREAMING))[0].errnum == number
        assert loaded["a"].tracer is None

    in_broker(scenario)
