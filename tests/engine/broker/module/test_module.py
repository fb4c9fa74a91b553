"""What every module has by its context: roles, default methods, calls, timers, and an unload that leaves nothing."""

from __future__ import annotations

import asyncio
import errno
import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from headrace.engine.broker.module import context as module_context
from headrace.engine.broker.module.context import EMPTY, RpcError
from headrace.formats.spec import message as m
from waiting import stays_in_loop, until_in_loop

Run = Callable[..., None]


def test_methods_are_the_owners_unless_they_are_open(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        broker.context("s").service("s", {"mine": lambda _msg: {}, "all": lambda _msg: {}}, open=("all",))
        guest = broker.guest()
        assert (await guest.ask("s.mine"))[0].errnum == errno.EPERM
        assert (await guest.ask("s.all", tag=2))[0].errnum == 0
        assert (await broker.owner_peer().ask("s.mine"))[0].errnum == 0

    in_broker(scenario)


async def _later() -> dict[str, int]:
    await asyncio.sleep(0)
    return {"late": 1}


def _refuse(_msg: m.Message) -> None:
    raise RpcError(errno.EBUSY, "not now")


def _deep(_msg: m.Message) -> None:
    def one() -> None:
        def two() -> None:
            def three() -> None:
                def four() -> None:
                    raise KeyError("inside")

                four()

            three()

        two()

    one()


@pytest.mark.parametrize(
    ("handler", "answer"),
    [
        (lambda _msg: {"a": 1}, (0, {"a": 1})),
        (lambda _msg: EMPTY, (0, None)),
        (lambda _msg: _later(), (0, {"late": 1})),
        (_refuse, (errno.EBUSY, "not now")),
        (lambda msg: msg.obj["missing"], (errno.EPROTO, "s.x: missing field 'missing'")),
        (lambda msg: int(msg.obj["text"]), (errno.EPROTO, "s.x: invalid literal for int() with base 10: 'no'")),
        (_deep, (errno.EIO, "s.x: internal error: 'inside'")),
    ],
)
def test_what_a_handler_returns_or_raises_is_the_answer(in_broker: Run, handler: Any, answer: Any) -> None:
    async def scenario(broker: Any) -> None:
        broker.context("s").service("s", {"x": handler})
        (reply,) = await broker.owner_peer().ask("s.x", {"text": "no"})
        assert (reply.errnum, reply.text if reply.errnum else reply.obj) == answer

    in_broker(scenario)


def test_every_module_answers_what_is_asked_of_all(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        ctx = broker.context("s")
        ctx.service("s", {})
        counted = {"n": 5}
        ctx.on_stats(lambda: dict(counted))
        ctx.on_stats_clear(lambda: counted.update(n=0))
        peer, guest = broker.owner_peer(), broker.guest()
        (pong,) = await guest.ask("s.ping", {"pad": "x"})
        assert (pong.obj["pad"], pong.obj["rank"], pong.obj["userid"]) == ("x", 0, guest.userid)
        assert (await guest.ask("s.stats-get", tag=2))[0].obj == {"n": 5}
        assert (await guest.ask("s.stats-clear", tag=3))[0].errnum == errno.EPERM
        assert (await peer.ask("s.stats-clear", tag=4))[0].errnum == 0
        assert (await guest.ask("s.stats-get", tag=5))[0].obj == {"n": 0}
        assert (await peer.ask("s.rusage", tag=6))[0].obj["maxrss"] > 0
        assert (await peer.ask("s.rusage", {"who": "me"}, tag=7))[0].errnum == errno.EINVAL
        for op, flags, wanted in (("setbit", 5, 5), ("clrbit", 1, 4), ("set", 3, 3), ("clr", 0, 0)):
            (reply,) = await peer.ask("s.debug", {"op": op, "flags": flags}, tag=10 + flags)
            assert reply.obj == {"flags": wanted}
            peer.got.clear()
        assert (await peer.ask("s.nosuch", tag=20))[0].errnum == errno.ENOSYS

    in_broker(scenario)


def test_a_call_hears_each_answer_of_a_stream_and_nothing_after_the_end(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        served, asking = broker.context("s"), broker.context("asking")
        streams = served.streams("watch")
        served.service("s", {"watch": streams.add, "get": lambda _msg: {"a": 1}, "fail": _refuse})
        heard: list[Any] = []
        tag = asking.call("s.watch", {}, lambda reply: heard.append(reply.errnum or reply.obj), streaming=True)
        await broker.settle()
        streams.send({"n": 1})
        asking.cancel(tag)
        await broker.settle()
        streams.send({"n": 2})
        await broker.settle()
        assert heard == [{"n": 1}, errno.ENODATA]
        assert await asking.rpc("s.get") == {"a": 1}
        with pytest.raises(RpcError, match="not now"):
            await asking.rpc("s.fail")

    in_broker(scenario)


def test_a_guests_event_moves_no_module(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        heard: list[str] = []
        broker.context("s").subscribe("news", lambda msg: heard.append(msg.topic))
        for rolemask in (m.ROLE_USER, m.ROLE_OWNER):
            event = m.event("news.of", {})
            event.userid, event.rolemask = 4242, rolemask
            broker.events.publish(event)
        await broker.settle()
        assert heard == ["news.of"]

    in_broker(scenario)


def test_an_unload_takes_back_everything_and_tells_who_waits(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        ctx, other = broker.context("s"), broker.context("other")
        streams, ran, said = ctx.streams("watch"), [], []
        ctx.service("s", {"watch": streams.add})
        other.service("other", {"watch": other.streams("watch").add})
        ctx.call("other.watch", {}, lambda _reply: None, streaming=True)
        ctx.subscribe("e", lambda _msg: ran.append("event"))
        ctx.call_later(0.01, ran.append, "timer")
        task = ctx.spawn(asyncio.sleep(1000))
        ctx.on_unload(lambda: said.append("first"))
        ctx.on_unload(lambda: 1 / 0)
        peer = broker.owner_peer()
        await peer.ask("s.watch", {}, m.FLAG_STREAMING)
        assert len(other.streams("watch")) == 1
        await ctx.unload()
        await broker.settle()
        broker.events.publish(m.event("e"))
        await stays_in_loop(lambda: ran == [], 0.03)
        assert (ran, said, task.cancelled()) == ([], ["first"], True)
        assert [reply.errnum for reply in peer.got] == [errno.ENOSYS]
        assert "s" not in broker.router.services
        assert len(other.streams("watch")) == 0
        assert any("ZeroDivisionError" in line for line in broker.log.ring)

    in_broker(scenario)


def _ask(peer: Any, topic: str, tag: int) -> m.Message:
    """A request as the router hands it on."""
    msg = m.request(topic, None, m.NODEID_ANY, tag, 0, peer.userid, peer.rolemask)
    msg.routes.append(peer.uuid.encode())
    return msg


def test_an_unload_refuses_each_request_that_a_task_has_not_answered(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        ctx = broker.context("s")
        steps: list[str] = []

        async def waits(msg: m.Message) -> dict[str, int]:
            steps.append(msg.topic)
            if msg.topic != "s.silent":
                ctx.respond(msg, {"n": 1})
            await broker.loop.create_future()
            return {}

        async def soon(msg: m.Message) -> dict[str, int]:
            steps.append(msg.topic)
            return {}

        ctx.service("s", {"silent": waits, "spoke": waits, "streams": waits, "soon": soon, "queued": soon})
        peer = broker.owner_peer()
        for tag, (topic, flags) in enumerate((("s.silent", 0), ("s.spoke", 0), ("s.streams", m.FLAG_STREAMING)), 1):
            await peer.ask(topic, None, flags, tag)
        ctx.send(_ask(peer, "s.soon", 4))
        broker.router.request(_ask(peer, "s.queued", 5))
        await ctx.unload()
        await broker.settle()
        assert steps == ["s.silent", "s.spoke", "s.streams"]
        said = {tag: [one.errnum for one in peer.got if one.matchtag == tag] for tag in range(1, 6)}
        assert said == {1: [errno.ENOSYS], 2: [0], 3: [0, errno.ENOSYS], 4: [errno.ENOSYS], 5: [errno.ENOSYS]}
        assert {one.text for one in peer.got if one.errnum} == {"s was unloaded"}

    in_broker(scenario)


def test_a_task_that_ends_in_its_own_way_when_it_is_cancelled_answers_itself(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        ctx = broker.context("s")

        async def cleans(_msg: m.Message) -> dict[str, int]:
            try:
                await broker.loop.create_future()
            except asyncio.CancelledError:
                return {"last": 1}
            return {}

        async def of_two(first: m.Message, second: m.Message) -> None:
            ctx.respond(first)
            await broker.loop.create_future()
            ctx.respond(second)

        peer = broker.owner_peer()
        ctx.service("s", {"x": cleans})
        await peer.ask("s.x")
        both = [_ask(peer, "s.y", tag) for tag in (2, 3)]
        ctx.spawn(of_two(*both), both)
        await broker.settle()
        await ctx.unload()
        await broker.settle()
        assert sorted((one.matchtag, one.errnum) for one in peer.got) == [(1, 0), (2, 0), (3, errno.ENOSYS)]

    in_broker(scenario)


def test_a_service_has_one_provider(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        first = broker.context("a")
        first.service("s", {"x": lambda _msg: {}})
        with pytest.raises(RpcError) as refused:
            broker.context("b").service("s", {})
        assert refused.value.errnum == errno.EEXIST
        first.unservice("s")
        broker.context("c").service("s", {})

    in_broker(scenario)


def test_what_a_timer_was_given_goes_with_its_call(in_broker: Run) -> None:
    class Given:
        pass

    async def scenario(broker: Any) -> None:
        ctx, given, ran = broker.context("s"), Given(), []
        still = weakref.ref(given)
        ctx.call_later(0.0, lambda _given: ran.append(True), given)
        del given
        gc.disable()
        try:
            await until_in_loop(lambda: ran)
            await broker.settle()
            # Cycles are looked for rarely: until then, a cycle would keep it.
            assert still() is None
        finally:
            gc.enable()

    in_broker(scenario)


def test_tables_of_a_module_shrink_after_thousands_have_left_them(
    in_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_context, "_SHRINK_AFTER", 0.0)

    async def scenario(broker: Any) -> None:
        ctx, table = broker.context("s"), dict.fromkeys(range(50_000))
        ctx.watch_tables(lambda: [table])
        size = sys.getsizeof(table)
        while len(table) > 3:
            table.popitem()
            ctx.removed()
        await until_in_loop(lambda: sys.getsizeof(table) < size / 1000)
        assert list(table) == [0, 1, 2]

    in_broker(scenario)


def test_a_request_that_fails_later_leaves_nothing_to_the_garbage_collector(in_broker: Run) -> None:
    futures: list[weakref.ref[Any]] = []

    async def scenario(broker: Any) -> None:
        ctx = broker.context("later")

        def fail(_msg: m.Message) -> Any:
            answer: asyncio.Future[Any] = ctx.loop.create_future()
            futures.append(weakref.ref(answer))
            ctx.loop.call_soon(answer.set_exception, RpcError(errno.EINVAL, "no"))
            return answer

        ctx.service("later", {"fail": fail})
        gc.disable()
        try:
            assert (await broker.owner_peer().ask("later.fail"))[0].text == "no"
            await broker.settle()
            assert futures[0]() is None
        finally:
            gc.enable()

    in_broker(scenario)
