"""A broker small enough for a test of one module: the real router, events and module context, and a client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.engine.broker.attrs import AttrTable
from headrace.engine.broker.events import Events
from headrace.engine.broker.module.context import ModuleContext
from headrace.engine.broker.parts import BrokerParts
from headrace.engine.broker.router import Router
from headrace.formats.spec import message as m
from headrace.formats.spec.idset import Idset
from headrace.formats.spec.message import Message

GUEST = 4242

# As in a broker.
m.use_json_codec(msgspec.json.encode, msgspec.json.decode)


class Client:
    """Sends requests and gathers responses; every call waits a second at most."""

    def __init__(self, broker: LittleBroker, userid: int, rolemask: int) -> None:
        self.broker = broker
        self.userid = userid
        self.rolemask = rolemask
        self.uuid = f"client-{len(broker.router.peers)}"
        self.queues: dict[int, asyncio.Queue[Message]] = {}
        self.events: asyncio.Queue[Message] = asyncio.Queue()
        self._tag = 0
        broker.router.add_peer(self)

    def send(self, msg: Message) -> None:
        if msg.type == m.EVENT:
            self.events.put_nowait(msg)
        else:
            self.queues[msg.matchtag].put_nowait(msg)

    def start(self, topic: str, obj: Any = None, payload: bytes | None = None, flags: int = 0) -> int:
        """Send a request; returns its matchtag."""
        self._tag += 1
        self.queues[self._tag] = asyncio.Queue()
        msg = m.request(topic, obj, m.NODEID_ANY, self._tag, flags, self.userid, self.rolemask, payload)
        msg.routes.append(self.uuid.encode())
        self.broker.router.request(msg)
        return self._tag

    async def next(self, tag: int) -> Message:
        return await asyncio.wait_for(self.queues[tag].get(), 60)

    async def call(self, topic: str, obj: Any = None, payload: bytes | None = None) -> Message:
        """The one response, whatever it says."""
        return await self.next(self.start(topic, obj, payload))

    async def rpc(self, topic: str, obj: Any = None, payload: bytes | None = None) -> Any:
        """The object of a response that must be a success."""
        reply = await self.call(topic, obj, payload)
        assert reply.errnum == 0, (topic, reply.errnum, reply.text)
        return reply.obj

    def disconnect(self, service: str) -> None:
        msg = m.request(f"{service}.disconnect", userid=self.userid, rolemask=self.rolemask)
        msg.routes.append(self.uuid.encode())
        self.broker.router.request(msg)


class LittleBroker(BrokerParts):
    """Rank 0 of an instance of one, without sockets."""

    def __init__(self, attrs: dict[str, str], config: dict[str, Any]) -> None:
        self.loop = asyncio.get_running_loop()
        self.rank, self.size, self.may_grow = 0, 1, False
        self.on_grown = []
        self.lost = Idset()
        self.owner = os.getuid()
        self.attrs = AttrTable(attrs)
        self.config = config
        self.router = Router(0, self.loop)
        self.events = Events(0, self.router, self.owner)
        self.logged: list[str] = []
        self._loading: list[asyncio.Future[None]] = []
        self.contexts: dict[str, ModuleContext] = {}
        self.kept = {}
        self.agent = None
        self.remove_module = lambda _name: None
        self.log = self._log

    def _log(self, level: int, source: str, text: str) -> None:
        self.logged.append(f"{source}: {text}")

    def load(self, module: Any, *args: str) -> ModuleContext:
        ctx = ModuleContext(self, module.NAME)
        if hasattr(module, "check"):
            module.check(ctx, list(args))
        rest = module.load(ctx, list(args))
        if rest is not None:
            # What a module waits for while it is loaded comes while the test goes on.
            self._loading.append(asyncio.ensure_future(rest, loop=self.loop))
        self.contexts[module.NAME] = ctx
        return ctx

    def context(self, name: str) -> ModuleContext:
        """A context for a service that the test itself provides."""
        ctx = self.contexts[name] = ModuleContext(self, name)
        return ctx

    def client(self, guest: bool = False) -> Client:
        if guest:
            return Client(self, GUEST, m.ROLE_USER)
        return Client(self, self.owner, m.ROLE_OWNER)

    async def close(self) -> None:
        await asyncio.gather(*self._loading)
        for ctx in reversed(list(self.contexts.values())):
            await ctx.unload()
        assert not [line for line in self.logged if "Traceback" in line], self.logged


Scenario = Callable[[LittleBroker], Coroutine[Any, Any, None]]


@pytest.fixture
def in_broker(tmp_path: Path) -> Callable[..., None]:
    """`in_broker(scenario, statedir=..., config=...)` runs the coroutine function with a broker of its own."""

    def run(scenario: Scenario, config: dict[str, Any] | None = None, **attrs: str) -> None:
        async def main() -> None:
            broker = LittleBroker({"rundir": str(tmp_path), **attrs}, config or {})
            try:
                await scenario(broker)
            finally:
                await broker.close()

        asyncio.run(main())

    return run
