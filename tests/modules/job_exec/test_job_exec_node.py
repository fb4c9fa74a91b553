"""The exec service of one broker in a tree: output under credit, the services of shells, and a broker without agent."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from exec_fleet import JOB, Fleet, with_fleet

from headrace.agent.environments import Read
from headrace.broker.module.context import EMPTY, ModuleContext, RpcError
from headrace.modules.job_exec import node
from headrace.spec.message import Message

SHELL = "0-shell-f2AniAMV"


def test_an_agent_is_not_read_while_its_output_is_on_its_way(monkeypatch: Any) -> None:
    monkeypatch.setattr(node, "_MOST", 100)
    monkeypatch.setattr(node, "_FEW", 50)
    held: list[tuple[int, str]] = []

    async def scenario(fleet: Fleet) -> None:
        for rank, agent in enumerate(fleet.agents):
            agent.pause = lambda rank=rank: held.append((rank, "pause"))
            agent.resume = lambda rank=rank: held.append((rank, "resume"))
        fleet.start("3", "node3")
        await fleet.settle()
        for size in (60, 60):
            entries = [[1.0, "data", {"stream": "stdout", "rank": "0", "data": "x" * size}], [1.0, "log", None]]
            fleet.agents[3].say("output", entries=entries)
            await fleet.settle()
        assert (3, "pause") not in held, "all was taken"
        # Both in one turn are more than may be on the way; rank 1 between them passes it on and is held, too.
        for _ in range(2):
            fleet.agents[3].say("output", entries=entries)
        await fleet.settle()
        order = [held.index(step) for step in ((3, "pause"), (1, "pause"))]
        order += [held.index((rank, "resume"), order[1]) for rank in (1, 3)]
        assert order == sorted(order), "what is below goes on when what is above does"
        assert held[-1][1] == "resume"
        written = [
            context["data"]
            for log, entries in fleet.stored
            if "output" in log
            for _, name, context in entries
            if name == "data"
        ]
        assert "".join(written) == "x" * 240

    with_fleet(4, scenario)


async def attached(fleet: Fleet) -> tuple[dict[str, Any], list[Message]]:
    """A client talks to the shell of a job: what the agent was asked, and the answers."""
    fleet.start()
    await fleet.settle()
    replies: list[Message] = []
    fleet.manager.call(f"{SHELL}.pty", {"type": "attach"}, replies.append, streaming=True)
    await fleet.settle()
    (asked,) = fleet.agents[0].got("rpc")
    return asked, replies


def test_a_client_that_left_is_not_answered_and_the_shell_hears_of_it() -> None:
    async def scenario(fleet: Fleet) -> None:
        asked, replies = await attached(fleet)
        fleet.agents[0].say("rpc-reply", token=asked["token"], errnum=0, payload={"type": "data"})
        await fleet.settle()
        assert [reply.obj for reply in replies] == [{"type": "data"}]
        fleet.manager.call(f"{SHELL}.disconnect")
        await fleet.settle()
        told = fleet.agents[0].got("rpc")[1]
        assert (told["method"], told["payload"], told["id"]) == ("disconnect", {"sender": asked["sender"]}, JOB)
        fleet.agents[0].say("rpc-reply", token=asked["token"], errnum=0, payload={"type": "data"})
        await fleet.settle()
        assert len(replies) == 1

    with_fleet(1, scenario)


def test_who_attached_to_a_shell_that_ends_is_let_go() -> None:
    async def scenario(fleet: Fleet) -> None:
        asked, replies = await attached(fleet)
        fleet.agents[0].say("finish", status=0)
        await fleet.settle()
        assert [reply.errnum for reply in replies] == [errno.ENOSYS]
        fleet.agents[0].say("rpc-reply", token=asked["token"], errnum=0, payload={})
        await fleet.settle()
        assert len(replies) == 1

    with_fleet(1, scenario)


def test_a_broker_without_an_agent_fails_its_part_of_a_job() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.brokers[1].agent = None
        fleet.start("0-1", "node[0-1]")
        await fleet.settle()
        (refused,) = [data for kind, data in fleet.told if kind == "exception"]
        assert refused["note"] == "rank 1 has no exec agent"
        fleet.agents[0].say("started")
        fleet.agents[0].say("finish", status=9)
        await fleet.settle()
        assert ("finish", {"status": 256}) in fleet.told
        try:
            await fleet.contexts[1].rpc(f"{SHELL}.stdin", {})
        except RpcError as exc:
            assert exc.errnum == errno.ENOSYS

    with_fleet(2, scenario)


def test_a_shell_reaches_only_nodes_of_its_job() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("1-2", "node[1-2]")
        await fleet.settle()
        before = [len(agent.told) for agent in fleet.agents]
        for to in (-1, 2, 99):
            fleet.agents[1].say("peer", to=to, data={"kind": "done"})
        fleet.agents[0].say("peer", to=0, data={"kind": "done"})
        fleet.agents[1].say("peer", 77, to=0, data={"kind": "done"})
        await fleet.settle()
        assert [len(agent.told) for agent in fleet.agents] == before

    with_fleet(3, scenario)


def test_what_is_for_a_shells_subprocess_server_goes_to_the_brokers_own() -> None:
    async def scenario(fleet: Fleet) -> None:
        asked: list[Message] = []

        def keep(msg: Message) -> Any:
            asked.append(msg)
            return EMPTY

        server = ModuleContext(fleet.brokers[1], "rexec")
        server.service("rexec", {"exec": keep, "list": keep})
        fleet.start("0-1", "node[0-1]")
        await fleet.settle()
        replies: list[Message] = []
        topic = f"{SHELL}.rexec.exec"
        tag = fleet.manager.call(topic, {"flags": 3}, replies.append, nodeid=1, streaming=True)
        await fleet.settle()
        (msg,) = asked
        assert msg.obj == {"flags": 3, "shell": {"job": JOB, "topic": topic}}
        assert (msg.matchtag, msg.sender, msg.streaming) == (tag, fleet.manager.uuid, True)
        assert [reply.errnum for reply in replies] == [0]
        # The rest of a shell's services are with the lead shell.
        fleet.manager.call(f"{SHELL}.stdin", {}, replies.append, nodeid=1)
        fleet.manager.call(f"{SHELL}.rexec.list", {}, replies.append, nodeid=1, userid=1)
        await fleet.settle()
        fleet.agents[1].say("finish", status=0)
        await fleet.settle()
        fleet.manager.call(f"{SHELL}.rexec.list", {}, replies.append, nodeid=1)
        await fleet.settle()
        assert [reply.errnum for reply in replies[1:]] == [errno.ENOSYS, errno.EPERM, errno.ENOSYS]
        assert len(asked) == 1

    with_fleet(2, scenario)


def test_starts_name_the_environment_that_jobs_have_in_common(tmp_path: Path) -> None:
    usual = {f"VARIABLE_{number}": "x" * 40 for number in range(30)}

    async def scenario(fleet: Fleet) -> None:
        for number in range(3):
            fleet.start(id=JOB + number, environment={**usual, "FLUX_JOB_CC": str(number)})
        await fleet.settle()
        first, second, third = fleet.agents[0].got("start")
        assert first["environment"] is None
        assert first["jobspec"]["attributes"]["system"]["environment"]["FLUX_JOB_CC"] == "0"
        for op, number in ((second, "1"), (third, "2")):
            assert "environment" not in op["jobspec"]["attributes"]["system"]
            assert Read().environment(op["environment"]) == {**usual, "FLUX_JOB_CC": number}
        assert len(os.listdir(tmp_path)) == 1

    with_fleet(1, scenario, rundir=str(tmp_path))
    # The end of the module is the end of its files.
    assert os.listdir(tmp_path) == []
