"""The exec service of one broker in a tree: output under credit, what its agent is told, and a broker without agent."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from exec_fleet import JOB, Fleet, with_fleet

from headrace.engine.agent.environments import Read
from headrace.engine.broker.module.context import RpcError
from headrace.engine.modules.job_exec import node
from headrace.formats.spec.message import ROLE_USER, Message

SHELL = "0-shell-f2AniAMV"


def test_an_agent_is_not_read_while_its_output_is_on_its_way(monkeypatch: Any) -> None:
    monkeypatch.setattr(node, "_PAUSE_ABOVE", 100)
    monkeypatch.setattr(node, "_RESUME_BELOW", 50)
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


def test_an_operation_from_above_reaches_the_agent_with_the_fields_of_its_type_alone() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("0-1", "node[0-1]")
        await fleet.settle()
        replies: list[Message] = []

        def down(**body: Any) -> None:
            fleet.manager.call("job-exec.down", body, replies.append, nodeid=1)

        down(op="kill", id=JOB, signum=15, cmd={"cmdline": ["true"]})
        down(op="kill", id=JOB, signum=9, all=True)
        down(op="expiration", id=JOB, expiration=5.0, uri="local:///tmp/other")
        down(op="barrier", id=JOB, seq=1, kvs={"a": "b"}, handle=3)
        await fleet.settle()
        assert [reply.errnum for reply in replies] == [0] * 4
        assert fleet.agents[1].told[1:] == [
            {"op": "kill", "id": JOB, "signum": 15},
            {"op": "kill", "id": JOB, "signum": 9, "all": True},
            {"op": "expiration", "id": JOB, "expiration": 5.0},
            {"op": "barrier", "id": JOB, "seq": 1, "kvs": {"a": "b"}},
        ]

    with_fleet(2, scenario)


def test_other_operations_and_those_of_guests_do_not_reach_the_agent() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start("0-1", "node[0-1]")
        await fleet.settle()
        told = list(fleet.agents[1].told)
        replies: list[Message] = []
        ask = fleet.manager.call
        ask("job-exec.down", {"op": "exec", "id": JOB, "handle": 1, "cmd": {}}, replies.append, nodeid=1)
        ask("job-exec.down", {"op": "shutdown", "id": JOB}, replies.append, nodeid=1)
        ask("job-exec.down", {"op": "kill", "id": JOB}, replies.append, nodeid=1)
        guest = {"nodeid": 1, "userid": 1, "rolemask": ROLE_USER}
        ask("job-exec.down", {"op": "kill", "id": JOB, "signum": 9}, replies.append, **guest)
        ask("job-exec.peer", {"ops": [{"id": JOB, "from": 0, "data": {}}]}, replies.append, **guest)
        await fleet.settle()
        assert [reply.errnum for reply in replies] == [errno.EPROTO] * 3 + [errno.EPERM] * 2
        assert [reply.text for reply in replies[1:3]] == [
            "job-exec.down: op is 'shutdown', it must be kill, expiration or barrier",
            "job-exec.down: kill: missing field 'signum'",
        ]
        assert fleet.agents[1].told == told

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
