"""A scheduler between a resource module and a job manager that the test plays."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable
from typing import Any

from headrace.engine.broker.module.context import EMPTY
from headrace.engine.modules.sched import service as sched_graph
from headrace.formats.spec.message import Message

Jobspec = dict[str, Any]
Run = Callable[..., None]
LATE = 4_000_000_000.0


def jobspec(nslots: int = 1, cores: int = 1, nnodes: int = 0, exclusive: bool = False, **system: Any) -> Jobspec:
    slot = {"type": "slot", "count": nslots, "label": "task", "with": [{"type": "core", "count": cores}]}
    node = {"type": "node", "count": nnodes, "with": [slot]}
    if exclusive:
        node["exclusive"] = True
    return {
        "version": 1,
        "resources": [node if nnodes else slot],
        "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0, **system}},
    }


def four_nodes(**execution: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "0-3", "children": {"core": "0-1"}}],
            "starttime": 0.0,
            "expiration": 0.0,
            "nodelist": ["node[0-3]"],
            **execution,
        },
    }


def on(ranks: str, cores: str = "0-1", **execution: Any) -> dict[str, Any]:
    nodelist = [f"node[{ranks}]"]
    return four_nodes(R_lite=[{"rank": ranks, "children": {"core": cores}}], nodelist=nodelist, **execution)


class World:
    """Plays `resource` and `job-manager`; `answers` gathers every response of the scheduler by job."""

    def __init__(
        self,
        broker: Any,
        *args: str,
        module: Any = sched_graph,
        r: dict[str, Any] | None = None,
        up: str = "0-3",
        running: Iterable[dict[str, Any]] = (),
    ) -> None:
        self.broker = broker
        self.ctx = broker.context("world")
        self.r, self.up, self.running = r or four_nodes(), up, running
        self.answers: dict[int, list[dict[str, Any]]] = {}
        self.ready: dict[str, Any] = {}
        self.early: list[dict[str, Any]] = []
        self.raised: list[dict[str, Any]] = []
        self.acquired: Any = None
        self.ctx.service("resource", {"acquire": self._acquire})
        self.successors: list[list[int]] = []
        manager = {
            "sched-hello": self._hello,
            "sched-ready": self._ready,
            "sched-successors": self._successors,
            "raise": self._raise,
        }
        self.ctx.service("job-manager", manager)
        self.sched = broker.load(module, *args)

    def _acquire(self, msg: Message) -> None:
        self.acquired = msg
        self.ctx.respond(msg, {"resources": self.r, "up": self.up})

    def change(self, **delta: Any) -> None:
        self.ctx.respond(self.acquired, {key.replace("_", "-"): value for key, value in delta.items()})

    def _hello(self, msg: Message) -> None:
        for job in self.running:
            self.ctx.respond(msg, job)
        self.ctx.respond_error(msg, errno.ENODATA)

    def _ready(self, msg: Message) -> Any:
        self.ready = msg.obj
        early, self.early = self.early, []
        for body in early:
            self._request(body)
        return {"count": len(early)}

    def _successors(self, msg: Message) -> Any:
        self.successors.append(msg.obj["ids"])
        return EMPTY

    def _raise(self, msg: Message) -> Any:
        self.raised.append(msg.obj)
        return EMPTY

    def submit(self, job: int, spec: Jobspec, priority: int = 16, userid: int = 0, t_submit: float = 1.0) -> None:
        body = {"id": job, "priority": priority, "userid": userid, "t_submit": t_submit, "jobspec": spec}
        if self.ready:
            self._request(body)
        else:
            self.early.append(body)

    def _request(self, body: dict[str, Any]) -> None:
        def answer(reply: Message) -> None:
            assert reply.errnum == 0, reply.text
            self.answers.setdefault(body["id"], []).append(reply.obj)

        self.ctx.call("sched.alloc", body, answer, streaming=True)

    def inherit(self, *jobs: tuple[int, int]) -> None:
        """Jobs have taken over what others held, each for ever."""
        self.ctx.call("sched.inherit", {"jobs": [[job, successor, 0.0] for job, successor in jobs]})

    def free(self, job: int, **body: Any) -> None:
        self.ctx.call("sched.free", {"id": job, **body})

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    def r_of(self, job: int) -> dict[str, Any]:
        return next(answer["R"] for answer in self.answers.get(job, []) if answer["type"] == 0)

    def ranks(self, job: int) -> str:
        """The ranks a job got, "" while it waits."""
        for answer in self.answers.get(job, []):
            if answer["type"] == 0:
                return ",".join(group["rank"] for group in answer["R"]["execution"]["R_lite"])
        return ""

    def started(self, *jobs: int) -> list[int]:
        return [job for job in jobs if self.ranks(job)]


def running(job: int, r: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": job, "priority": 16, "userid": 0, "t_submit": 1.0, "R": r, **more}
