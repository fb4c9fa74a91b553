"""What the graph scheduler answers under Fluxion's service names."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from headrace.engine.broker.module.context import EMPTY
from headrace.engine.modules.sched import service as sched_graph
from headrace.formats.spec.message import Message

Run = Callable[..., None]


def jobspec(nslots: int, **system: Any) -> dict[str, Any]:
    slot = {"type": "slot", "count": nslots, "label": "task", "with": [{"type": "core", "count": 1}]}
    return {"version": 1, "resources": [slot], "tasks": [], "attributes": {"system": {"duration": 60.0, **system}}}


class World:
    """Two nodes of two cores; job 1 holds three cores, job 2 waits for four."""

    def __init__(self, broker: Any, *args: str) -> None:
        self.broker = broker
        ctx = self.ctx = broker.context("world")
        self.answers: list[dict[str, Any]] = []
        execution = {
            "R_lite": [{"rank": "0-1", "children": {"core": "0-1"}}],
            "starttime": 0.0,
            "expiration": 0.0,
            "nodelist": ["node[0-1]"],
        }
        acquired = {"resources": {"version": 1, "execution": execution}, "up": "0-1"}
        ctx.service("resource", {"acquire": lambda msg: ctx.respond(msg, acquired)})
        hello = {"sched-hello": lambda msg: ctx.respond_error(msg, errno.ENODATA), "sched-ready": self._ready}
        ctx.service("job-manager", hello)
        broker.load(sched_graph, *args)
        self.client = broker.client()

    def _ready(self, msg: Message) -> Any:
        for job, spec in ((1, jobspec(3)), (2, jobspec(4))):
            body = {"id": job, "priority": 16, "userid": 0, "t_submit": 1.0, "jobspec": spec}
            self.ctx.call("sched.alloc", body, lambda reply: self.answers.append(reply.obj), streaming=True)
        return EMPTY

    async def ask(self, method: str, **body: Any) -> Any:
        return await self.client.rpc(f"sched-fluxion-resource.{method}", body)

    async def refused(self, method: str, **body: Any) -> tuple[int, str]:
        reply = await self.client.call(f"sched-fluxion-resource.{method}", body)
        return reply.errnum, reply.text


def in_world(in_broker: Run, *args: str) -> Callable[[Callable[[World], Any]], None]:
    def run(scenario: Callable[[World], Any]) -> None:
        async def main(broker: Any) -> None:
            world = World(broker, *args)
            await world.ask("params")
            while not world.answers:
                await world.ask("params")
            await scenario(world)

        in_broker(main)

    return run


def test_find_answers_in_the_format_that_is_asked_for(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        found = (await world.ask("find", criteria="sched-now=allocated"))["R"]
        assert found["execution"]["R_lite"] == [
            {"rank": "1", "children": {"core": "0"}},
            {"rank": "0", "children": {"core": "0-1"}},
        ]
        free = await world.ask("find", criteria="sched-now=free and names=core1", format="simple")
        assert "core1[1:x]" in free["R"]
        assert (await world.ask("find", criteria="status=down"))["R"] is None
        nodes = (await world.ask("find", criteria="jobid-alloc=1", format="jgf"))["R"]["graph"]["nodes"]
        assert {"node0", "node1"} <= {node["metadata"]["paths"]["containment"].split("/")[-1] for node in nodes}

    in_world(in_broker)(scenario)


def test_a_bad_question_is_refused_with_what_would_be_right(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        assert await world.refused("find", criteria="color=red") == (
            errno.EINVAL,
            "find: 'color=red' is not a criterion such as sched-now=free, status=down or jobid-alloc=1",
        )
        code, text = await world.refused("find", criteria="status=up", format="xml")
        assert (code, text.split(",")[0]) == (errno.EINVAL, "format: must be one of rv1_nosched")
        assert (await world.refused("info", jobid=99))[0] == errno.ENOENT
        assert (await world.refused("set_status", resource_path="/x", status="up"))[0] == errno.ENOENT
        assert (await world.refused("set_status", resource_path="/cluster0", status="?"))[0] == errno.EINVAL
        wrong = await world.refused("set_property", sp_resource_path="/cluster0", sp_keyval="x")
        assert wrong == (errno.EINVAL, "Incorrect format. Use PROPERTY=VALUE.")
        assert (await world.refused("get_property", gp_resource_path="/cluster0", gp_key="x"))[0] == errno.ENOENT

    in_world(in_broker)(scenario)


def test_info_tells_allocations_and_promises(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        running, promised = await world.ask("info", jobid=1), await world.ask("info", jobid=2)
        assert (running["status"], promised["status"]) == ("ALLOCATED", "RESERVED")
        assert promised["at"] == running["at"] + 60

    in_world(in_broker, "queue-policy=easy")(scenario)


def test_a_vertex_that_is_down_gets_no_jobs_until_it_is_up(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        await world.ask("set_status", resource_path="/cluster0/node0", status="down")
        world.ctx.call("sched.free", {"id": 1})
        await world.ask("params")
        assert [answer["id"] for answer in world.answers] == [1]
        found = (await world.ask("find", criteria="status=down", format="simple"))["R"]
        *cores, node, cluster = found.split()
        assert (node, cluster) == ("------node0[1:x]", "---cluster0[1:x]")
        assert cores and all(line.startswith("---------core") for line in cores)
        await world.ask("set_status", resource_path="/cluster0/node0", status="up")
        await world.ask("params")
        assert [answer["id"] for answer in world.answers] == [1, 2]

    in_world(in_broker)(scenario)


def test_properties_are_set_and_read_by_path(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        await world.ask("set_property", sp_resource_path="/cluster0/node1", sp_keyval="speed=3")
        assert await world.ask("get_property", gp_resource_path="/cluster0/node1", gp_key="speed") == {"values": ["3"]}
        check = {"jobspec": jobspec(1, constraints={"properties": ["speed"]})}
        await world.ask("satisfiability", **check)

    in_world(in_broker)(scenario)


def test_statistics_and_parameters_are_those_in_force(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        stats = await world.ask("stats-get")
        assert (stats["V"], stats["E"], stats["by_rank"]) == (7, 6, {"[0-1]": 3})
        assert stats["match"] == {"succeeded": {"njobs": 1}, "failed": {"njobs": 0}}
        assert await world.ask("params") == {"params": {"match-policy": "low", "match-format": "rv1_nosched"}}
        queues = (await world.client.rpc("sched-fluxion-qmanager.stats-get"))["queues"]
        assert queues["default"]["action_counts"] == {"pending": 1, "running": 1, "reserved": 1}
        params = (await world.client.rpc("sched-fluxion-qmanager.params"))["params"]
        assert params["queue-policy"] == "hybrid"
        assert params["policy-params"] == {"reservation-depth": 5}

    in_world(in_broker, "queue-policy=hybrid", "policy-params=reservation-depth=5", "match-policy=low")(scenario)


@pytest.mark.parametrize("method", ["set_property", "set_status"])
def test_guests_look_but_do_not_touch(in_broker: Run, method: str) -> None:
    async def scenario(world: World) -> None:
        guest = world.broker.client(guest=True)
        assert (await guest.call("sched-fluxion-resource.find", {"criteria": "status=up"})).errnum == 0
        assert (await guest.call(f"sched-fluxion-resource.{method}", {})).errnum == errno.EPERM

    in_world(in_broker)(scenario)


def test_in_private_mode_guests_find_vertices_by_what_says_nothing_of_jobs(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.broker.config = {"access": {"private-mode": True}}
        guest = world.broker.client(guest=True)
        for criteria, errnum in (("status=up or status=down", 0), ("sched-now=free", errno.EPERM)):
            assert (await guest.call("sched-fluxion-resource.find", {"criteria": criteria})).errnum == errnum

    in_world(in_broker)(scenario)
