"""A module that is suspended: it answers nobody, nothing that was for it is lost, and what else it serves goes on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from headrace.engine.broker.attrs import AttrTable
from headrace.engine.broker.kept import data_path, forget_data
from headrace.engine.broker.module import suspended
from headrace.engine.broker.module.host import ModuleHost
from headrace.formats.spec import message

Run = Callable[..., None]

_COUNTER = """
from headrace.engine.broker.module.context import EMPTY, RpcError
from headrace.engine.broker.module.suspended import Resumption

def load(ctx, args):
    state = {"told": 0, "replies": 0, "args": args}

    def resume(args):
        if args == ["bad"]:
            raise RpcError(22, "bad")
        state["args"] = args

    def ask(msg):
        ctx.call("other.slow", {}, lambda reply: state.update(replies=state["replies"] + 1))
        return EMPTY

    def tell(msg):
        state["told"] += 1
        return EMPTY

    get = lambda msg: dict(state)
    ctx.service("counter", {"tell": tell, "ask": ask, "get": get, "hello": get})
    ctx.service("gazette", {"get": lambda msg: dict(state)})
    holds = lambda topic: topic.startswith(("counter.", "other."))
    ctx.resumption = Resumption(resume, holds, frozenset(["counter.hello"]))
    ctx.on_unload(lambda: ctx.publish("counter-ended", dict(state)))
"""


def test_what_comes_for_a_removed_module_waits_for_its_return(in_broker: Run, tmp_path: Path) -> None:
    path = tmp_path / "counter.py"
    path.write_text(_COUNTER)

    async def scenario(broker: Any) -> None:
        broker.forked, broker.modules = {}, ModuleHost(broker)
        broker.modules.register(broker.modules.builtin("broker"))
        slow: list[Any] = []
        other = broker.context("other")
        other.service("other", {"slow": slow.append})
        peer = broker.owner_peer()
        tags = iter(range(1, 99))

        async def ask(topic: str, obj: Any = None) -> Any:
            reply = (await peer.ask(topic, obj, tag=next(tags)))[0]
            return reply.errnum or reply.obj

        load = {"path": str(path), "name": "counter"}
        await ask("module.load", load)
        await ask("counter.ask")
        await ask("module.remove", {"name": "counter"})
        assert await ask("counter.get") == errno.ENOSYS
        assert await ask("module.remove", {"name": "counter"}) == errno.ENOENT
        other.respond(slow[0])
        hellos: list[Any] = []
        other.call("counter.tell")
        other.call("counter.hello", {}, hellos.append)
        other.call("counter.tell")
        assert await ask("gazette.get") == {"told": 0, "replies": 0, "args": []}

        assert hellos == []

        # Where its resumption fails it stays suspended.
        assert await ask("module.load", {**load, "args": ["bad"]}) == errno.EINVAL
        assert "counter" not in broker.modules.loaded
        await ask("module.load", {**load, "args": ["a"]})
        assert await ask("counter.get") == {"told": 2, "replies": 1, "args": ["a"]}
        assert [reply.obj["told"] for reply in hellos] == [1], "a partner that begins is answered in its turn"

        # At the end there is no other return.
        ended: list[Any] = []
        other.subscribe("counter-ended", lambda msg: ended.append(msg.obj))
        await ask("module.remove", {"name": "counter"})
        other.call("counter.tell")
        await ask("gazette.get")
        await broker.modules.remove_all()
        await peer.ask("other.ping", {}, tag=99)
        assert ended == [{"told": 3, "replies": 1, "args": ["a"]}]

    in_broker(scenario, rundir=str(tmp_path))


def test_a_queue_that_is_full_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspended, "_MOST", 2)
    ctx = mock.Mock(resumption=suspended.Resumption(lambda args: None, lambda topic: True))
    module = suspended.SuspendedModule(ctx)
    for number in range(4):
        assert module.take(message.event(f"news-{number}"))
    module.deliver()
    assert [call.args[0].topic for call in ctx.send.call_args_list] == ["news-0", "news-1"]
    ctx.log.assert_called_once()


def test_guests_leave_room_for_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspended, "_MOST_OF_GUESTS", 1)
    ctx = mock.Mock(resumption=suspended.Resumption(lambda args: None, lambda topic: True))
    module = suspended.SuspendedModule(ctx)
    for role in (message.ROLE_USER, message.ROLE_USER, message.ROLE_OWNER, message.ROLE_USER):
        msg = message.request("counter.tell", flags=message.FLAG_NORESPONSE, rolemask=role)
        assert module.take(msg)
    module.deliver()
    assert [call.args[0].rolemask for call in ctx.send.call_args_list] == [message.ROLE_USER, message.ROLE_OWNER]


def test_data_has_a_file_in_the_statedir_or_once_the_module_is_apart(tmp_path: Path) -> None:
    attrs = AttrTable({"rundir": str(tmp_path)})
    attrs.set("broker.pid", 12)
    assert data_path(attrs, "kvs", apart=False) == ""
    path = data_path(attrs, "kvs", apart=True)
    assert os.path.dirname(path) == str(tmp_path)
    Path(path).touch()
    assert data_path(attrs, "kvs", apart=False) == path
    assert data_path(attrs, "content", apart=False) == ""
    (tmp_path / "kvs-13.sqlite").touch()
    forget_data(attrs)
    assert os.listdir(tmp_path) == ["kvs-13.sqlite"]
    assert data_path(AttrTable({"statedir": "/s"}), "kvs", apart=True) == "/s/kvs.sqlite"
