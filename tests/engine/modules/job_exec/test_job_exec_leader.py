"""job-exec on one broker and on a tree of them; the agents, the job manager and its store are played by the test."""

from __future__ import annotations

import asyncio
import errno
import signal
from typing import Any

import pytest
from exec_fleet import JOB, Fleet, with_fleet

from headrace.engine.broker.module.context import RpcError
from headrace.formats.spec import jobspec as js
from headrace.formats.spec import message as m
from headrace.formats.spec.message import Message
from waiting import until_in_loop

DONE = [("finish", {"status": 0}), ("release", {"ranks": "all", "final": True})]


def test_a_job_of_one_node_lives_as_recorded() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start()
        await fleet.settle()
        (start,) = fleet.agents[0].told
        assert (start["op"], start["id"], start["nodeid"], start["nnodes"], start["rank"]) == ("start", JOB, 0, 1, 0)
        assert (start["hosts"], start["ranks"], start["uri"]) == (["node0"], [0], "local:///run/0")
        assert (start["service"], start["idpath"]) == ("0-shell-f2AniAMV", "/ƒ2AniAMV")
        agent = fleet.agents[0]
        shell = {"service": "0-shell-f2AniAMV", "leader-rank": 0, "size": 1}
        agent.say("event", t=1.0, name="shell.init", context=shell)
        agent.say("output", entries=[[2.0, "data", {"stream": "stdout", "rank": "0", "data": "hi\n"}]])
        agent.say("started")
        await fleet.settle()
        assert fleet.told == [("start", {})]
        agent.say("finish", status=768)
        await fleet.settle()
        assert fleet.told[1:] == [("finish", {"status": 768}), DONE[1]]
        assert fleet.events() == [
            ("init", None),
            ("starting", None),
            ("shell.init", shell),
            ("shell-exit", {"rank": 0, "wait_status": 768}),
            ("complete", {"status": 768}),
            ("done", None),
        ]
        assert ("guest.output", [[2.0, "data", {"stream": "stdout", "rank": "0", "data": "hi\n"}]]) in fleet.stored

    with_fleet(1, scenario)


def test_a_job_of_another_user_ends_at_once_unless_the_configuration_has_it_run() -> None:
    async def refused(fleet: Fleet) -> None:
        fleet.start(userid=1234)
        await fleet.settle()
        note = 'this instance runs jobs of its owner only, this one is of user 1234: headrace.guests.submit is "refuse"'
        raised = {"severity": 0, "type": "exec", "note": note}
        assert fleet.told == [("exception", raised), ("finish", {"status": 256}), DONE[1]]
        assert fleet.agents[0].told == []

    async def taken(fleet: Fleet) -> None:
        fleet.start(userid=1234)
        await fleet.settle()
        assert [op["op"] for op in fleet.agents[0].told] == ["start"] and fleet.told == []
        fleet.start(id=JOB + 1)
        await fleet.settle()
        limits = [op.get("most_output") for op in fleet.agents[0].got("start")]
        assert limits == [10 << 20, None], "the owner has the default of the shell"

    async def simulated(fleet: Fleet) -> None:
        fleet.start(userid=1234, exec={"test": {"run_duration": "0.001s"}})
        fleet.start(id=JOB + 1, userid=1234)
        await until_in_loop(lambda: len(fleet.told) == 6)
        assert sorted(kind for kind, _ in fleet.told) == sorted(["start", "exception", *["finish", "release"] * 2])
        # A configuration without the key changes nothing, as in Flux.
        for config, told in (({}, "start"), ({"exec": {"testexec": {"allow-guests": False}}}, "exception")):
            await fleet.contexts[0].reconfigure(config)
            fleet.told.clear()
            fleet.start(userid=1234, exec={"test": {"run_duration": "0.001s"}})
            await until_in_loop(lambda: len(fleet.told) == 3)
            assert fleet.told[0][0] == told
        assert fleet.agents[0].told == []

    async def as_user(fleet: Fleet) -> None:
        fleet.start(userid=1234)
        await fleet.settle()
        (start,) = fleet.agents[0].told
        assert (start["as_user"], start["pam_service"], start["environment"]) == (True, "jobs", None)
        assert start["most_output"] == 7

    async def too_low(fleet: Fleet) -> None:
        fleet.start(userid=999)
        await fleet.settle()
        note = "jobs run as their users here, and user 999 is below headrace.guests.min-uid, which is 1000"
        assert fleet.told[0] == ("exception", {"severity": 0, "type": "exec", "note": note})
        assert fleet.agents[0].told == []

    with_fleet(
        1,
        as_user,
        config={"headrace": {"guests": {"submit": "as-user", "pam-service": "jobs", "limits": {"output-bytes": 7}}}},
    )
    with_fleet(1, too_low, config={"headrace": {"guests": {"submit": "as-user"}}})
    with_fleet(1, refused)
    with_fleet(1, refused, config={"headrace": {"guests": {"submit": "refuse"}}})
    with_fleet(1, simulated, config={"exec": {"testexec": {"allow-guests": True}}})
    with_fleet(1, taken, config={"headrace": {"guests": {"submit": "as-owner"}}})


def test_a_short_job_costs_the_store_one_message_and_is_stored_before_it_ends() -> None:
    async def scenario(fleet: Fleet) -> None:
        order: list[str] = []

        def append(msg: Message) -> None:
            order.append([log for _job, log, _entries in msg.obj["logs"]])
            fleet._append(msg)

        fleet.manager.service("job-store", {"append": append})
        fleet.start()
        await fleet.settle()
        agent = fleet.agents[0]
        agent.say("event", t=1.0, name="shell.init", context=None)
        agent.say("started")
        agent.say("event", t=1.0, name="shell.task-exit", context=None)
        agent.say("finish", status=0)
        await fleet.settle()
        assert fleet.told == [("start", {}), *DONE]
        assert order == [["guest.exec.eventlog"]]
        assert [name for name, _ in fleet.events()][-3:] == ["shell-exit", "complete", "done"]

    with_fleet(1, scenario)


def test_a_wide_job_starts_and_ends_with_one_message_an_edge() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("0-6", "node[0-6]")
        await fleet.settle()
        launches = [edge for edge in fleet.crossed if edge[2] == "job-exec.launch"]
        assert len(launches) == len(set(launches)) == 6
        assert [agent.told[0]["nodeid"] for agent in fleet.agents] == list(range(7))
        fleet.crossed.clear()
        for agent in fleet.agents:
            agent.say("started")
        await fleet.settle()
        for rank, agent in enumerate(fleet.agents):
            agent.say("finish", status=256 if rank == 5 else 0)
        await fleet.settle()
        assert fleet.told == [("start", {}), ("finish", {"status": 256}), DONE[1]]
        assert ("shell-exit", {"rank": 0, "wait_status": 0}) in fleet.events()
        assert ("shell-exit", {"rank": 5, "wait_status": 256}) in fleet.events()
        assert len(fleet.crossed) == 12
        assert {edge[2] for edge in fleet.crossed} == {"job-exec.up"}

    with_fleet(7, scenario)


def test_a_shell_that_cannot_start_its_tasks_decides_how_the_job_ends() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("0-2", "node[0-2]")
        await fleet.settle()
        for rank in (0, 2):
            fleet.agents[rank].say("started")
        raised = {"severity": 0, "type": "exec", "note": "no such file"}
        fleet.agents[1].say("exception", **raised, status=256)
        fleet.agents[1].say("finish", status=256)
        await fleet.settle()
        for rank in (0, 2):
            # The others are killed for it.
            fleet.agents[rank].say("finish", status=143 << 8)
        await fleet.settle()
        assert fleet.told == [("exception", raised), ("finish", {"status": 256}), DONE[1]]
        assert ("shell-exit", {"rank": 2, "wait_status": 143 << 8}) in fleet.events()

    with_fleet(3, scenario)


def test_a_job_on_far_ranks_is_led_from_its_first_one() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("3-4,6", "node[3-4,6]")
        await fleet.settle()
        assert [bool(agent.told) for agent in fleet.agents] == [False, False, False, True, True, False, True]
        assert [fleet.agents[rank].told[0]["nodeid"] for rank in (3, 4, 6)] == [0, 1, 2]
        for rank in (6, 4, 3):
            fleet.agents[rank].say("started")
            await fleet.settle()
            assert bool(fleet.told) == (rank == 3)
            fleet.agents[rank].say("finish", status=0)
        await fleet.settle()
        assert fleet.told == [("start", {}), *DONE]
        assert ("shell-exit", {"rank": 3, "wait_status": 0}) in fleet.events()
        assert not any(ctx._defaults.stats_hooks and ctx.stats()["parts"] for ctx in fleet.contexts)

    with_fleet(7, scenario)


def test_a_barrier_gathers_all_pairs_and_releases_everyone_once() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("0-6", "node[0-6]")
        await fleet.settle()
        for rank, agent in enumerate(fleet.agents[:-1]):
            agent.say("barrier", seq=1, kvs={f"k{rank}": str(rank)})
        await fleet.settle()
        assert not any(agent.got("barrier") for agent in fleet.agents)
        fleet.agents[-1].say("barrier", seq=1, kvs={"k6": "6"})
        await fleet.settle()
        whole = {"op": "barrier", "id": JOB, "seq": 1, "kvs": {f"k{rank}": str(rank) for rank in range(7)}}
        assert [agent.got("barrier") for agent in fleet.agents] == [[whole]] * 7

    with_fleet(7, scenario)


def test_a_barrier_of_one_node_never_leaves_it() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("2", "node2")
        await fleet.settle()
        fleet.crossed.clear()
        fleet.agents[2].say("barrier", seq=1, kvs={"a": "b"})
        await fleet.settle()
        assert fleet.agents[2].got("barrier") == [{"op": "barrier", "id": JOB, "seq": 1, "kvs": {"a": "b"}}]
        assert not fleet.crossed

    with_fleet(3, scenario)


def test_shells_of_a_job_talk_to_each_other_by_node_number() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("1,5", "node[1,5]")
        await fleet.settle()
        fleet.agents[5].say("peer", to=0, data={"x": 1})
        fleet.agents[1].say("peer", to=1, data={"y": 2})
        fleet.agents[1].say("peer", to=0, data={"self": True})
        fleet.agents[1].say("peer", to=9, data={"nobody": True})
        await fleet.settle()
        said = {"op": "peer", "id": JOB}
        assert fleet.agents[1].got("peer") == [
            {**said, "from": 0, "data": {"self": True}},
            {**said, "from": 1, "data": {"x": 1}},
        ]
        assert fleet.agents[5].got("peer") == [{**said, "from": 0, "data": {"y": 2}}]

    with_fleet(7, scenario)


def test_a_fatal_exception_ends_every_shell_and_sigkill_follows() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("0-2", "node[0-2]")
        await fleet.settle()
        fleet.manager.publish("job-exception", {"id": JOB, "type": "cancel", "severity": 0})
        await fleet.settle()
        assert [[op["signum"] for op in agent.got("kill")] for agent in fleet.agents] == [[15]] * 3
        fleet.agents[1].say("finish", status=15)
        await until_in_loop(lambda: all(len(fleet.agents[rank].got("kill")) > 1 for rank in (0, 2)))
        assert [[op["signum"] for op in agent.got("kill")][:2] for agent in fleet.agents] == [[15, 9], [15], [15, 9]]
        for rank in (0, 2):
            fleet.agents[rank].say("finish", status=9)
        await fleet.settle()
        assert fleet.told == [("finish", {"status": 15}), DONE[1]]

    with_fleet(3, scenario, config={"exec": {"kill-timeout": 0.05}})


def test_a_job_that_goes_on_after_its_time_limit_can_be_canceled() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start()
        await fleet.settle()
        for kind in ("timeout", "timeout", "cancel", "cancel"):
            fleet.manager.publish("job-exception", {"id": JOB, "type": kind, "severity": 0})
        await fleet.settle()
        assert [op["signum"] for op in fleet.agents[0].got("kill")] == [signal.SIGALRM, signal.SIGTERM]

    with_fleet(1, scenario)


@pytest.mark.parametrize("limit", [{"max-kill-count": 2}, {"max-kill-timeout": 0.1, "max-kill-count": 1}])
def test_an_unkillable_job_gives_up_its_nodes_drained(limit: dict[str, Any]) -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("0-1", "node[0-1]")
        fleet.manager.publish("job-exception", {"id": JOB, "type": "timeout", "severity": 0})
        await fleet.settle()
        assert [op["signum"] for op in fleet.agents[0].got("kill")] == [14]
        await until_in_loop(lambda: len(fleet.told) == 2)
        (drained,) = fleet.drained
        assert drained["targets"] == "0-1" and "ƒ2AniAMV" in drained["reason"]
        assert fleet.told == [("finish", {"status": 9}), DONE[1]]
        assert len(fleet.agents[0].got("kill")) == 3 if "max-kill-timeout" not in limit else 4

    with_fleet(2, scenario, config={"exec": {"kill-timeout": 0.01, **limit}})


def test_harmless_exceptions_leave_the_job_alone() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start()
        await fleet.settle()
        fleet.manager.publish("job-exception", {"id": JOB, "type": "test", "severity": 3})
        fleet.manager.publish("job-exception", {"id": 1, "type": "test", "severity": 0})
        await fleet.settle()
        assert not fleet.agents[0].got("kill")

    with_fleet(1, scenario)


def test_the_shells_own_exceptions_reach_the_job_manager() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("1", "node1")
        await fleet.settle()
        fleet.agents[1].say("exception", severity=0, type="exec", note="task 0: start failed")
        fleet.agents[1].say("finish", status=127 << 8)
        await fleet.settle()
        note = {"severity": 0, "type": "exec", "note": "task 0: start failed"}
        assert fleet.told == [("exception", note), ("finish", {"status": 127 << 8}), DONE[1]]

    with_fleet(2, scenario)


def test_signals_reach_all_tasks_and_only_of_running_jobs() -> None:
    async def scenario(fleet: Fleet) -> None:
        with pytest.raises(RpcError, match="not running"):
            await fleet.manager.rpc("job-exec.kill", {"id": JOB, "signum": 10})
        fleet.start("1-2", "node[1-2]")
        # Its tasks may run before anybody has heard of it.
        await fleet.manager.rpc("job-exec.kill", {"id": JOB, "signum": 9})
        await fleet.settle()
        for rank in (1, 2):
            fleet.agents[rank].say("started")
        await fleet.settle()
        await fleet.manager.rpc("job-exec.kill", {"id": JOB, "signum": 10})
        for event in ({"signum": 12}, {}, {"signum": 199}):
            fleet.manager.publish(f"shell-{JOB}.kill", event)
        await fleet.manager.rpc("job-exec.expiration", {"id": JOB, "expiration": 99.0})
        await fleet.settle()
        for rank in (1, 2):
            assert [op["signum"] for op in fleet.agents[rank].got("kill")] == [9, 10, 12, None, 199]
            assert fleet.agents[rank].got("expiration")[0]["expiration"] == 99.0
        with pytest.raises(RpcError, match="signal number 99"):
            await fleet.manager.rpc("job-exec.kill", {"id": JOB, "signum": 99})

    with_fleet(3, scenario)


def test_a_lost_broker_fails_its_jobs_and_the_rest_is_told_to_end() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("0-6", "node[0-6]")
        await fleet.settle()
        for agent in fleet.agents:
            agent.say("started")
        await fleet.settle()
        await fleet.lose(2)
        kind, data = fleet.told[1]
        assert (kind, data["severity"], data["type"]) == ("exception", 0, "node-failure")
        assert data["note"] == "lost contact with job shell on brokers node[2,5-6] (ranks 2,5-6)"
        # The lead shell does not wait for what they would have said.
        assert [(op["from"], op["data"]["kind"]) for op in fleet.agents[0].got("peer")] == [
            (node, "done") for node in (2, 5, 6)
        ]
        for rank in (0, 1, 3, 4):
            fleet.agents[rank].say("finish", status=15)
        await fleet.settle()
        assert fleet.told[2:] == [("finish", {"status": 15}), DONE[1]]
        assert ("shell-exit", {"rank": 6, "wait_status": 9}) in fleet.events()

    with_fleet(7, scenario)


def test_a_job_that_asks_for_it_is_queued_again_when_it_loses_a_broker() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("0-2", "node[0-2]", requeue=True)
        await fleet.settle()
        for agent in fleet.agents:
            agent.say("started")
        await fleet.settle()
        await fleet.lose(2)
        kind, data = fleet.told[1]
        note = "lost contact with job shell on broker node2 (rank 2): queued again"
        assert (kind, data) == ("exception", {"severity": 1, "type": "node-failure", "note": note})
        assert [op["signum"] for op in fleet.agents[1].got("kill")] == [15]
        for rank in (0, 1):
            fleet.agents[rank].say("finish", status=15)
        await fleet.settle()
        assert fleet.told[2:] == [
            ("finish", {"status": 15, "requeue": True}),
            ("release", {"ranks": "all", "final": True, "requeue": True}),
        ]
        # Its log goes on with the next run.
        assert "done" not in [name for name, _ in fleet.events()]
        fleet.start("0-1", "node[0-1]", requeue=True)
        await fleet.settle()
        fleet.told.clear()
        for rank in (0, 1):
            fleet.agents[rank].say("started")
            fleet.agents[rank].say("finish", status=0)
        await fleet.settle()
        assert fleet.told == [("start", {}), *DONE]
        assert fleet.events()[-1] == ("done", None)

    with_fleet(3, scenario)


def test_a_job_that_was_queued_again_too_often_ends_when_it_loses_a_broker() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("0-1", "node[0-1]", requeue=True, requeues_left=0)
        await fleet.settle()
        for agent in fleet.agents:
            agent.say("started")
        await fleet.settle()
        await fleet.lose(1)
        kind, data = fleet.told[1]
        note = f"lost contact with job shell on broker node1 (rank 1): {js.REQUEUED_ENOUGH}"
        assert (kind, data) == ("exception", {"severity": 0, "type": "node-failure", "note": note})
        fleet.agents[0].say("finish", status=15)
        await fleet.settle()
        assert fleet.told[-1] == DONE[1]

    with_fleet(2, scenario)


def test_a_job_that_was_canceled_before_it_lost_a_broker_is_over() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("0-1", "node[0-1]", requeue=True)
        await fleet.settle()
        for agent in fleet.agents:
            agent.say("started")
        fleet.manager.publish("job-exception", {"id": JOB, "type": "cancel", "severity": 0})
        await fleet.settle()
        await fleet.lose(1)
        assert [data["severity"] for kind, data in fleet.told if kind == "exception"] == [0]
        fleet.agents[0].say("finish", status=15)
        await fleet.settle()
        assert fleet.told[-1] == DONE[1]

    with_fleet(2, scenario)


def test_a_killed_agent_is_a_lost_shell_that_the_lead_shell_is_told_of() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("0-2", "node[0-2]")
        await fleet.settle()
        for agent in fleet.agents:
            agent.say("started")
        await fleet.settle()
        fleet.agents[2].say("gone")
        await fleet.settle()
        assert [kind for kind, _ in fleet.told] == ["start"]
        assert [(op["from"], op["data"]["kind"]) for op in fleet.agents[0].got("peer")] == [(2, "lost-shell")]
        assert fleet.agents[1].got("kill") == []
        for rank in (0, 1):
            fleet.agents[rank].say("finish", status=256)
        await fleet.settle()
        assert fleet.told[1:] == [("finish", {"status": 256}), DONE[1]]
        assert ("shell-exit", {"rank": 2, "wait_status": 9}) in fleet.events()

    with_fleet(3, scenario)


def test_a_killed_agent_with_the_lead_shell_ends_the_job() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("0-1", "node[0-1]")
        await fleet.settle()
        fleet.agents[0].say("gone")
        await fleet.settle()
        told = dict(fleet.told)["exception"]
        assert (told["severity"], told["type"]) == (0, "node-failure")

    with_fleet(2, scenario)


def test_a_job_for_ranks_that_are_gone_fails_at_once() -> None:
    async def scenario(fleet: Fleet) -> None:
        await fleet.lose(1)
        fleet.start("3", "node3")
        await fleet.settle()
        assert [kind for kind, _ in fleet.told] == ["exception", "finish", "release"]

    with_fleet(7, scenario)


def test_a_job_without_ranks_fails_at_once() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("", "")
        await fleet.settle()
        assert [kind for kind, _ in fleet.told] == ["exception", "finish", "release"]
        assert "no rank" in fleet.told[0][1]["note"]

    with_fleet(1, scenario)


def test_a_job_may_survive_the_loss_of_ranks_it_calls_uncritical() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("1-3", "node[1-3]")
        await fleet.settle()
        # Counted as the job's nodes.
        await fleet.manager.rpc("job-exec.critical-ranks", {"id": JOB, "ranks": "0-1"})
        await fleet.lose(3)
        assert [data["severity"] for kind, data in fleet.told if kind == "exception"] == [2]
        await fleet.lose(2)
        assert [data["severity"] for kind, data in fleet.told if kind == "exception"] == [2, 0]

    with_fleet(4, scenario)


def test_requests_to_the_shell_are_answered_by_its_agent() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("1", "node1")
        await fleet.settle()
        asked = asyncio.ensure_future(
            fleet.contexts[1].rpc("0-shell-f2AniAMV.stdin", {"stream": "stdin", "eof": True}, nodeid=1)
        )
        await fleet.settle()
        (rpc,) = fleet.agents[1].got("rpc")
        assert (rpc["method"], rpc["payload"], rpc["streaming"]) == ("stdin", {"stream": "stdin", "eof": True}, False)
        fleet.agents[1].say("rpc-reply", token=rpc["token"], errnum=0, payload=None)
        assert await asked is None
        late = asyncio.ensure_future(fleet.contexts[0].rpc("0-shell-f2AniAMV.pty.attach", {}, nodeid=1))
        await fleet.settle()
        assert fleet.agents[1].got("rpc")[1]["method"] == "pty.attach"
        fleet.agents[1].say("finish", status=0)
        with pytest.raises(RpcError) as unknown:
            await late
        assert unknown.value.errnum == errno.ENOSYS
        with pytest.raises(RpcError, match=r"No service matching 0-shell-f2AniAMV\.stdin"):
            await fleet.contexts[0].rpc("0-shell-f2AniAMV.stdin", {}, nodeid=1)

    with_fleet(2, scenario)


def test_strangers_may_not_talk_to_a_shell() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start()
        await fleet.settle()
        replies: list[Message] = []
        fleet.manager.call("0-shell-f2AniAMV.stdin", {}, replies.append, userid=77, rolemask=m.ROLE_USER)
        await fleet.settle()
        assert [reply.errnum for reply in replies] == [errno.EPERM]
        assert not fleet.agents[0].got("rpc")

    with_fleet(1, scenario)


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ({"run_duration": "0.001s"}, ["start", "finish", "release"]),
        ({"run_duration": 0}, ["start", "finish", "release"]),
        ({"mock_exception": "init"}, ["exception", "finish", "release"]),
        ({"mock_exception": "run"}, ["start", "exception", "finish", "release"]),
        ({"run_duration": "soon"}, ["exception", "finish", "release"]),
    ],
)
def test_simulated_jobs_run_nothing(test: dict[str, Any], told: list[str]) -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start(exec={"test": test})
        await until_in_loop(lambda: len(fleet.told) >= len(told) and len(fleet.events()) >= 4)
        assert [kind for kind, _ in fleet.told] == told
        assert [name for name, _ in fleet.events()] == ["init", "starting", "complete", "done"]
        assert not fleet.agents[0].told

    with_fleet(1, scenario)


def test_a_simulated_job_without_any_duration_runs_until_it_is_killed() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start(exec={"test": {}})
        await fleet.settle()
        assert fleet.told == [("start", {})]
        await fleet.manager.rpc("job-exec.kill", {"id": JOB, "signum": 15})
        await until_in_loop(lambda: len(fleet.told) == 3)
        assert fleet.told[1] == ("finish", {"status": 15})

    with_fleet(1, scenario)


def test_an_overridden_job_starts_and_ends_on_demand() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start(exec={"test": {"override": 1}})
        await fleet.settle()
        with pytest.raises(RpcError, match="not running"):
            await fleet.manager.rpc("job-exec.override", {"jobid": JOB, "event": "finish"})
        await fleet.manager.rpc("job-exec.override", {"jobid": JOB, "event": "start"})
        assert fleet.told == [("start", {})]
        await fleet.manager.rpc("job-exec.override", {"jobid": JOB, "event": "finish", "status": 256})
        assert fleet.told[1] == ("finish", {"status": 256})

    with_fleet(1, scenario)


def test_a_bad_exec_table_is_refused_with_its_key() -> None:
    with pytest.raises(RpcError, match="exec: invalid kill-timeout: x: "):
        with_fleet(1, lambda fleet: fleet.settle(), config={"exec": {"kill-timeout": "x"}})
    with pytest.raises(RpcError, match="exec: invalid term-signal: "):
        with_fleet(1, lambda fleet: fleet.settle(), config={"exec": {"term-signal": "SIGNOT"}})


def test_a_start_meant_for_another_load_of_the_module_is_not_taken() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.leader().taking = False
        fleet.start()
        await fleet.settle()
        assert fleet.told == [("error", {"errnum": errno.ENOSYS})]
        assert fleet.agents[0].told == []

    with_fleet(1, scenario)


def test_the_end_of_the_module_ends_what_runs() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start()
        await fleet.settle()
        await fleet.contexts[0].unload()
        await fleet.settle()
        assert fleet.told == [("error", {"errnum": errno.ECONNRESET})]
        assert [op["all"] for op in fleet.agents[0].got("kill")] == [True]
        fleet.contexts.clear()

    with_fleet(1, scenario)


def test_a_job_is_lost_whose_only_agent_is_gone() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start()
        await fleet.settle()
        fleet.agents[0].say("gone")
        await fleet.settle()
        assert [kind for kind, _ in fleet.told] == ["exception", "finish", "release"]
        assert fleet.told[0][1]["type"] == "node-failure"

    with_fleet(1, scenario)
