"""How a scheduler learns what runs already."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable
from typing import Any

import pytest
from sched_world import World, jobspec

from headrace.engine.broker.module.context import EMPTY, RpcError
from headrace.engine.modules.sched import options as sched_options
from headrace.engine.modules.sched import service as sched_graph
from headrace.engine.modules.sched import simple as sched_simple
from headrace.engine.modules.sched.hello import hello
from headrace.formats.spec.message import Message

Run = Callable[..., None]
R = {"version": 1}


class Manager:
    """The job manager's side: running jobs to tell of, and what it is told in turn."""

    def __init__(self, broker: Any, jobs: list[dict[str, Any]], end: int = errno.ENODATA, ready: int = 0) -> None:
        self.hellos: list[Any] = []
        self.raised: list[Any] = []
        self.ready: list[Any] = []
        self.recovered: list[Any] = []
        ctx = broker.context("job-manager")

        def say_hello(msg: Message) -> None:
            assert msg.streaming
            self.hellos.append(msg.obj)
            for job in jobs:
                ctx.respond(msg, {"priority": 16, "userid": 7, "t_submit": 5.04, **job})
            ctx.respond_error(msg, end, "no hello" if end != errno.ENODATA else "")

        def is_ready(msg: Message) -> Any:
            self.ready.append(msg.obj)
            if ready:
                raise RpcError(ready, "another is there")
            return EMPTY

        def look_up(msg: Message) -> Any:
            assert msg.obj["keys"] == ["R"]
            if msg.obj["id"] == 404:
                raise RpcError(errno.ENOENT, "gone")
            return {"R": json.dumps({"version": msg.obj["id"]})}

        methods = {"sched-hello": say_hello, "sched-ready": is_ready, "raise": lambda msg: self.raised.append(msg.obj)}
        ctx.service("job-manager", methods)
        broker.context("job-info").service("job-info", {"lookup": look_up})
        self.sched = broker.context("sched")

    def hello(self, *args: str) -> None:
        options, log = sched_options.read(self.sched, list(args))
        hello(self.sched, options, log, self.recover, lambda: "Rv1 rank0/core0")

    def recover(self, job: int, r: dict[str, Any], freed: int) -> None:
        if job == 13:
            raise ValueError("rank 7 is not part of this instance")
        self.recovered.append((job, r, freed))


async def settle() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


def test_running_jobs_are_taken_up_then_the_scheduler_is_ready(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = Manager(broker, [{"id": 1, "R": R}, {"id": 2, "R": R, "free": "0-1"}, {"id": 3, "free": "2"}])
        world.hello("log-level=debug")
        await settle()
        assert sorted(world.recovered) == [(1, R, 0), (2, R, 0b11), (3, {"version": 3}, 0b100)]
        assert (world.ready, world.raised) == ([{"mode": "unlimited"}], [])
        assert world.hellos == [{"partial-ok": True}]
        found = [f"sched: hello: id={id} priority=16 userid=7 t_submit=5.0" for id in ("ƒ2", "ƒ3", "ƒ4")]
        ready = "sched: ready: queue-depth=unlimited log-level=debug pool-class=Rv1Pool Rv1 rank0/core0"
        assert broker.logged == [*found, ready]

    in_broker(scenario)


def test_jobs_that_gave_back_a_part_may_be_unwelcome(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = Manager(broker, [{"id": 1, "R": R}])
        world.hello("test-hello-nopartial", "queue-depth=3")
        await settle()
        assert world.hellos == [{"partial-ok": False}]
        assert world.ready == [{"mode": "limited", "limit": 3}]
        # Without log-level=debug nothing is said of each job.
        assert broker.logged == ["sched: ready: queue-depth=3 log-level=info pool-class=Rv1Pool Rv1 rank0/core0"]

    in_broker(scenario)


def test_a_job_whose_resources_cannot_be_had_again_ends(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        jobs = [{"id": 13, "R": R}, {"id": 404}, {"id": 5, "R": R, "free": "nonsense"}, {"id": 6, "R": R}]
        world = Manager(broker, jobs)
        world.hello()
        await settle()
        notes = {body["id"]: body["note"] for body in world.raised}
        assert notes[13] == "failed to reallocate R: rank 7 is not part of this instance"
        assert notes[404] == "failed to reallocate R: gone"
        assert notes[5].startswith("failed to reallocate R: ")
        assert {(body["severity"], body["type"]) for body in world.raised} == {(0, "scheduler-restart")}
        assert [job for job, _, _ in world.recovered] == [6]
        assert len(world.ready) == 1

    in_broker(scenario)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"end": errno.EPERM}, "sched: job-manager.sched-hello: no hello"),
        ({"ready": 17}, "sched-ready: another is there"),
    ],
)
def test_a_job_manager_that_refuses_is_told_of(in_broker: Run, answers: dict[str, int], said: str) -> None:
    async def scenario(broker: Any) -> None:
        world = Manager(broker, [], **answers)
        world.hello()
        await settle()
        assert len(broker.logged) == 1 and said in broker.logged[0]
        assert len(world.ready) == ("ready" in answers)

    in_broker(scenario)


@pytest.mark.parametrize("module", [sched_graph, sched_simple])
def test_what_is_said_when_news_about_resources_end_is_so(in_broker: Run, module: Any) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, module=module)
        await world.settle()
        world.ctx.respond_error(world.acquired, errno.ENOSYS, "resource was unloaded")
        await world.settle()
        assert broker.logged[-1].endswith("unloaded: changes of nodes are not noticed until the scheduler is reloaded")
        world.submit(1, jobspec())
        await world.settle()
        assert world.started(1) == [1]

    in_broker(scenario)
