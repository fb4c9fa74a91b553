"""The graph scheduler against a job manager and a resource module that the test plays."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest
from sched_world import LATE, World, four_nodes, jobspec, on, running

from waiting import stays_in_loop, until_in_loop

Jobspec = dict[str, Any]
Run = Callable[..., None]


def test_an_allocation_carries_r_and_its_summary(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, r=four_nodes(properties={"batch": "0-2"}))
        await world.settle()
        assert world.ready == {"mode": "unlimited"}
        world.submit(1, jobspec())
        world.submit(2, jobspec(nnodes=3, exclusive=True))
        await world.settle()
        (one,), (whole,) = world.answers[1], world.answers[2]
        assert (one["id"], one["type"]) == (1, 0)
        assert one["annotations"] == {"sched": {"resource_summary": "rank0/core0"}}
        execution = one["R"]["execution"]
        assert list(execution) == ["R_lite", "nodelist", "starttime", "expiration", "properties"]
        assert execution["R_lite"] == [{"rank": "0", "children": {"core": "0"}}]
        assert (execution["nodelist"], execution["expiration"]) == (["node0"], 0.0)
        assert execution["starttime"] > 0
        assert "scheduling" not in one["R"]
        assert whole["annotations"]["sched"]["resource_summary"] == "rank[1-3]/core[0-1]"
        assert whole["R"]["execution"]["nodelist"] == ["node[1-3]"]
        assert whole["R"]["execution"]["properties"] == {"batch": "1-2"}

    in_broker(scenario)


def test_a_graph_in_r_that_is_of_no_use_is_reported_and_left_out(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, r={**four_nodes(), "scheduling": {"graph": {"nodes": []}}})
        world.submit(1, jobspec(nslots=8))
        await world.settle()
        assert world.ranks(1) == "0-3"
        assert any("the graph in R cannot be used" in line for line in broker.logged)

    in_broker(scenario)


def test_a_job_that_comes_again_keeps_the_place_of_its_submission(in_broker: Run) -> None:
    """As after an update, or a hold and its release."""

    async def scenario(broker: Any) -> None:
        world = World(broker, r=four_nodes())
        whole = jobspec(nnodes=4, exclusive=True)
        for job in (1, 2, 3):
            world.submit(job, whole, t_submit=1.0 + job)
        await world.settle()
        world.ctx.call("sched.cancel", {"id": 2})
        await world.settle()
        world.submit(2, whole, t_submit=3.0)
        await world.settle()
        world.free(1)
        await world.settle()
        assert [answer["type"] for answer in world.answers[2]][-1:] == [0]
        assert 3 not in world.answers

    in_broker(scenario)


def test_what_has_no_place_for_tasks_or_is_asked_for_twice_is_refused(in_broker: Run) -> None:
    def vertex(id: int, kind: str, number: int, path: str, **more: Any) -> dict[str, Any]:
        meta = {"type": kind, "id": number, "paths": {"containment": path}, **more}
        return {"id": str(id), "metadata": meta}

    nodes = [vertex(0, "cluster", 0, "/cluster0")]
    for n in range(4):
        at = f"/cluster0/node{n}"
        nodes += [vertex(10 * n + 1, "node", n, at, rank=n), vertex(10 * n + 2, "memory", 0, f"{at}/memory0", rank=n)]
        nodes += [vertex(10 * n + 3 + c, "core", c, f"{at}/core{c}", rank=n) for c in range(2)]
    edges = [
        {
            "source": "0" if node["metadata"]["type"] == "node" else str(int(node["id"]) // 10 * 10 + 1),
            "target": node["id"],
        }
        for node in nodes[1:]
    ]

    def asking(*types: str) -> Any:
        spec = jobspec()
        spec["resources"][0]["with"] = [{"type": kind, "count": 1} for kind in types]
        return spec

    async def scenario(broker: Any) -> None:
        world = World(broker, r={**four_nodes(), "scheduling": {"graph": {"nodes": nodes, "edges": edges}}})
        for job, types in enumerate((["memory"], ["core", "core"], ["memory", "core"]), 1):
            world.submit(job, asking(*types))
        await world.settle()
        assert [(world.answers[job][0]["type"], world.answers[job][0].get("note", "")[:30]) for job in (1, 2, 3)] == [
            (2, "no requested resource is on a "),
            (2, "resources: core is asked for t"),
            (0, ""),
        ]
        # Nothing is held by who was refused.
        world.submit(4, asking(*["memory", "core"]))
        await world.settle()
        assert world.ranks(4)

    in_broker(scenario)


def test_gpus_are_matched_and_listed(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        spec = jobspec(nslots=2)
        spec["resources"][0]["with"].append({"type": "gpu", "count": 1})
        world = World(broker, r=four_nodes(R_lite=[{"rank": "0-3", "children": {"core": "0-1", "gpu": "0"}}]))
        world.submit(1, spec)
        await world.settle()
        assert world.r_of(1)["execution"]["R_lite"] == [{"rank": "0-1", "children": {"core": "0", "gpu": "0"}}]
        assert world.answers[1][0]["annotations"]["sched"]["resource_summary"] == "rank[0-1]/core0,gpu0"

    in_broker(scenario)


def test_first_come_first_served_holds_up_what_is_behind_but_not_other_queues(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        world.submit(1, jobspec(nslots=6, queue="batch"))
        world.submit(2, jobspec(nslots=4, queue="batch"))
        world.submit(3, jobspec(queue="batch"))
        world.submit(4, jobspec(queue="debug"))
        await world.settle()
        assert world.started(1, 2, 3, 4) == [1, 4]
        world.free(1, final=True)
        await world.settle()
        assert world.started(2, 3) == [2, 3]

    in_broker(scenario)


def test_what_one_queue_gives_back_another_takes(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, "queue-policy=easy")
        world.submit(1, jobspec(nslots=8, queue="batch"))
        world.submit(2, jobspec(nslots=8, queue="debug"))
        await world.settle()
        assert world.started(1, 2) == [1]
        world.free(1)
        await world.settle()
        assert world.started(2) == [2]

    in_broker(scenario)


def test_queues_may_have_policies_of_their_own(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, "queue-policy-per-queue=batch:easy")
        for first, queue in ((1, "batch"), (11, "debug")):
            world.submit(first, jobspec(nslots=3, queue=queue, duration=600.0))
        await world.settle()
        for first, queue in ((1, "batch"), (11, "debug")):
            world.submit(first + 1, jobspec(nslots=8, queue=queue, duration=60.0))
            world.submit(first + 2, jobspec(queue=queue, duration=60.0))
        await world.settle()
        assert world.started(2, 3, 12, 13) == [3]

    in_broker(scenario)


def test_easy_backfills_only_what_does_not_delay_the_first(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, "queue-policy=easy")
        world.submit(1, jobspec(nnodes=3, exclusive=True, duration=600.0))
        world.submit(2, jobspec(nnodes=4, exclusive=True, duration=600.0))
        world.submit(3, jobspec(duration=3600.0))
        world.submit(4, jobspec())
        world.submit(5, jobspec(duration=60.0))
        await world.settle()
        assert world.started(2, 3, 4, 5) == [5]

    in_broker(scenario)


def test_nobody_overtakes_for_ever_a_job_behind_others_without_time_limits(
    in_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, "queue-policy=easy")
        world.submit(1, jobspec(nnodes=3, exclusive=True))
        await world.settle()
        world.submit(2, jobspec(nnodes=4, exclusive=True))
        world.submit(3, jobspec(duration=3600.0))
        await world.settle()
        scheduler, later = broker.contexts["sched-graph"], broker.contexts["sched-graph"].now() + 1.1
        monkeypatch.setattr(scheduler, "now", lambda: later)
        world.submit(4, jobspec())
        await world.settle()
        assert world.started(2, 3, 4) == [3]

    in_broker(scenario)


def test_higher_priority_goes_first_and_can_change_while_waiting(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        world.submit(1, jobspec(nslots=8))
        await world.settle()
        for job in (2, 3, 4):
            world.submit(job, jobspec(nslots=8))
        world.ctx.call("sched.prioritize", {"jobs": [[4, 20], [2, 1], [99, 3]]})
        await world.settle()
        order = []
        for done in (1, 4, 3):
            world.free(done)
            await world.settle()
            order.append(world.started(2, 3, 4))
        assert order == [[4], [3, 4], [2, 3, 4]]

    in_broker(scenario)


@pytest.mark.parametrize(
    ("spec", "note"),
    [
        (
            jobspec(nslots=16),
            "unsatisfiable request: need 16 slot(s) of 1 core(s), only 8 such slot(s) available (total cores: 8)",
        ),
        (
            jobspec(nnodes=2, exclusive=True, constraints={"properties": ["debug"]}),
            "unsatisfiable request: need 2 exclusive node(s), only 1 eligible",
        ),
        (
            jobspec(nnodes=1, exclusive=True, constraints={"properties": ["debug", "bug"]}),
            "unsatisfiable request: need 1 exclusive node(s), only 0 eligible; no node has property bug",
        ),
        (
            jobspec(nslots=3, nnodes=1),
            "unsatisfiable request: need 1 node(s) with 3 slot(s) of 1 core(s), only 0 eligible",
        ),
    ],
)
def test_what_can_never_run_is_denied_with_the_reason(in_broker: Run, spec: Jobspec, note: str) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, r=four_nodes(properties={"debug": "3"}))
        await world.settle()
        world.submit(1, spec)
        await world.settle()
        assert (world.answers[1][-1]["type"], world.answers[1][-1]["note"]) == (2, note)
        reply = await broker.client().call("feasibility.check", {"jobspec": spec})
        assert (reply.errnum, reply.text) == (errno.EINVAL, note)
        assert (await broker.client(guest=True).call("feasibility.check", {"jobspec": jobspec()})).errnum == 0

    in_broker(scenario)


@pytest.mark.parametrize("policy", ["hybrid", "conservative"])
def test_who_plans_beyond_the_first_denies_what_can_never_run_behind_it(in_broker: Run, policy: str) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, f"queue-policy={policy}")
        await world.settle()
        for job in range(1, 4):
            world.submit(job, jobspec(8, duration=3600))
        world.submit(4, jobspec(9, duration=3600))
        await world.settle()
        assert world.started(1, 2, 3, 4) == [1]
        assert [answer["type"] for answer in world.answers[4]] == [2]
        assert world.sched.stats()["pending"] == 2

    in_broker(scenario)


def test_a_resource_that_the_graph_has_not_is_named_in_the_denial(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        spec = jobspec()
        spec["resources"][0]["with"][0]["type"] = "memory"
        world = World(broker)
        world.submit(1, spec)
        bad = jobspec()
        bad["resources"][0]["count"] = 0
        world.submit(2, bad)
        world.submit(3, jobspec(constraints={"nonsense": ["x"]}))
        await world.settle()
        assert "memory" in world.answers[1][-1]["note"]
        assert "resources[0].count" in world.answers[2][-1]["note"]
        assert "nonsense" in world.answers[3][-1]["note"]

    in_broker(scenario)


def test_a_canceled_head_lets_the_next_one_start(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        world.submit(1, jobspec(nslots=7))
        world.submit(2, jobspec(nslots=8))
        world.submit(3, jobspec())
        await world.settle()
        world.ctx.call("sched.cancel", {"id": 2})
        world.ctx.call("sched.cancel", {"id": 99})
        world.ctx.call("sched.cancel", {"id": 1})
        await world.settle()
        assert world.answers[2] == [{"id": 2, "type": 3}]
        assert world.started(1, 3) == [1, 3]

    in_broker(scenario)


def test_a_waiting_job_learns_what_is_short_and_when_it_may_start(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        world.submit(1, jobspec(nslots=5, duration=600.0))
        world.submit(2, jobspec(nslots=6))
        await until_in_loop(lambda: 2 in world.answers)
        (note,) = world.answers[2]
        assert note["type"] == 1
        sched = note["annotations"]["sched"]
        assert sched["reason_pending"] == "insufficient resources: core x3 short (6 wanted, 3 free)"
        assert 0 < sched["t_estimate"] - broker.contexts["sched-graph"].now() <= 600
        world.free(1)
        await world.settle()
        assert world.answers[2][-1]["annotations"]["sched"] == {
            "reason_pending": None,
            "t_estimate": None,
            "resource_summary": "rank[0-2]/core[0-1]",
        }

    in_broker(scenario)


def test_a_promise_falls_due_without_any_message(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        now = broker.context("clock").now()
        world = World(broker, "queue-policy=easy", running=[running(1, on("0-3", starttime=now, expiration=now + 1))])
        world.submit(2, jobspec(nslots=8, duration=60.0))
        await world.settle()
        # The first job outlives its limit, and the promise is made again, before it ends.
        await stays_in_loop(lambda: not world.ranks(2), 2.2)
        world.free(1)
        await world.settle()
        assert world.ranks(2) == "0-3"

    in_broker(scenario)


def test_time_limits_end_with_the_instance_at_the_latest(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, r=four_nodes(expiration=LATE))
        world.submit(1, jobspec(duration=60.5))
        world.submit(2, jobspec(duration=5e9))
        world.submit(3, jobspec())
        await world.settle()
        times = [world.r_of(job)["execution"] for job in (1, 2, 3)]
        assert times[0]["expiration"] - times[0]["starttime"] == pytest.approx(60.5)
        assert [times[i]["expiration"] for i in (1, 2)] == [LATE, LATE]
        client = broker.client()
        assert (await client.call("sched.expiration", {"id": 1, "expiration": LATE + 1})).errnum == errno.EINVAL
        assert (await client.call("sched.expiration", {"id": 9, "expiration": LATE})).errnum == errno.ENOENT
        assert (await client.call("sched.expiration", {"id": 1, "expiration": LATE})).errnum == 0

    in_broker(scenario)


def test_a_longer_time_limit_moves_promises(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, "queue-policy=easy")
        world.submit(1, jobspec(nslots=8, duration=600.0))
        world.submit(2, jobspec(nslots=8, duration=60.0))
        await until_in_loop(lambda: 2 in world.answers)
        first = world.answers[2][-1]["annotations"]["sched"]["t_estimate"]
        await broker.client().rpc("sched.expiration", {"id": 1, "expiration": first + 1000})
        await until_in_loop(lambda: len(world.answers[2]) > 1)
        assert world.answers[2][-1]["annotations"]["sched"]["t_estimate"] == pytest.approx(first + 1000, abs=2)

    in_broker(scenario)


def test_resource_status_tells_all_down_and_allocated(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, r=four_nodes(properties={"fast": "0-1"}), up="0-2")
        world.submit(1, jobspec(nslots=3))
        await world.settle()
        status = await broker.client(guest=True).rpc("sched.resource-status", {})
        assert status["all"] == four_nodes(properties={"fast": "0-1"})
        assert status["down"]["execution"]["R_lite"] == [{"rank": "3", "children": {"core": "0-1"}}]
        allocated = status["allocated"]["execution"]
        assert allocated["R_lite"] == [
            {"rank": "0", "children": {"core": "0-1"}},
            {"rank": "1", "children": {"core": "0"}},
        ]
        assert allocated["nodelist"] == ["node[0-1]"]
        assert allocated["properties"] == {"fast": "0-1"}
        world.free(1)
        await world.settle()
        empty = (await broker.client().rpc("sched.resource-status", {}))["allocated"]["execution"]
        assert (empty["R_lite"], empty["nodelist"]) == ([], [""])

    in_broker(scenario)


def test_a_storm_is_scheduled_in_slices_and_nothing_is_lost_between_them(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, r=four_nodes(R_lite=[{"rank": "0-3", "children": {"core": "0-255"}}]))
        await world.settle()
        for job in range(1, 1001):
            world.submit(job, jobspec())
        while not world.ranks(1):
            await asyncio.sleep(0)
        begun = len(world.started(*range(1, 1001)))
        assert 0 < begun < 1000
        world.ctx.call("sched.cancel", {"id": 1000})
        world.free(1)
        world.submit(1001, jobspec(nslots=26))
        for _ in range(100):
            await asyncio.sleep(0)
        assert world.started(*range(1, 1002)) == [*range(1, 1000), 1001]
        assert world.answers[1000] == [{"id": 1000, "type": 3}]
        assert all(len(world.answers[job]) == 1 for job in range(1, 1002))

    in_broker(scenario)


def test_who_is_next_is_named_where_there_is_no_choice(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.settle()
        for job in range(1, 8):
            world.submit(job, jobspec())
        await world.settle()
        assert world.successors == []
        for job in range(8, 240):
            world.submit(job, jobspec())
        await world.settle()
        assert world.successors == [[*range(9, 73)]]
        world.inherit(*((job, job + 8) for job in range(1, 25)))
        await world.settle()
        assert world.successors[1:] == []
        world.inherit(*((job, job + 8) for job in range(25, 36)))
        await world.settle()
        assert world.successors[1:] == [[*range(44, 108)]]
        assert world.started(*range(1, 240)) == [*range(1, 9)]
        world.change(down="3")
        await world.settle()
        assert world.successors[2:] == [[]]
        world.change(up="3")
        world.submit(240, jobspec(nnodes=1), priority=20)
        await world.settle()
        assert world.successors[-1] == [240]
        world.submit(241, jobspec(queue="other"))
        await world.settle()
        assert world.successors[-1] == []

    in_broker(scenario)


def test_a_job_that_took_over_gives_back_what_it_was_given_meanwhile(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker)
        await world.settle()
        for job in range(1, 10):
            world.submit(job, jobspec())
        await world.settle()
        world.free(1)
        await world.settle()
        assert world.started(9) == [9]
        world.inherit((2, 9))
        world.submit(10, jobspec())
        world.submit(11, jobspec())
        await world.settle()
        assert world.started(10, 11) == [10]
        assert world.sched.stats()["running"] == 8

    in_broker(scenario)
