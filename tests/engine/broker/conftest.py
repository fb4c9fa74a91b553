"""A broker small enough for a test of one of its services: the real router, events and context, without sockets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.broker.attrs import AttrTable
from headrace.engine.broker.budget import Budget
from headrace.engine.broker.events import Events
from headrace.engine.broker.logbook import Logbook
from headrace.engine.broker.module.context import ModuleContext
from headrace.engine.broker.router import Router
from headrace.formats.spec import message as m
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message


class Peer:
    """A client of user `userid`, with what was sent to it."""

    def __init__(self, broker: Any, uuid: str, userid: int, rolemask: int) -> None:
        self.broker, self.uuid, self.userid, self.rolemask = broker, uuid, userid, rolemask
        self.got: list[Message] = []
        broker.router.add_peer(self)

    def send(self, msg: Message) -> None:
        self.got.append(msg)

    async def ask(
        self, topic: str, obj: Any = None, flags: int = 0, tag: int = 1, payload: bytes | None = None
    ) -> list[Message]:
        """Send a request; returns what has come for it when all is quiet."""
        msg = m.request(topic, obj, m.NODEID_ANY, tag, flags, self.userid, self.rolemask, payload)
        msg.routes.append(self.uuid.encode())
        self.broker.router.request(msg)
        await settle()
        return [reply for reply in self.got if reply.type == m.RESPONSE and reply.matchtag == tag]


async def settle() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


class Little(SimpleNamespace):
    """Attributes of `Broker` as far as its services use them; `up` keeps what would leave it by the tree."""

    def __init__(self, rank: int, size: int, attrs: dict[str, str]) -> None:
        loop = asyncio.get_running_loop()
        table, router = AttrTable(attrs), Router(rank, loop)
        self.up: list[Message] = []

        def away(msg: Message, _rank: int = 0) -> bool:
            self.up.append(msg)
            return True

        router.toward = away
        if rank:
            router.up = away
        super().__init__(
            rank=rank,
            size=size,
            may_grow=False,
            on_grown=[],
            loop=loop,
            attrs=table,
            config={},
            owner=os.getuid(),
            router=router,
            events=Events(rank, router, os.getuid()),
            log=Logbook(table, rank),
            past=lambda _state: False,
            lost=Idset(),
            agent=None,
            connector=SimpleNamespace(debug=0),
            budget=Budget(lambda _level, _text: None),
        )

    async def settle(self) -> None:
        await settle()

    def context(self, name: str) -> ModuleContext:
        return ModuleContext(self, name)  # type: ignore[arg-type]

    def owner_peer(self, uuid: str = "owner") -> Peer:
        return Peer(self, uuid, self.owner, m.ROLE_OWNER)

    def guest(self, uuid: str = "guest") -> Peer:
        return Peer(self, uuid, self.owner + 1, m.ROLE_USER)


@pytest.fixture
def in_broker() -> Callable[..., None]:
    """`in_broker(scenario, rank=, size=, **attributes)` runs the coroutine function with a broker of its own."""

    def run(scenario: Callable[[Any], Coroutine[Any, Any, None]], rank: int = 0, size: int = 4, **attrs: str) -> None:
        async def main() -> None:
            await scenario(Little(rank, size, attrs))

        asyncio.run(main())

    return run
