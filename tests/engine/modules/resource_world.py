"""A world for tests of the resource service: groups, KVS and scheduler are played by the test."""

from __future__ import annotations

import asyncio
import base64
import errno
from collections.abc import Callable
from typing import Any

from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules.resource import service as resource
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message

Run = Callable[..., None]

CONFIG = {"config": [{"hosts": "node[0-3]", "cores": "0-1"}], "noverify": True}


class World:
    """Plays `groups`, `kvs` and `sched`; `kvs` holds what was committed."""

    def __init__(self, broker: Any, size: int = 4, kvs: dict[str, str] | None = None) -> None:
        broker.size = size
        if not broker.attrs.get("broker.quorum"):
            broker.attrs.set("broker.quorum", size)
        self.broker = broker
        self.ctx = broker.context("world")
        self.kvs: dict[str, str] = kvs if kvs is not None else {}
        self.full = False
        self.watching: dict[str, Message] = {}
        self.ctx.service("groups", {"get": self._group})
        self.ctx.service("kvs", {"lookup": self._lookup, "commit": self._commit})
        self.allocated: dict[str, Any] = {"version": 1}
        # What the scheduler refuses questions with (0: it answers), and how many it was asked.
        self.refusal = self.questions = 0
        self.ctx.service("sched", {"resource-status": self._resource_status})
        self.module = broker.load(resource)
        self.client = broker.client()

    def _group(self, msg: Message) -> None:
        self.watching[msg.obj["name"]] = msg
        self.ctx.respond(msg, {"members": "0" if msg.obj["name"] == "broker.online" else ""})

    def _resource_status(self, _msg: Message) -> dict[str, Any]:
        self.questions += 1
        if self.refusal:
            raise RpcError(self.refusal)
        return {"allocated": self.allocated}

    def online(self, ranks: str) -> None:
        self.ctx.respond(self.watching["broker.online"], {"members": ranks})

    def _lookup(self, msg: Message) -> Any:
        if msg.obj["key"] not in self.kvs:
            raise RpcError(errno.ENOENT)
        data = base64.b64encode(self.kvs[msg.obj["key"]].encode()).decode()
        return {"val": {"ver": 1, "type": "val", "data": data}}

    def _commit(self, msg: Message) -> Any:
        if self.full:
            raise RpcError(errno.ENOSPC, "the disk is full")
        for op in msg.obj["ops"]:
            text = base64.b64decode(op["dirent"]["data"]).decode()
            self.kvs[op["key"]] = self.kvs.get(op["key"], "") + text if op["flags"] & 32 else text
        return {"rootref": "", "rootseq": 1}

    async def settle(self) -> None:
        for _ in range(12):
            await asyncio.sleep(0)

    async def take(self, tag: int) -> Any:
        return (await self.client.next(tag)).obj

    def acquire(self) -> int:
        return int(self.client.start("resource.acquire", flags=m.FLAG_STREAMING))


def with_world(
    in_broker: Run,
    scenario: Callable[[World], Any],
    table: Any = CONFIG,
    kvs: dict[str, str] | None = None,
    **attrs: str,
) -> None:
    async def run(broker: Any) -> None:
        world = World(broker, kvs=kvs)
        await world.settle()
        await scenario(world)

    in_broker(run, config={"resource": table} if table else {}, hostlist="node[0-3]", hostname="node0", **attrs)
