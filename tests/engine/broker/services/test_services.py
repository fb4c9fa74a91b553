"""The services that are the broker itself, by their messages."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.broker.module.context import RpcError
from headrace.engine.broker.services import broker_service
from headrace.formats.spec import message as m
from headrace.formats.spec.topology import Topology

Run = Callable[..., None]


def built(broker: Any) -> Any:
    """A broker with its services, and modules and a tree that only say what they were told."""
    broker.modules = SimpleNamespace(builtin=broker.context, register=lambda _ctx: None, loaded={})
    broker.overlay = SimpleNamespace(
        children={},
        topology=Topology(broker.size, "kary:2"),
        shape=lambda rank: {"rank": rank},
        disconnect=lambda rank: rank == 2 * broker.rank + 1,
        stats=dict,
        health=lambda: {"status": "full"},
    )
    local = SimpleNamespace(clients=(), stats=dict, clear_stats=lambda: None)
    broker.stopping, broker.state, broker.run_waiters = False, "init", []
    broker.config_path = ""
    broker.context = broker_service.register(broker, broker.modules, broker.overlay, local)
    return broker


async def answer(peer: Any, topic: str, obj: Any = None, **more: Any) -> Any:
    """The error number, else the object."""
    (reply,) = await peer.ask(topic, obj, tag=len(peer.got) + 1, **more)
    return reply.errnum or reply.obj


def test_a_client_provides_a_service_until_it_takes_it_back(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        built(broker)
        owner, other = broker.owner_peer("one"), broker.owner_peer("two")
        assert await answer(owner, "service.add", {"service": "mine"}) is None
        assert await answer(other, "service.add", {"service": "mine"}) == errno.EEXIST
        assert await answer(other, "service.remove", {"service": "mine"}) == errno.ENOENT
        await other.ask("mine.hello", {"x": 1}, tag=50)
        assert [(msg.topic, msg.obj) for msg in owner.got if msg.type == m.REQUEST] == [("mine.hello", {"x": 1})]
        assert await answer(owner, "service.remove", {"service": "mine"}) is None
        assert await answer(other, "service.add", {"service": "mine"}) is None
        for wrong in ({"service": "a.b"}, {"service": ""}, {"service": 3}, None):
            assert await answer(owner, "service.add", wrong) in (errno.EINVAL, errno.EPROTO)
        assert await answer(broker.guest(), "service.add", {"service": "theirs"}) == errno.EPERM

    in_broker(scenario)


def test_variables_of_the_broker_are_set_all_or_none(in_broker: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TEST_OLD", "old")
    monkeypatch.delenv("HEADRACE_TEST_NEW", raising=False)

    async def scenario(broker: Any) -> None:
        built(broker)
        owner = broker.owner_peer()
        for wrong in ({"A=B": "x"}, {"": "x"}, {"A\0": "x"}, {"A": 3}, {"A": "x\0"}):
            env = {"HEADRACE_TEST_NEW": "new", **wrong}
            assert await answer(owner, "broker.setenv", {"env": env}) == errno.EPROTO
        assert "HEADRACE_TEST_NEW" not in os.environ
        change = {"HEADRACE_TEST_NEW": "new", "HEADRACE_TEST_OLD": None, "HEADRACE_TEST_NONE": None}
        assert await answer(owner, "broker.setenv", {"env": change}) is None
        assert await answer(owner, "broker.getenv", {"names": list(change)}) == {"env": {"HEADRACE_TEST_NEW": "new"}}
        assert await answer(owner, "broker.getenv", {"names": "PATH"}) == errno.EPROTO
        assert await answer(broker.guest(), "broker.getenv", {"names": []}) == errno.EPERM

    in_broker(scenario)
    monkeypatch.delenv("HEADRACE_TEST_NEW")


def test_a_configuration_that_one_module_refuses_is_taken_back_from_all(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        built(broker)
        seen: list[tuple[str, Any]] = []

        class Module:
            def __init__(self, name: str) -> None:
                self.name = name

            async def reconfigure(self, config: Any) -> None:
                seen.append((self.name, config))
                if config.get("bad") == self.name:
                    raise RpcError(errno.EINVAL, "no")

        broker.modules.loaded.update({name: Module(name) for name in ("a", "b", "c")})
        owner = broker.owner_peer()
        (reply,) = await owner.ask("config.load", {"bad": "b"}, tag=1)
        assert (reply.errnum, reply.text) == (errno.EINVAL, "error updating b: no")
        assert seen == [("a", {"bad": "b"}), ("b", {"bad": "b"}), ("a", {}), ("b", {})]
        assert broker.config == {}
        assert await answer(owner, "config.load", {"tbon": {"topoo": "x"}}) is None
        assert await answer(broker.guest(), "config.get") == {"tbon": {"topoo": "x"}}
        (warning,) = (await answer(broker.guest("g2"), "config.warnings"))["lines"]
        assert "topoo" in warning and any("topoo" in line for line in broker.log.ring)
        assert await answer(owner, "config.load", {"policy": {"limit": 1}}) == errno.EINVAL
        assert await answer(owner, "config.load") == errno.EPROTO
        assert await answer(owner, "config.reload") == errno.EINVAL

    in_broker(scenario)


class Slow:
    """A module that takes a configuration when it is let, and refuses one that is bad."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.let = asyncio.Event()

    async def reconfigure(self, config: Any) -> None:
        self.seen.append(config)
        await self.let.wait()
        if "bad" in config:
            raise RpcError(errno.EINVAL, "no")


@pytest.mark.parametrize("rank", [0, 1])
def test_configurations_are_taken_one_after_another(in_broker: Run, rank: int) -> None:
    async def scenario(broker: Any) -> None:
        built(broker)
        broker.spawn = broker.loop.create_task
        slow = broker.modules.loaded["slow"] = Slow()
        owner, guest = broker.owner_peer(), broker.guest()
        bad, good = {"bad": 1}, {"tbon": {"topo": "kary:3"}}
        for tag, config in enumerate((bad, good), 1):
            if rank:
                update = m.event("config.update", config)
                update.rolemask = m.ROLE_OWNER
                broker.events.deliver(update)
            else:
                assert await owner.ask("config.load", config, tag=tag) == []
        await broker.settle()
        assert slow.seen == [bad]
        slow.let.set()
        await broker.settle()
        assert slow.seen == [bad, {}, good]
        assert await answer(guest, "config.get") == good
        assert [reply.errnum for reply in owner.got] == ([] if rank else [errno.EINVAL, 0])

    in_broker(scenario, rank=rank)


def test_attributes_are_read_by_all_and_changed_by_the_owner(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        built(broker)
        owner, guest = broker.owner_peer(), broker.guest()
        assert await answer(owner, "attr.set", {"name": "user.mine", "value": "1"}) is None
        assert (await answer(guest, "attr.get", {"name": "user.mine"}))["value"] == "1"
        assert "user.mine" in (await answer(guest, "attr.list"))["names"]
        assert await answer(guest, "attr.set", {"name": "user.mine", "value": "2"}) == errno.EPERM
        assert await answer(owner, "attr.set", {"name": "user.mine", "value": 2}) == errno.EPROTO
        assert await answer(owner, "attr.rm", {"name": "user.mine"}) is None
        assert await answer(guest, "attr.get", {"name": "user.mine"}) == errno.ENOENT

    in_broker(scenario)


def test_a_shape_is_told_of_what_is_below_only(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        built(broker)
        owner = broker.owner_peer()
        assert await answer(owner, "overlay.topology", {"rank": 3}) == {"rank": 3}
        for rank, error in ((2, errno.ENOENT), (99, errno.ENOENT), ("1", errno.EPROTO), (None, errno.EPROTO)):
            assert await answer(owner, "overlay.topology", {"rank": rank}) == error
        assert await answer(owner, "overlay.disconnect-subtree", {"rank": 3}) is None
        assert await answer(owner, "overlay.disconnect-subtree", {"rank": 2}) == errno.ENOENT

    in_broker(scenario, rank=1, size=7)


def test_only_the_leader_shuts_an_instance_down_and_only_once(in_broker: Run) -> None:
    async def follower(broker: Any) -> None:
        assert await answer(built(broker).owner_peer(), "shutdown.start") == errno.EINVAL

    async def leader(broker: Any) -> None:
        begun: list[int] = []
        built(broker).begin_shutdown = lambda: begun.append(1)
        owner = broker.owner_peer()
        assert await answer(owner, "shutdown.start", {"loglevel": "x"}) == errno.EPROTO
        assert begun == []
        assert await answer(owner, "shutdown.start", {"loglevel": 6}) is None
        broker.stopping = True
        assert await answer(owner, "shutdown.start") == errno.EINVAL
        assert await answer(broker.guest(), "shutdown.start") == errno.EPERM
        assert begun == [1]

    in_broker(follower, rank=1)
    in_broker(leader)


def test_who_waits_for_an_instance_to_run_hears_that_it_never_will(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        built(broker)
        guest = broker.guest()
        assert await guest.ask("state-machine.wait", tag=70) == []
        assert [msg.matchtag for msg in broker.run_waiters] == [70]
        broker.state = "run"
        assert await answer(guest, "state-machine.wait") == {}
        broker.state, broker.past = "cleanup", lambda _state: True
        assert await answer(guest, "state-machine.wait") == errno.ENODEV

    in_broker(scenario)
