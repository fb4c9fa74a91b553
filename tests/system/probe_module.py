"""A module that does everything a module may do with its context, for tests that load it into a process of its own."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from typing import Any

from headrace.engine.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.formats.spec.message import Message

NAME = "probe"


async def load(ctx: ModuleContext, args: list[str]) -> None:
    if "refuse" in args:
        raise RpcError(errno.EDOM, "this module refuses to load")
    if "break" in args:
        raise LookupError("nothing there")
    if "die" in args:
        os._exit(3)
    heard: list[Any] = []
    left: list[str] = []
    ticks = ctx.streams("ticks")

    def tell(_msg: Message) -> dict[str, Any]:
        return {
            "args": args,
            "rank": ctx.rank,
            "size": ctx.size,
            "pid": os.getpid(),
            "uri": ctx.attrs.get("local-uri"),
            "color": ctx.attrs.get("user.color"),
            "limit": ctx.config.get("probe", {}).get("limit", 0),
            "heard": heard,
            "left": len(left),
        }

    def follow(msg: Message) -> None:
        ticks.add(msg)
        for number in range(3):
            ctx.respond(msg, {"tick": number})

    def check(config: dict[str, Any]) -> None:
        if config.get("probe", {}).get("limit", 0) < 0:
            raise RpcError(errno.EINVAL, "probe.limit must not be negative")

    async def slow(msg: Message) -> dict[str, Any]:
        await asyncio.sleep(0)
        # A request to ourselves goes through the broker and comes back.
        answer = await ctx.rpc("probe.echo", msg.obj)
        return {"echo": answer}

    def shout(msg: Message) -> Any:
        print(msg.obj["text"])
        print(msg.obj["text"] + " on stderr", file=sys.stderr)
        ctx.publish("probe.shouted", msg.obj)
        return EMPTY

    def service(msg: Message) -> Any:
        if msg.obj["add"]:
            ctx.service("probe-more", {"hello": lambda _msg: {"hello": "more"}})
        else:
            ctx.unservice("probe-more")
        return EMPTY

    def goodbye() -> None:
        ctx.log(6, "the probe says goodbye")

    if "taken" in args:
        ctx.service("kvs", {})
    ctx.service(
        "probe",
        {
            "tell": tell,
            "echo": lambda msg: msg.obj or {},
            "slow": slow,
            "hang": lambda _msg: None,
            "ticks": follow,
            "shout": shout,
            "service": service,
            "die": lambda _msg: os._exit(7),
        },
        open=("echo",),
    )
    ctx.subscribe("probe.", lambda msg: heard.append([msg.topic, msg.obj]))
    ctx.on_disconnect(left.append)
    ctx.on_config(check)
    ctx.on_stats(lambda: {"heard": len(heard)})
    ctx.on_unload(goodbye)
    assert (await ctx.rpc("attr.get", {"name": "rank"}))["value"] == str(ctx.rank)
