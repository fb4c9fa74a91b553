"""The job manager, the exec service, an agent and a scheduler that names successors, with dice deciding whose message
arrives next: no order of them leaves a job behind, starts one twice or two on one place."""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from jobs_world import jobspec, signed

from headrace.engine.broker.module.context import EMPTY
from headrace.engine.modules.job_exec import service as job_exec
from headrace.engine.modules.job_ingest import service as job_ingest
from headrace.engine.modules.job_manager import service as job_manager
from headrace.formats.spec.message import Message
from headrace.formats.spec.topology import Topology
from sizes import size

Op = dict[str, Any]


class Agent:
    """What an exec agent does with starts (docs/dev/interfaces.md). What it reads and says takes its time."""

    def __init__(self) -> None:
        self.up = True
        self.inbox: deque[Op] = deque()
        self.outbox: deque[Op] = deque()
        self.running: dict[int, int] = {}
        self.doomed: set[int] = set()
        self.starts: Counter[int] = Counter()
        self.listeners: list[Callable[[Op], None]] = []

    def send(self, op: Op) -> None:
        self.inbox.append(op)

    def subscribe(self, listener: Callable[[Op], None]) -> None:
        self.listeners.append(listener)

    def unsubscribe(self, listener: Callable[[Op], None]) -> None:
        self.listeners.remove(listener)

    def resume(self) -> None:
        pass

    def die(self) -> None:
        """All that it knows is lost."""
        self.up = False
        for box in (self.inbox, self.outbox, self.running):
            box.clear()
        self._say({"op": "gone"})

    def revive(self) -> None:
        """Another is in its place; it finds what it was told meanwhile."""
        self.up = True

    def _say(self, op: Op) -> None:
        for listener in list(self.listeners):
            listener(op)

    def hear(self) -> None:
        """Read one operation."""
        op = self.inbox.popleft()
        if op["op"] == "start":
            self._start(op["id"], place_of(op["R"]))
        elif op["op"] == "kill" and op["id"] in self.running:
            self.doomed.add(op["id"])
            if op.get("all"):
                self.end(op["id"])

    def tell(self) -> None:
        """Have the broker read one operation."""
        self._say(self.outbox.popleft())

    def end(self, id: int) -> None:
        """A job's tasks are over."""
        del self.running[id]
        self.outbox.append({"op": "finish", "id": id, "status": 15 if id in self.doomed else 0})

    def _start(self, id: int, place: int) -> None:
        assert place not in self.running.values(), f"two jobs on place {place}"
        self.starts[id] += 1
        self.running[id] = place
        self.outbox.append({"op": "started", "id": id})


class Scheduler:
    """First come, first served, by priority; names successors when all places are taken."""

    def __init__(self, ctx: Any, places: int, dice: random.Random) -> None:
        self.ctx = ctx
        self.places = places
        self.dice = dice
        self.ready = False
        self._forget()
        methods = ("alloc", "cancel", "free", "inherit", "prioritize", "expiration")
        ctx.service("sched", {name: self._keeper(name) for name in methods})

    def _forget(self) -> None:
        self.inbox: deque[tuple[str, Message]] = deque()
        self.free = set(range(self.places))
        self.held: dict[int, int] = {}
        self.pending: dict[int, tuple[int, Message]] = {}
        self.told: list[int] = []

    def begin(self) -> None:
        """Start, or start anew, as another load of it would."""
        self.ready = False
        self._forget()
        self.ctx.call("job-manager.disconnect")
        self.ctx.call("job-manager.sched-hello", {}, self._hello, streaming=True)

    def _hello(self, reply: Message) -> None:
        if not reply.errnum:
            place = self.held[reply.obj["id"]] = place_of(reply.obj["R"])
            self.free.discard(place)
        elif reply.errnum == errno.ENODATA:
            self.ready = True
            self.ctx.call("job-manager.sched-ready", {"mode": "unlimited"}, lambda reply: None)

    def _keeper(self, name: str) -> Callable[[Message], Any]:
        def keep(msg: Message) -> Any:
            if self.ready:
                self.inbox.append((name, msg))
            return None if name == "alloc" else EMPTY

        return keep

    def hear(self) -> None:
        """Read one message, and decide now and then."""
        name, msg = self.inbox.popleft()
        body = msg.obj
        if name == "alloc":
            self.pending[body["id"]] = (body["priority"], msg)
        elif name == "cancel" and body["id"] in self.pending:
            self.ctx.respond(self.pending.pop(body["id"])[1], {"id": body["id"], "type": 3})
        elif name == "free":
            self.free.add(self.held.pop(body["id"]))
        elif name == "inherit":
            for id, successor, _ in body["jobs"]:
                self.pending.pop(successor, None)
                if successor in self.held:
                    self.free.add(self.held.pop(successor))
                self.held[successor] = self.held.pop(id)
        elif name == "prioritize":
            self.told = []
            for id, priority in body["jobs"]:
                if id in self.pending:
                    self.pending[id] = (priority, self.pending[id][1])
        if not self.inbox or self.dice.random() < 0.5:
            self._decide()

    def _decide(self) -> None:
        line = sorted(self.pending, key=lambda id: (-self.pending[id][0], id))
        while self.free and line:
            id = line.pop(0)
            place = self.held[id] = self.free.pop()
            self.ctx.respond(self.pending.pop(id)[1], {"id": id, "type": 0, "R": r_of(place)})
        successors = [] if self.free else line[:6]
        if successors != self.told:
            self.told = successors
            self.ctx.call("job-manager.sched-successors", {"ids": successors, "expiration": 0.0})


def r_of(place: int) -> dict[str, Any]:
    lite = [{"rank": "0", "children": {"core": str(place)}}]
    return {"version": 1, "execution": {"R_lite": lite, "nodelist": ["n0"], "starttime": 0.0, "expiration": 0.0}}


def place_of(r: dict[str, Any]) -> int:
    return int(r["execution"]["R_lite"][0]["children"]["core"])


class World:
    """One broker, and the dice."""

    def __init__(self, broker: Any, seed: int) -> None:
        self.broker = broker
        self.dice = random.Random(seed)
        broker.agent = self.agent = Agent()
        broker.overlay = SimpleNamespace(topology=Topology(1, "kary:2"), children={}, on_child_lost=[])
        self.sched = Scheduler(broker.context("sched"), self.dice.choice([1, 2, 3]), self.dice)
        # How often jobs differ, and how often a module is loaded anew.
        self.variety = self.dice.choice([0.0, 0.02, 0.3])
        self.unrest = self.dice.choice([0.0, 0.003, 0.03])
        self.deadly = self.dice.choice([0.0, 0.0, 0.02])
        broker.context("resource").service("resource", {"status": lambda msg: {"R": r_of(0)}})
        broker.context("feasibility").service("feasibility", {"check": lambda msg: EMPTY})
        broker.load(job_manager)
        broker.load(job_ingest)
        broker.load(job_exec)
        self.client = broker.client()
        self.ids: list[int] = []
        self.submissions: list[int] = []
        self.asked: list[int] = []
        self.reload: asyncio.Future[None] | None = None

    def submit(self) -> None:
        system = {"duration": 60.0} if self.dice.random() < self.variety else {}
        body = {"J": signed(jobspec(**system), self.client.userid), "flags": 0}
        body["urgency"] = 20 if self.dice.random() < self.variety else 16
        self.submissions.append(self.client.start("job-ingest.submit", body))

    def meddle(self) -> None:
        if not self.ids:
            return
        id = self.dice.choice(self.ids[-8:])
        topic, body = self.dice.choice(
            [
                ("raise", {"id": id, "severity": 0, "type": "cancel"}),
                ("kill", {"id": id, "signum": 15}),
                ("urgency", {"id": id, "urgency": self.dice.choice([0, 8, 16, 24])}),
                ("update", {"id": id, "updates": {"attributes.system.duration": self.dice.choice([0.0, 60.0])}}),
                ("queue-start", {"start": self.dice.random() < 0.7, "reason": "", "all": True}),
            ]
        )
        self.asked.append(self.client.start("job-manager." + topic, body))

    def end_one(self) -> None:
        if self.agent.running:
            self.agent.end(self.dice.choice(list(self.agent.running)))

    def begin_reload(self) -> None:
        if self.reload is None:
            self.reload = asyncio.ensure_future(self._reload())

    async def _reload(self) -> None:
        await self.broker.contexts.pop("job-exec").unload()
        self.broker.load(job_exec)
        self.reload = None

    async def go_on(self, turns: int = 1) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        for tag in self.submissions:
            queue = self.client.queues[tag]
            while not queue.empty():
                self.ids.append(queue.get_nowait().obj["id"])

    def one_hears(self) -> bool:
        """Have somebody read what is there for him."""
        if not self.agent.up and self.dice.random() < 0.2:
            self.agent.revive()
        ways = [(self.agent.outbox, self.agent.tell), (self.sched.inbox, self.sched.hear)]
        if self.agent.up:
            ways.append((self.agent.inbox, self.agent.hear))
        full = [hear for box, hear in ways if box]
        if full:
            self.dice.choice(full)()
        return bool(full)

    async def meddled_with(self, steps: int) -> None:
        deeds = [self.submit] * 4 + [self.meddle] * self.dice.choice([0, 1, 3]) + [self.end_one] * 4
        deeds += [self.one_hears] * self.dice.choice([4, 8, 16])
        for _ in range(steps):
            if self.dice.random() < self.unrest:
                self.dice.choice([self.begin_reload, self.sched.begin])()
            if self.agent.up and self.dice.random() < self.deadly:
                self.agent.die()
            self.dice.choice(deeds)()
            if self.dice.random() < 0.7:
                await self.go_on(self.dice.choice([1, 1, 2, 4]))

    async def to_the_end(self) -> Any:
        """Everything is let run; returns the jobs that are left."""
        await self.go_on(10)
        while self.reload is not None:
            self.one_hears()
            await self.go_on()
        self.client.start("job-manager.queue-start", {"start": True, "all": True})
        for id in self.ids:
            self.client.start("job-manager.urgency", {"id": id, "urgency": 16})
        idle = 0
        while idle < 5:
            await self.go_on(4)
            busy = self.one_hears() or not self.agent.up or self.agent.running
            idle = 0 if busy else idle + 1
            self.end_one()
        return (await self.client.rpc("job-manager.list", {"max_entries": 0}))["jobs"]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(size("orders")))
def test_no_order_of_messages_leaves_a_job_behind_or_starts_one_twice(in_broker: Any, seed: int) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, seed)
        world.sched.begin()
        await world.meddled_with(600)
        assert await world.to_the_end() == []
        assert not [id for id, times in world.agent.starts.items() if times > 1]
        assert all(not world.client.queues[tag].empty() for tag in world.asked), "a request was not answered"
        # What is said of a scheduler that comes (debug lines) is no complaint.
        told = [line for line in broker.logged if not line.startswith("job-manager: scheduler: ")]
        assert not told, told

    in_broker(scenario)
