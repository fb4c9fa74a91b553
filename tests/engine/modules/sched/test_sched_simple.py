"""The scheduler module against a job manager and a resource module that the test plays."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import sched_world
from sched_world import four_nodes, jobspec

from headrace.engine.broker.module.context import EMPTY, RpcError
from headrace.engine.modules.sched import simple as sched_simple
from headrace.formats.spec.message import Message
from waiting import until_in_loop

Jobspec = dict[str, Any]


class World(sched_world.World):
    """With the scheduler under flux-core's name."""

    def __init__(
        self,
        broker: Any,
        r: dict[str, Any],
        up: str = "0-3",
        running: Iterable[dict[str, Any]] = (),
        args: Iterable[str] = (),
    ) -> None:
        super().__init__(broker, *args, module=sched_simple, r=r, up=up, running=running)

    def note(self, job: int) -> str:
        return str(self.answers[job][-1]["note"])


Run = Callable[..., None]


def test_an_allocation_carries_r_and_its_summary(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, four_nodes())
        await world.settle()
        assert world.ready == {"mode": "limited", "limit": 8}
        ready = "queue-depth=8 log-level=info pool-class=Rv1Pool Rv1 rank[0-3]/core[0-1]"
        assert broker.logged == [f"sched-simple: ready: {ready}"]
        world.submit(1, jobspec())
        await world.settle()
        (answer,) = world.answers[1]
        assert (answer["id"], answer["type"]) == (1, 0)
        assert answer["annotations"] == {"sched": {"resource_summary": "rank0/core0"}}
        execution = answer["R"]["execution"]
        assert execution["R_lite"] == [{"rank": "0", "children": {"core": "0"}}]
        assert execution["nodelist"] == ["node0"]
        assert execution["expiration"] == 0.0
        assert execution["starttime"] > 0

    in_broker(scenario)


def test_whole_nodes_are_summed_up_as_flux_does(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, four_nodes(properties={"batch": "0-2"}))
        world.submit(1, jobspec(nnodes=4, exclusive=True))
        await world.settle()
        (answer,) = world.answers[1]
        assert answer["annotations"]["sched"]["resource_summary"] == "rank[0-3]/core[0-1]"
        assert answer["R"]["execution"]["properties"] == {"batch": "0-2"}

    in_broker(scenario)


def test_the_first_job_that_does_not_fit_holds_up_the_ones_behind_it(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, four_nodes())
        world.submit(1, jobspec(nslots=6))
        world.submit(2, jobspec(nslots=4))
        world.submit(3, jobspec(nslots=1))
        await world.settle()
        assert [world.ranks(job) for job in (1, 2, 3)] == ["0-2", "", ""]
        world.ctx.call("sched.free", {"id": 1, "final": True})
        await world.settle()
        assert world.ranks(2) and world.ranks(3)

    in_broker(scenario)


def test_a_queue_is_not_held_up_by_another(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, four_nodes())
        world.submit(1, jobspec(nslots=7, queue="batch"))
        world.submit(2, jobspec(nslots=2, queue="batch"))
        world.submit(3, jobspec(queue="debug"))
        await world.settle()
        assert world.ranks(1) and not world.ranks(2) and world.ranks(3)

    in_broker(scenario)


def test_higher_priority_goes_first_and_can_change_while_waiting(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, four_nodes())
        world.submit(1, jobspec(nslots=8))
        await world.settle()
        for job in (2, 3, 4):
            world.submit(job, jobspec(nslots=8))
        world.ctx.call("sched.prioritize", {"jobs": [[4, 20], [2, 1]]})
        await world.settle()
        order = []
        for done in (1, 4, 3):
            world.ctx.call("sched.free", {"id": done})
            await world.settle()
            order.append([job for job in (2, 3, 4) if world.ranks(job)])
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
            jobspec(cores=64),
            "unsatisfiable request: need 1 slot(s) of 64 core(s), only 0 such slot(s) available (total cores: 8)",
        ),
        (
            jobspec(nnodes=2, exclusive=True, constraints={"properties": ["debug"]}),
            "unsatisfiable request: need 2 exclusive node(s), only 1 eligible",
        ),
        (
            jobspec(nnodes=1, exclusive=True, constraints={"properties": ["debug", "bug"]}),
            "unsatisfiable request: need 1 exclusive node(s), only 0 eligible; no node has property bug",
        ),
    ],
)
def test_what_can_never_run_is_denied_with_the_reason(in_broker: Run, spec: Jobspec, note: str) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, four_nodes(properties={"debug": "3"}))
        await world.settle()
        world.submit(1, spec)
        await world.settle()
        assert world.answers[1][-1]["type"] == 2
        assert world.note(1) == note
        reply = await broker.client().call("feasibility.check", {"jobspec": spec})
        assert (reply.errnum, reply.text) == (errno.EINVAL, note)

    in_broker(scenario)


def test_unsupported_resources_are_denied_not_ignored(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        spec = jobspec()
        spec["resources"][0]["with"][0]["type"] = "memory"
        world = World(broker, four_nodes())
        world.submit(1, spec)
        await world.settle()
        assert "memory" in world.note(1)

    in_broker(scenario)


def test_a_constraint_limits_where_a_job_goes(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, four_nodes(properties={"fast": "2"}))
        for job, constraint in enumerate(
            [{"properties": ["fast"]}, {"hostlist": ["node1"]}, {"ranks": ["3"]}, {"not": [{"ranks": ["0,2-3"]}]}]
        ):
            world.submit(job, jobspec(constraints=constraint))
        await world.settle()
        assert [world.ranks(job) for job in range(4)] == ["2", "1", "3", "1"]

    in_broker(scenario)


def test_down_nodes_get_nothing_until_they_are_up(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, four_nodes(), up="1")
        world.submit(1, jobspec(nslots=2))
        world.submit(2, jobspec(nslots=2))
        await world.settle()
        assert [world.ranks(1), world.ranks(2)] == ["1", ""]
        world.change(up="3", down="1")
        await world.settle()
        assert world.ranks(2) == "3"

    in_broker(scenario)


def test_new_properties_open_nodes_to_waiting_jobs(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, four_nodes(properties={"fast": "0"}))
        world.submit(1, jobspec(nslots=2, constraints={"properties": ["fast"]}))
        world.submit(2, jobspec(nslots=2, constraints={"properties": ["fast"]}))
        await world.settle()
        assert not world.ranks(2)
        world.change(property_add={"fast": "2"})
        await world.settle()
        assert world.ranks(2) == "2"

    in_broker(scenario)


def test_running_jobs_keep_their_resources_over_a_reload(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        held = four_nodes(R_lite=[{"rank": "0-2", "children": {"core": "0-1"}}], nodelist=["node[0-2]"])
        running = [{"id": 7, "priority": 16, "userid": 0, "t_submit": 1.0, "R": held, "free": "1"}]
        world = World(broker, four_nodes(), running=running)
        world.submit(8, jobspec(nnodes=2, exclusive=True))
        await world.settle()
        assert world.ranks(8) == "1,3"

    in_broker(scenario)


def test_partly_released_resources_are_used_again(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, four_nodes())
        world.submit(1, jobspec(nnodes=4, exclusive=True))
        world.submit(2, jobspec(nnodes=1, exclusive=True))
        await world.settle()
        part = four_nodes(R_lite=[{"rank": "2", "children": {"core": "0-1"}}], nodelist=["node2"])
        world.ctx.call("sched.free", {"id": 1, "R": part, "final": False})
        await world.settle()
        assert world.ranks(2) == "2"
        world.submit(3, jobspec(nnodes=3, exclusive=True))
        world.ctx.call("sched.free", {"id": 1, "R": four_nodes(), "final": True})
        await world.settle()
        assert world.ranks(3) == "0-1,3"

    in_broker(scenario)


def test_a_canceled_head_lets_the_next_one_start(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, four_nodes())
        world.submit(1, jobspec(nslots=7))
        world.submit(2, jobspec(nslots=8))
        world.submit(3, jobspec())
        await world.settle()
        world.ctx.call("sched.cancel", {"id": 2})
        world.ctx.call("sched.cancel", {"id": 99})
        await world.settle()
        assert world.answers[2] == [{"id": 2, "type": 3}]
        assert world.ranks(3)

    in_broker(scenario)


def test_a_waiting_head_learns_what_is_short_and_when_it_may_start(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, four_nodes())
        world.submit(1, jobspec(nnodes=3, exclusive=True, duration=600.0))
        world.submit(2, jobspec(nnodes=2, exclusive=True))
        await until_in_loop(lambda: 2 in world.answers)
        (note,) = world.answers[2]
        assert note["type"] == 1
        sched = note["annotations"]["sched"]
        assert sched["reason_pending"] == "insufficient resources: idle node x1 short (2 wanted, 1 free)"
        assert 0 < sched["t_estimate"] - broker.contexts["sched-simple"].now() <= 600
        world.ctx.call("sched.free", {"id": 1})
        await world.settle()
        assert world.answers[2][-1]["annotations"]["sched"] == {
            "reason_pending": None,
            "t_estimate": None,
            "resource_summary": "rank[0-1]/core[0-1]",
        }

    in_broker(scenario)


def test_debug_bits_count_the_jobs_ahead_and_fail_allocations(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, four_nodes())
        scheduler = broker.contexts["sched-simple"]
        scheduler.set_debug({"op": "setbit", "flags": 2})
        for job in (1, 2, 3, 4):
            world.submit(job, jobspec(nslots=8))
        await world.settle()
        world.ctx.call("sched.prioritize", {"jobs": [[4, 20]]})
        await until_in_loop(lambda: [len(world.answers.get(job, ())) for job in (4, 2, 3)] == [1, 1, 1])
        notes = [world.answers[job][-1]["annotations"]["sched"] for job in (4, 2, 3)]
        assert notes == [{"reason_pending": "insufficient resources", "jobs_ahead": ahead} for ahead in range(3)]
        scheduler.set_debug({"op": "set", "flags": 1})
        world.submit(5, jobspec())
        await world.settle()
        assert (world.answers[5][0]["type"], world.note(5)) == (2, "DEBUG_FAIL_ALLOC")
        scheduler.set_debug({"op": "set", "flags": 4})
        refused = await broker.client().call("sched.expiration", {"id": 1, "expiration": 9e9})
        assert (refused.errnum, refused.text) == (errno.EINVAL, "DEBUG_REFUSE_EXPIRATION")

    in_broker(scenario)


def test_time_limits_end_with_the_instance_at_the_latest(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        ends = 4_000_000_000.0
        world = World(broker, four_nodes(expiration=ends))
        world.submit(1, jobspec(duration=60.0))
        world.submit(2, jobspec(duration=5e9))
        world.submit(3, jobspec())
        await world.settle()
        expirations = [world.answers[job][0]["R"]["execution"]["expiration"] for job in (1, 2, 3)]
        assert expirations[0] < ends
        assert expirations[1:] == [ends, ends]
        reply = await broker.client().call("sched.expiration", {"id": 1, "expiration": ends + 1})
        assert reply.errnum == errno.EINVAL
        assert (await broker.client().call("sched.expiration", {"id": 1, "expiration": ends})).errnum == 0

    in_broker(scenario)


def test_resource_status_tells_all_down_and_allocated(in_broker: Run) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, four_nodes(properties={"fast": "0-1"}), up="0-2")
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
        world.ctx.call("sched.free", {"id": 1})
        await world.settle()
        empty = (await broker.client().rpc("sched.resource-status", {}))["allocated"]["execution"]
        assert (empty["R_lite"], empty["nodelist"]) == ([], [""])

    in_broker(scenario)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], {"mode": "limited", "limit": 8}),
        (["queue-depth=unlimited"], {"mode": "unlimited"}),
        (["mode=limited=9"], {"mode": "limited", "limit": 9}),
        (["mode=single", "alloc-mode=best-fit"], {"mode": "limited", "limit": 1}),
        (["mode=single", "mode=unlimited"], {"mode": "unlimited"}),
    ],
)
def test_the_mode_is_told_to_the_job_manager(in_broker: Run, args: list[str], said: dict[str, Any]) -> None:
    async def scenario(broker: Any) -> None:
        ctx = broker.context("world")
        told: list[Any] = []
        acquire = {"resources": four_nodes(), "up": "0-3"}
        ctx.service("resource", {"acquire": lambda msg: ctx.respond(msg, acquire)})

        def ready(msg: Message) -> Any:
            told.append(msg.obj)
            return EMPTY

        hello = {"sched-hello": lambda msg: ctx.respond_error(msg, errno.ENODATA), "sched-ready": ready}
        ctx.service("job-manager", hello)
        broker.load(sched_simple, *args)
        await until_in_loop(lambda: told)
        assert told == [said]

    in_broker(scenario)


@pytest.mark.parametrize(
    ("arg", "says"),
    [
        ("alloc-mode=x", "alloc-mode='x' is invalid: expected one of worst-fit, best-fit, first-fit"),
        ("other", "unknown argument 'other': built-in options are queue-depth, log-level, pool-class, alloc-mode"),
        ("queue-depth=bogus", "queue-depth='bogus' is invalid: expected a positive integer or 'unlimited'"),
    ],
)
def test_an_argument_that_means_nothing_is_refused(in_broker: Run, arg: str, says: str) -> None:
    async def scenario(broker: Any) -> None:
        with pytest.raises(RpcError) as refused:
            broker.load(sched_simple, arg)
        assert (refused.value.errnum, refused.value.text) == (errno.EINVAL, says)

    in_broker(scenario)


@pytest.mark.parametrize(
    ("mode", "placed"),
    [("worst-fit", "0 1 2 3 0 1"), ("best-fit", "0 0 1 1 2 2"), ("first-fit", "0 0 1 1 2 2")],
)
def test_the_alloc_mode_says_which_nodes_slots_go_to_first(in_broker: Run, mode: str, placed: str) -> None:
    async def scenario(broker: Any) -> None:
        world = World(broker, four_nodes(), args=(f"alloc-mode={mode}",))
        for job in range(6):
            world.submit(job, jobspec())
        await world.settle()
        assert " ".join(world.ranks(job) for job in range(6)) == placed

    in_broker(scenario)


@pytest.mark.parametrize(("mode", "rank"), [("best-fit", "2"), ("worst-fit", "1"), ("first-fit", "0")])
def test_best_fit_takes_the_fullest_node_worst_fit_the_emptiest(in_broker: Run, mode: str, rank: str) -> None:
    async def scenario(broker: Any) -> None:
        r = four_nodes(R_lite=[{"rank": "0-2", "children": {"core": "0-3"}}], nodelist=["node[0-2]"])
        world = World(broker, r, up="0-2", args=(f"alloc-mode={mode}",))
        for job, (cores, node) in enumerate([(1, "0"), (3, "2")]):
            world.submit(job, jobspec(cores=cores, constraints={"ranks": [node]}))
        await world.settle()
        world.submit(9, jobspec())
        await world.settle()
        assert world.ranks(9) == rank

    in_broker(scenario)
