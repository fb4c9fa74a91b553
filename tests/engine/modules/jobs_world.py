"""Job manager and ingest among a scheduler, an exec service and a resource module that the test plays."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
from collections.abc import Callable
from typing import Any

from headrace.engine.broker.module.context import EMPTY, RpcError
from headrace.engine.modules.job_ingest import service as job_ingest
from headrace.engine.modules.job_manager import service as job_manager
from headrace.engine.modules.job_manager.pipeline import Pipeline
from headrace.formats.spec.message import FLAG_STREAMING, Message

R: dict[str, Any] = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0", "children": {"core": "0"}}],
        "nodelist": ["node0"],
        "starttime": 0.0,
        "expiration": 0.0,
    },
}

# A configuration with two queues.
QUEUES: dict[str, Any] = {
    "policy": {"jobspec": {"defaults": {"system": {"queue": "batch"}}}},
    "queues": {"batch": {"requires": ["batch"]}, "debug": {"requires": ["debug"]}},
}


def jobspec(*command: str, **system: Any) -> dict[str, Any]:
    return {
        "resources": [{"type": "slot", "count": 1, "with": [{"type": "core", "count": 1}], "label": "task"}],
        "tasks": [{"command": list(command) or ["true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0, "environment": {"A": "b" * 300}, **system}},
        "version": 1,
    }


def shown(*command: str) -> dict[str, Any]:
    """What others see of jobspec(): real Flux keeps the environment to itself."""
    return jobspec(*command) | {"attributes": {"system": {"duration": 0}}}


def signed(spec: Any, userid: int) -> str:
    head = f"version\0i1\0userid\0i{userid}\0mechanism\0snone\0".encode()
    parts = (base64.b64encode(part).decode() for part in (head, json.dumps(spec).encode()))
    return ".".join((*parts, "none"))


class World:
    """`allocs` and `starts` are open requests by job id; `asked` are the ids of all alloc requests."""

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.ctx = broker.context("world")
        self.allocs: dict[int, Message] = {}
        self.starts: dict[int, Message] = {}
        self.asked: list[int] = []
        self.freed: list[int] = []
        self.kills: list[Any] = []
        self.expirations: list[Any] = []
        self.infeasible = self.refusal = ""
        self.ctx.service(
            "sched",
            {
                "alloc": self._alloc,
                "cancel": self._cancel,
                "free": self._free,
                "prioritize": lambda msg: EMPTY,
                "expiration": self._expiration,
            },
        )
        self.ctx.service("feasibility", {"check": self._check})
        self.ctx.service("exec", {"start": self._start, "kill": self._kill, "expiration": lambda msg: EMPTY})
        self.ctx.service("resource", {"status": lambda msg: {"R": R}})
        self.manager = broker.load(job_manager)
        self.ingest = broker.load(job_ingest)
        self.client = broker.client()

    async def begin(self) -> None:
        """The scheduler and the exec service say hello."""
        await self.ctx.rpc("job-manager.exec-hello", {"service": "exec"})
        await self.ctx.rpc("job-manager.sched-ready", {"mode": "unlimited"})

    def _alloc(self, msg: Message) -> None:
        self.asked.append(msg.obj["id"])
        self.allocs[msg.obj["id"]] = msg

    def _cancel(self, msg: Message) -> Any:
        request = self.allocs.pop(msg.obj["id"], None)
        if request is not None:
            self.ctx.respond(request, {"id": msg.obj["id"], "type": 3})
        return EMPTY

    def _free(self, msg: Message) -> Any:
        self.freed.append(msg.obj["id"])
        return EMPTY

    def _expiration(self, msg: Message) -> Any:
        if self.refusal:
            raise RpcError(errno.EINVAL, self.refusal)
        self.expirations.append((msg.obj["id"], msg.obj["expiration"]))
        return EMPTY

    def _check(self, msg: Message) -> Any:
        if self.infeasible:
            raise RpcError(errno.EINVAL, self.infeasible)
        return EMPTY

    def _start(self, msg: Message) -> None:
        self.starts[msg.obj["id"]] = msg

    def _kill(self, msg: Message) -> Any:
        self.kills.append((msg.obj["id"], msg.obj["signum"]))
        return EMPTY

    async def until(self, ready: Callable[[], bool]) -> None:
        """Let the broker go on until something holds; fails after a second."""
        for _ in range(1000):
            if ready():
                return
            await asyncio.sleep(0.001 if _ > 20 else 0)
        raise AssertionError("it did not come to that")

    async def submit(self, spec: Any = None, **fields: Any) -> Message:
        body = {"J": signed(spec or jobspec(), self.client.userid), "urgency": 16, "flags": 0, **fields}
        reply: Message = await self.client.call("job-ingest.submit", body)
        return reply

    async def job(self, spec: Any = None, **fields: Any) -> int:
        reply = await self.submit(spec, **fields)
        assert reply.errnum == 0, reply.text
        return int(reply.obj["id"])

    async def alloc(self, id: int, **execution: Any) -> None:
        await self.until(lambda: id in self.allocs)
        r = {**R, "execution": {**R["execution"], **execution}}
        body = {"id": id, "type": 0, "annotations": {"sched": {"resource_summary": "rank0/core0"}}, "R": r}
        self.ctx.respond(self.allocs.pop(id), body)
        await self.until(lambda: id in self.starts)

    def say(self, id: int, kind: str, **data: Any) -> None:
        self.ctx.respond(self.starts[id], {"id": id, "type": kind, "data": data})

    def log(self, id: int, name: str, *entries: Any) -> None:
        self.ctx.call("job-store.append", {"logs": [[id, name, list(entries)]]})

    def end(self, id: int, status: int = 0) -> None:
        self.say(id, "finish", status=status)
        self.say(id, "release", ranks="all", final=True)

    async def run(self, id: int, status: int = 0) -> None:
        await self.alloc(id)
        self.say(id, "start")
        self.end(id, status)
        await self.client.rpc("job-manager.drain")

    async def cancel(self, id: int) -> None:
        await self.client.rpc("job-manager.raise", {"id": id, "type": "cancel", "severity": 0})

    async def events(self, id: int) -> list[tuple[str, Any]]:
        body = await self.client.rpc("job-info.lookup", {"id": id, "keys": ["eventlog"], "flags": 0})
        lines = [json.loads(line) for line in body["eventlog"].splitlines()]
        return [(line["name"], line.get("context")) for line in lines]

    def watch(self, id: int, path: str = "eventlog", client: Any = None) -> int:
        body = {"id": id, "path": path, "flags": 0}
        tag: int = (client or self.client).start("job-info.eventlog-watch", body, None, FLAG_STREAMING)
        return tag

    async def watched(self, tag: int) -> list[str]:
        """The names of all events until the stream ends, which it must do with ENODATA."""
        names: list[str] = []
        while True:
            reply = await self.client.next(tag)
            if reply.errnum:
                assert reply.errnum == errno.ENODATA, reply.text
                return names
            names.append(json.loads(reply.obj["event"])["name"])

    async def all_events(self) -> list[tuple[int, list[str]]]:
        """Every job with the names of its events, from the journal of events."""
        tag = self.client.start("job-manager.events-journal", {"full": True}, None, FLAG_STREAMING)
        found: list[tuple[int, list[str]]] = []
        while True:
            body = (await self.client.next(tag)).obj
            if not body["events"]:
                return found
            found.append((body["id"], [event["name"] for event in body["events"]]))


def pipeline_of(world: World) -> Pipeline:
    """What is behind the job manager's requests."""
    handler, *_ = world.manager._methods["job-manager.submit"]
    found: Pipeline = handler.__self__.pipeline
    return found
