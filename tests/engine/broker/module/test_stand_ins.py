"""Modules that scripts load where there is nothing for them to do."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from headrace.engine.broker.module.host import ModuleHost

Run = Callable[..., None]


def hosted(broker: Any) -> Any:
    broker.forked, broker.modules = {}, ModuleHost(broker)
    broker.modules.register(broker.modules.builtin("broker"))
    return broker.owner_peer()


async def listed(peer: Any, tag: int) -> list[str]:
    mods = (await peer.ask("module.list", tag=tag))[0].obj["mods"]
    return [mod["name"] for mod in mods if mod["name"] != "broker"]


@pytest.mark.parametrize("name", ["kvs", "kvs-watch", "job-ingest", "job-info", "barrier", "content"])
def test_a_followers_module_is_listed_and_its_requests_go_up(in_broker: Run, name: str) -> None:
    async def scenario(broker: Any) -> None:
        peer = hosted(broker)
        assert (await peer.ask("module.load", {"path": name, "args": ["any=thing"]}))[0].errnum == 0
        assert await listed(peer, 2) == [name]
        await peer.ask(f"{name}.ping", {}, tag=3)
        assert [msg.topic for msg in broker.up] == [f"{name}.ping"]
        assert (await peer.ask("module.load", {"path": name}, tag=4))[0].errnum == errno.EEXIST
        assert (await peer.ask("module.remove", {"name": name}, tag=5))[0].errnum == 0
        assert await listed(peer, 6) == []

    in_broker(scenario, rank=1)


@pytest.mark.parametrize("rank", [0, 1])
def test_what_nobody_needs_may_be_loaded_with_the_arguments_it_has_in_flux(in_broker: Run, rank: int) -> None:
    async def scenario(broker: Any) -> None:
        peer = hosted(broker)
        reply = (await peer.ask("module.load", {"path": "content-files", "args": ["nonsense"]}))[0]
        assert (reply.errnum, reply.text) == (errno.EINVAL, "content-files: unknown argument 'nonsense', it takes none")
        assert await listed(peer, 2) == []
        assert (await peer.ask("module.load", {"path": "content-files", "args": ["testing"]}, tag=3))[0].errnum == 0
        assert await listed(peer, 4) == ["content-files"]

    in_broker(scenario, rank=rank)


def test_the_leader_has_work_for_its_modules(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        peer = hosted(broker)
        assert (await peer.ask("module.load", {"path": "barrier"}))[0].errnum == 0
        assert "barrier" in broker.router.services

    in_broker(scenario)
