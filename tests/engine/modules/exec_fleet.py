"""Brokers in one loop with their job-exec, whose agents, job manager and store the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from headrace.engine.broker.attrs import AttrTable
from headrace.engine.broker.events import Events
from headrace.engine.broker.module.context import ModuleContext
from headrace.engine.broker.router import Router
from headrace.engine.modules.job_exec import service as job_exec
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message
from headrace.formats.spec.topology import Topology

JOB = 44493176832


class FakeAgent:
    """Keeps what it is told; `say` is what a real agent would report."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.on_send: Callable[[dict[str, Any]], Any] = lambda op: None
        self.listeners: list[Callable[[dict[str, Any]], None]] = []

    def send(self, op: dict[str, Any]) -> None:
        self.told.append(op)
        self.on_send(op)

    def subscribe(self, listener: Callable[[dict[str, Any]], None]) -> None:
        self.listeners.append(listener)

    def unsubscribe(self, listener: Callable[[dict[str, Any]], None]) -> None:
        self.listeners.remove(listener)

    def say(self, op: str, id: int = JOB, **fields: Any) -> None:
        for listener in self.listeners:
            listener({"op": op, "id": id, **fields})

    def got(self, op: str) -> list[dict[str, Any]]:
        return [told for told in self.told if told["op"] == op]


class Neighbour:
    """The other end of a tree edge: counts what crosses it, and encodes it as a real edge would."""

    def __init__(self, fleet: Fleet, here: int, there: int) -> None:
        self.fleet, self.here, self.there = fleet, here, there
        self.uuid = f"rank-{there}"

    def send(self, msg: Message) -> None:
        if (self.here, self.there) in self.fleet.cut or (self.there, self.here) in self.fleet.cut:
            return
        self.fleet.crossed.append((self.here, self.there, msg.topic))
        msg = m.decode_parts(m.encode_parts(msg))
        peer = self.fleet.brokers[self.there]
        if msg.type == m.REQUEST:
            msg.routes.append(f"rank-{self.here}".encode())
            peer.router.request(msg)
        elif msg.type == m.RESPONSE:
            peer.router.response(msg)


class Fleet:
    """Brokers in a tree within one loop, each with router, job-exec and an agent."""

    def __init__(
        self, size: int, shape: str = "kary:2", config: dict[str, Any] | None = None, rundir: str = "/run"
    ) -> None:
        self.topology = Topology(size, shape)
        self.rundir = rundir
        self.crossed: list[tuple[int, int, str]] = []
        self.cut: set[tuple[int, int]] = set()
        self.logged: list[str] = []
        self.brokers = [self._broker(rank, size, config or {}) for rank in range(size)]
        self.agents = [broker.agent for broker in self.brokers]
        self.manager = ModuleContext(self.brokers[0], "manager")
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.stored: list[tuple[str, list[Any]]] = []
        self.manager.service("job-manager", {"exec-hello": lambda msg: {}})
        self.manager.service("job-store", {"append": self._append})
        self.manager.service("resource", {"drain": self._drain})
        self.drained: list[dict[str, Any]] = []
        self.contexts = []
        for broker in self.brokers:
            ctx = ModuleContext(broker, "job-exec")
            job_exec.load(ctx, [])
            self.contexts.append(ctx)

    def _broker(self, rank: int, size: int, config: dict[str, Any]) -> Any:
        loop = asyncio.get_running_loop()
        router = Router(rank, loop)
        attrs = AttrTable()
        attrs.set("hostlist", "node[0-6]")
        for name, value in (("local-uri", f"local:///run/{rank}"), ("rundir", self.rundir), ("jobid-path", "/")):
            attrs.set(name, value)
        children = {child: SimpleNamespace(alive=True) for child in self.topology.children(rank)}
        overlay = SimpleNamespace(topology=self.topology, children=children, on_child_lost=[])
        near = {other: Neighbour(self, rank, other) for other in [*children, self.topology.parent(rank)]}
        for neighbour in near.values():
            router.add_peer(neighbour)

        def up(msg: Message) -> bool:
            if rank:
                router.post(near[self.topology.parent(rank)].send, msg)
            return rank > 0

        def toward(msg: Message, target: int) -> bool:
            router.post(near[self.topology.next_hop(rank, target)].send, msg)
            return True

        router.up, router.toward = up, toward
        return SimpleNamespace(
            rank=rank,
            size=size,
            may_grow=False,
            on_grown=[],
            loop=loop,
            router=router,
            attrs=attrs,
            config=config,
            owner=0,
            overlay=overlay,
            agent=FakeAgent(),
            events=Events(rank, router, 0),
            log=lambda level, source, text: self.logged.append(text),
        )

    def _append(self, msg: Message) -> None:
        assert msg.noresponse
        self.stored.extend((log, entries) for _job, log, entries in msg.obj["logs"])

    def _drain(self, msg: Message) -> Any:
        self.drained.append(msg.obj)
        return {}

    def start(
        self,
        ranks: str = "0",
        nodelist: str = "node0",
        id: int = JOB,
        requeues_left: int | None = None,
        userid: int = 0,
        **system: Any,
    ) -> None:
        """`job-exec.start` as the job manager sends it."""
        jobspec = {"tasks": [{"command": ["true"]}], "attributes": {"system": {"duration": 0, **system}}}
        execution = {"R_lite": [{"rank": ranks, "children": {"core": "0"}}], "nodelist": [nodelist], "expiration": 0.0}
        body = {
            "id": id,
            "userid": userid,
            "jobspec": jobspec,
            "R": {"version": 1, "execution": execution},
            "reattach": False,
            **({} if requeues_left is None else {"requeues_left": requeues_left}),
        }

        def answer(reply: Message) -> None:
            if reply.errnum:
                self.told.append(("error", {"errnum": reply.errnum}))
                return
            assert reply.obj["id"] == id
            self.told.append((reply.obj["type"], reply.obj["data"]))

        self.manager.call("job-exec.start", body, answer, streaming=True)

    def leader(self) -> Any:
        """The module's part that leads all jobs."""
        handler, *_ = self.contexts[0]._methods["job-exec.start"]
        return handler.__self__  # type: ignore[attr-defined]

    async def settle(self) -> None:
        for _ in range(12):
            await asyncio.sleep(0)

    def events(self) -> list[tuple[str, Any]]:
        """guest.exec.eventlog so far, without times."""
        return [(name, context) for log, entries in self.stored if "exec" in log for _t, name, context in entries]

    async def lose(self, rank: int) -> None:
        """A broker and all below it are gone."""
        parent = self.topology.parent(rank)
        self.cut.add((parent, rank))
        self.brokers[parent].overlay.children[rank].alive = False
        for hook in self.brokers[parent].overlay.on_child_lost:
            hook(rank, self.topology.subtree(rank))
        await self.settle()

    async def close(self) -> None:
        for ctx in self.contexts:
            await ctx.unload()


Scenario = Callable[[Fleet], Coroutine[Any, Any, None]]


def with_fleet(size: int, scenario: Scenario, **options: Any) -> None:
    async def main() -> None:
        fleet = Fleet(size, **options)
        await fleet.settle()
        await scenario(fleet)
        await fleet.close()

    asyncio.run(main())
