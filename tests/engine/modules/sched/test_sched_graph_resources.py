"""Nodes, properties and jobs that come and go under the graph scheduler."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from sched_world import World, four_nodes, jobspec, on, running

from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules.sched import service as sched_graph
from waiting import until_in_loop

Run = Callable[..., None]


def test_a_constraint_limits_where_a_job_goes(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, r=four_nodes(properties={"fast": "2"}))
        constraints = [{"properties": ["fast"]}, {"hostlist": ["node1"]}, {"ranks": ["3"]}]
        for job, constraint in enumerate(constraints):
            world.submit(job, jobspec(constraints=constraint))
        await world.settle()
        assert [world.ranks(job) for job in range(3)] == ["2", "1", "3"]

    in_broker(scenario)


def test_a_job_waits_for_nodes_that_are_down_and_is_told_so(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, up="1")
        world.submit(1, jobspec(nslots=2))
        world.submit(2, jobspec(nnodes=4, exclusive=True))
        await until_in_loop(lambda: 2 in world.answers)
        assert (world.ranks(1), world.ranks(2)) == ("1", "")
        (told,) = world.answers[2]
        reason = told["annotations"]["sched"]["reason_pending"]
        assert reason == "insufficient resources: idle node x4 short (4 wanted, 0 free on 1 eligible node(s))"
        world.change(down="1")
        await world.settle()
        world.free(1)
        world.change(up="0-3")
        await world.settle()
        assert world.ranks(2) == "0-3"

    in_broker(scenario)


def test_properties_come_and_go(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, r=four_nodes(properties={"fast": "0"}))
        for job in (1, 2):
            world.submit(job, jobspec(nslots=2, constraints={"properties": ["fast"]}))
        await world.settle()
        assert not world.ranks(2)
        world.change(property_add={"fast": "2"})
        await world.settle()
        assert world.ranks(2) == "2"
        assert world.r_of(2)["execution"]["properties"] == {"fast": "2"}
        world.free(2)
        world.change(property_remove={"fast": "0,2"})
        world.submit(3, jobspec(constraints={"properties": ["fast"]}))
        await world.settle()
        assert world.answers[3][-1]["type"] == 2
        world.free(1)
        world.submit(4, jobspec(nslots=8))
        await world.settle()
        assert world.ranks(4) == "0-3"

    in_broker(scenario)


def test_ranks_that_leave_take_their_part_of_jobs_with_them(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        world.submit(1, jobspec(nslots=6))
        world.submit(2, jobspec(nslots=4))
        await world.settle()
        world.change(shrink="2")
        world.submit(3, jobspec(nslots=8))
        await world.settle()
        assert world.started(2, 3) == []
        world.free(1)
        await world.settle()
        assert world.ranks(2) == "0-1"
        world.free(2)
        await world.settle()
        assert "only 6 such slot(s)" in world.answers[3][-1]["note"]

    in_broker(scenario)


def test_ranks_that_are_added_are_used_once_they_are_up(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        world.submit(1, jobspec(nslots=7))
        await world.settle()
        world.change(grow=on("4-5", cores="0-3"))
        world.submit(2, jobspec(nslots=17))
        world.submit(3, jobspec(nslots=9))
        await world.settle()
        assert world.started(2, 3) == []
        assert world.answers[2][-1]["type"] == 2 and "only 16 such slot(s)" in world.answers[2][-1]["note"]
        world.change(up="4-5")
        await world.settle()
        # What was there is not given twice, what is new has its own names and cores.
        r_lite = world.r_of(3)["execution"]["R_lite"]
        assert r_lite == [{"rank": "3", "children": {"core": "1"}}, {"rank": "4-5", "children": {"core": "0-3"}}]
        assert world.r_of(3)["execution"]["nodelist"] == ["node[3-5]"]
        for job in (1, 3):
            world.free(job)
        world.submit(4, jobspec(nnodes=6, exclusive=True))
        await world.settle()
        assert world.ranks(4) == "0-3,4-5"

    in_broker(scenario)


def test_a_rank_that_comes_back_otherwise_is_one_change(in_broker: Run) -> None:
    """A job that only the new shape can run is not refused between the two."""

    async def scenario(broker: Any) -> None:
        world = World(broker)
        world.submit(1, jobspec(nslots=8))
        await world.settle()
        world.submit(2, jobspec(nslots=8))
        await world.settle()
        world.change(shrink="3", grow=on("3", cores="0-7"))
        world.change(up="3")
        await world.settle()
        assert world.r_of(2)["execution"]["R_lite"] == [{"rank": "3", "children": {"core": "0-7"}}]
        world.free(1)
        world.submit(3, jobspec(nslots=6))
        await world.settle()
        assert world.ranks(3) == "0-2"

    in_broker(scenario)


def test_ranks_that_are_there_already_are_not_added_again(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.settle()
        world.change(grow={**on("3"), "execution": {**on("3")["execution"], "nodelist": ["other"]}})
        world.submit(1, jobspec(nnodes=4, exclusive=True))
        await world.settle()
        assert world.ranks(1) == "0-3"
        assert broker.logged[-1].endswith(
            "rank 3 is node3 in one set and other in the other: nothing is scheduled on the added resources"
        )

    in_broker(scenario)


def test_running_jobs_keep_their_resources_over_a_restart(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, running=[running(7, on("0-2"), free="1"), running(6, on("3", cores="1"))])
        world.submit(8, jobspec(nslots=3))
        await world.settle()
        r_lite = world.r_of(8)["execution"]["R_lite"]
        assert r_lite == [{"rank": "1", "children": {"core": "0-1"}}, {"rank": "3", "children": {"core": "0"}}]
        for job in (7, 6, 8):
            world.free(job)
        world.submit(9, jobspec(nnodes=4, exclusive=True))
        await world.settle()
        assert world.ranks(9) == "0-3"

    in_broker(scenario)


def test_a_job_whose_resources_are_not_there_any_more_is_ended_not_forgotten(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        gone, twice = on("7"), on("0")
        world = World(broker, running=[running(1, gone), running(2, twice), running(3, twice)])
        await world.settle()
        assert [(body["id"], body["type"], body["severity"]) for body in world.raised] == [
            (1, "scheduler-restart", 0),
            (3, "scheduler-restart", 0),
        ]
        assert "rank 7" in world.raised[0]["note"]
        assert world.ready

    in_broker(scenario)


def test_partly_released_resources_are_used_again(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        world.submit(1, jobspec(nnodes=4, exclusive=True))
        world.submit(2, jobspec(nnodes=1, exclusive=True))
        await world.settle()
        world.free(1, R=on("2"), final=False)
        await world.settle()
        assert world.ranks(2) == "2"
        world.submit(3, jobspec(nnodes=3, exclusive=True))
        world.free(1, R=on("0-1,3"), final=False)
        world.free(1, R=four_nodes(), final=True)
        await world.settle()
        assert world.ranks(3) == "0-1,3"

    in_broker(scenario)


def test_limited_mode_is_told_to_the_job_manager(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, "mode=limited=8")
        await world.settle()
        assert world.ready == {"mode": "limited", "limit": 8}

    in_broker(scenario)


def test_a_reloaded_configuration_applies_to_waiting_jobs_and_keeps_running_ones(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        world.submit(1, jobspec(nslots=7, duration=600.0))
        world.submit(2, jobspec(nslots=8))
        world.submit(3, jobspec(duration=60.0))
        await world.settle()
        assert world.started(3) == []
        broker.config = {"sched-fluxion-qmanager": {"queue-policy": "easy"}}
        await broker.client().rpc("sched.config-reload")
        await world.settle()
        assert world.started(2, 3) == [3]
        world.free(1)
        world.free(3)
        await world.settle()
        assert world.started(2) == [2]

    in_broker(scenario)


def test_a_bad_configuration_is_refused_with_the_key_and_changes_nothing(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.settle()
        broker.config = {"sched-fluxion-qmanager": {"queue-policy": "lifo"}}
        reply = await broker.client().call("sched.config-reload")
        assert reply.errnum == errno.EINVAL
        assert reply.text == "queue-policy: must be one of fcfs, easy, hybrid, conservative, not 'lifo'"
        world.submit(1, jobspec())
        await world.settle()
        assert world.ranks(1) == "0"

    in_broker(scenario)


def test_a_module_argument_that_is_none_is_refused(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        with pytest.raises(RpcError, match="match-policy: must be one of first"):
            broker.load(sched_graph, "match-policy=best")

    in_broker(scenario)


def test_settings_of_a_queue_that_there_is_not_are_named(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        World(broker)
        (line,) = [line for line in broker.logged if "there is no queue" in line]
        assert "sched-fluxion-qmanager: there is no queue nosuch" in line

    queues = {"queue-policy-per-queue": "a:easy nosuch:fcfs"}
    in_broker(scenario, config={"queues": {"a": {}}, "sched-fluxion-qmanager": queues})
