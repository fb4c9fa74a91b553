"""Streams of a module: whose they are, and the ways they end."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from headrace.engine.broker.answers import RpcError
from headrace.formats.spec import message as m

Run = Callable[..., None]


def serving(broker: Any) -> Any:
    """The streams of a service `s.watch` in `broker`."""
    ctx = broker.context("s")
    streams = ctx.streams("watch")
    ctx.service("s", {"watch": streams.add}, open=("watch",))
    return streams


def test_all_get_what_is_sent_until_they_cancel(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        streams = serving(broker)
        removed: list[int] = []
        streams.on_remove = lambda msg: removed.append(msg.matchtag)
        one, two = broker.owner_peer(), broker.guest()
        for tag in (1, 2):
            await one.ask("s.watch", {}, m.FLAG_STREAMING, tag)
        await two.ask("s.watch", {}, m.FLAG_STREAMING, 1)
        streams.send({"n": 1})
        await one.ask("s.watch-cancel", {"matchtag": 1}, m.FLAG_NORESPONSE, 9)
        streams.send({"n": 2})
        await two.ask("s.disconnect", {}, m.FLAG_NORESPONSE, 9)
        streams.send({"n": 3})
        await broker.settle()
        ends = [(msg.matchtag, msg.errnum) for msg in one.got if msg.errnum]
        assert ends == [(1, errno.ENODATA)]
        assert [(msg.matchtag, msg.obj["n"]) for msg in one.got if not msg.errnum] == [(1, 1), (2, 1), (2, 2), (2, 3)]
        assert [msg.obj["n"] for msg in two.got if not msg.errnum] == [1, 2]
        assert (len(streams), removed) == (1, [1, 1])

    in_broker(scenario)


def test_a_cancel_of_another_ends_nothing(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        streams = serving(broker)
        await broker.owner_peer().ask("s.watch", {}, m.FLAG_STREAMING, 1)
        await broker.guest().ask("s.watch-cancel", {"matchtag": 1}, m.FLAG_NORESPONSE, 9)
        assert len(streams) == 1

    in_broker(scenario)


def test_a_request_that_wants_no_stream_is_refused(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        streams = serving(broker)
        assert (await broker.guest().ask("s.watch", {}))[0].errnum == errno.EPROTO
        assert len(streams) == 0

    in_broker(scenario)


def test_an_error_without_a_text_has_that_of_its_number() -> None:
    assert str(RpcError(errno.ENOENT)) == "No such file or directory"
    assert str(RpcError(errno.ENOENT, "no job f7")) == "no job f7"
