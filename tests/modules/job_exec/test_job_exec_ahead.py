"""job-exec with an agent that starts jobs ahead: who was started, and who is told of it and when."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

from exec_fleet import JOB, Fleet, with_fleet

from headrace.agent import begun
from headrace.modules.job_exec import leader

NEXT, LAST = JOB + 1, JOB + 2
SPEC = {"tasks": [{"command": ["true"]}], "attributes": {"system": {"duration": 0}}}


async def hand_out(fleet: Fleet, *ids: int, traces: str = "") -> None:
    fleet.start()
    await fleet.settle()
    fleet.agents[0].say("started")
    todo = [{"id": id, "userid": 0, "jobspec": SPEC} for id in ids]
    fleet.manager.call("job-exec.ahead", {"jobs": todo, "after": [JOB], "first": True, "ends": 0.0, "traces": traces})
    await fleet.settle()
    (told,) = fleet.agents[0].got("ahead")
    assert [job["id"] for job in told["jobs"]] == list(ids) and told["after"] == [JOB]
    fleet.told.clear()


def recall(fleet: Fleet) -> list[Any]:
    answers: list[Any] = []
    fleet.manager.call("job-exec.recall", None, lambda reply: answers.append(reply.errnum))
    return answers


def test_what_the_agent_started_is_told_to_whoever_asks_for_it() -> None:
    async def scenario(fleet: Fleet) -> None:
        await hand_out(fleet, NEXT)
        agent = fleet.agents[0]
        agent.say("finish", status=0, heir=NEXT, t=7.0)
        agent.say("started", NEXT)
        agent.say("finish", NEXT, status=256)
        await fleet.settle()
        assert fleet.told == [("finish", {"status": 0}), ("release", {"ranks": "all", "final": True, "heir": NEXT})]
        fleet.start(id=NEXT)
        await fleet.settle()
        assert [kind for kind, _ in fleet.told[2:]] == ["start", "finish", "release"]
        assert len(agent.got("start")) == 1
        times = [entry[0] for log, entries in fleet.stored if "exec" in log for entry in entries if entry[1] == "init"]
        assert times[-1] == 7.0

    with_fleet(1, scenario)


def test_a_recall_is_answered_when_all_that_was_started_is_asked_for() -> None:
    async def scenario(fleet: Fleet) -> None:
        await hand_out(fleet, NEXT, LAST)
        agent = fleet.agents[0]
        answers = recall(fleet)
        agent.say("finish", status=0, heir=NEXT, t=7.0)
        await fleet.settle()
        assert len(agent.got("recall")) == 1
        agent.say("recalled", ids=[LAST])
        await fleet.settle()
        assert answers == []
        fleet.start(id=NEXT)
        await fleet.settle()
        assert answers == [0]
        assert recall(fleet) is not answers
        await fleet.settle()
        assert len(agent.got("recall")) == 1, "the agent has nothing any more"

    with_fleet(1, scenario)


def test_a_job_that_the_agent_may_start_is_never_started_beside_it() -> None:
    async def scenario(fleet: Fleet) -> None:
        await hand_out(fleet, NEXT, LAST)
        agent = fleet.agents[0]
        for id in (NEXT, LAST):
            fleet.start(id=id)
        await fleet.settle()
        assert len(agent.got("start")) == 1 and len(agent.got("recall")) == 2
        # One of them was started before it could be taken back.
        agent.say("finish", status=0, heir=NEXT, t=7.0)
        agent.say("recalled", ids=[LAST])
        await fleet.settle()
        assert [start["id"] for start in agent.got("start")] == [JOB, LAST]
        agent.say("recalled", ids=[])
        agent.say("started", NEXT)
        await fleet.settle()
        assert fleet.told[-1] == ("start", {})

    with_fleet(1, scenario)


def test_a_start_meant_for_another_load_of_the_module_is_not_taken() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.leader().taking = False
        fleet.start()
        body = {"jobs": [{"id": NEXT, "userid": 0, "jobspec": SPEC}], "after": [], "first": True}
        fleet.manager.call("job-exec.ahead", {**body, "ends": 0.0, "traces": ""})
        await fleet.settle()
        assert fleet.told == [("error", {"errnum": errno.ENOSYS})]
        assert fleet.agents[0].told == []

    with_fleet(1, scenario)


def test_a_start_of_what_the_agent_had_is_refused_when_it_comes_back_to_a_module_that_ends() -> None:
    async def scenario(fleet: Fleet) -> None:
        await hand_out(fleet, NEXT)
        agent = fleet.agents[0]
        fleet.start(id=NEXT)
        await fleet.settle()
        agent.on_send = lambda op: op["op"] == "recall" and agent.say("recalled", ids=[NEXT])
        unloading = asyncio.ensure_future(fleet.contexts[0].unload())
        await fleet.settle()
        agent.say("recalled", ids=[])
        await asyncio.wait_for(unloading, 1)
        await fleet.settle()
        assert sorted(body["errnum"] for kind, body in fleet.told if kind == "error") == [
            errno.ENOSYS,
            errno.ECONNRESET,
        ]
        fleet.contexts.clear()

    with_fleet(1, scenario)


def test_a_module_that_ends_refuses_starts_when_all_that_the_agent_started_is_asked_for() -> None:
    async def scenario(fleet: Fleet) -> None:
        await hand_out(fleet, NEXT)
        agent = fleet.agents[0]
        unloading = asyncio.ensure_future(fleet.contexts[0].unload())
        fleet.start(id=LAST)
        await fleet.settle()
        agent.say("finish", status=0, heir=NEXT, t=7.0)
        agent.say("recalled", ids=[])
        # Asked for after the agent has answered: that answer is not for the next load of the module either.
        answers = recall(fleet)
        await fleet.settle()
        assert [kind for kind, _ in fleet.told] == ["finish", "release"] and not unloading.done()
        fleet.start(id=NEXT)
        await fleet.settle()
        agent.say("recalled", ids=[])
        await asyncio.wait_for(unloading, 1)
        await fleet.settle()
        errors = [body["errnum"] for kind, body in fleet.told if kind == "error"]
        assert (errors, answers) == ([errno.ECONNRESET, errno.ENOSYS], [0])
        fleet.contexts.clear()

    with_fleet(1, scenario)


def test_the_end_of_the_module_tells_of_what_was_started_ahead_and_not_asked_for(monkeypatch: Any) -> None:
    monkeypatch.setattr(leader, "_AGENT_ANSWERS", 0.01)
    begun: list[Any] = []

    async def scenario(fleet: Fleet) -> None:
        await hand_out(fleet, NEXT, LAST)
        fleet.manager.service("job-manager", {"exec-begun": lambda msg: begun.append(msg.obj)})
        agent = fleet.agents[0]
        # The job manager rests and hears nothing of these ends.
        agent.say("finish", status=0, heir=NEXT, t=7.0)
        agent.say("finish", NEXT, status=0, heir=LAST, t=7.0)
        agent.on_send = lambda op: op["op"] == "recall" and agent.say("recalled", ids=[])
        await fleet.contexts[0].unload()
        await fleet.settle()
        assert begun == [{"ids": [NEXT, LAST]}]
        assert [op["id"] for op in agent.got("kill")] == [LAST], "what has ended is not killed"
        fleet.contexts.clear()

    with_fleet(1, scenario)


def test_the_end_of_the_module_takes_everything_back_and_ends_what_runs() -> None:
    async def scenario(fleet: Fleet) -> None:
        await hand_out(fleet, NEXT)
        agent = fleet.agents[0]
        agent.on_send = lambda op: op["op"] == "recall" and agent.say("recalled", ids=[NEXT])
        await fleet.contexts[0].unload()
        await fleet.settle()
        assert fleet.told == [("error", {"errnum": errno.ECONNRESET})]
        assert [op["all"] for op in agent.got("kill")] == [True]
        fleet.contexts.clear()

    with_fleet(1, scenario)


def test_who_waits_for_an_agent_is_answered_when_there_will_be_none_and_nothing_is_taken_any_more() -> None:
    async def scenario(fleet: Fleet) -> None:
        await hand_out(fleet, NEXT, LAST)
        answers = recall(fleet)
        fleet.start(id=NEXT)
        await fleet.settle()
        assert answers == []
        fleet.agents[0].say("gone")
        fleet.agents[0].say("ended")
        await fleet.settle()
        assert answers == [0] and ("error", {"errnum": errno.ENOSYS}) in fleet.told
        again = recall(fleet)
        await fleet.settle()
        assert again == [0] and len(fleet.agents[0].got("start")) == 1

    with_fleet(1, scenario)


def test_what_runs_where_the_agent_is_gone_is_lost() -> None:
    async def scenario(fleet: Fleet) -> None:
        await hand_out(fleet, NEXT)
        fleet.agents[0].say("gone")
        await fleet.settle()
        assert [kind for kind, _ in fleet.told] == ["exception", "finish", "release"]
        assert fleet.told[0][1]["type"] == "node-failure"

    with_fleet(1, scenario)


def test_another_agent_gets_what_the_dead_one_had_not_started(tmp_path: Path) -> None:
    begun_told: list[Any] = []
    traces = str(tmp_path / "begun")
    begun.reserve(traces)
    begun.Traces(traces).add(NEXT)

    async def scenario(fleet: Fleet) -> None:
        fleet.manager.service("job-manager", {"exec-begun": lambda msg: begun_told.append(msg.obj)})
        await hand_out(fleet, NEXT, LAST, traces=traces)
        agent = fleet.agents[0]
        agent.say("gone")
        answers = recall(fleet)
        await fleet.settle()
        assert (begun_told, answers, len(agent.got("ahead")), agent.got("recall")) == ([], [], 1, [])
        agent.say("back")
        await fleet.settle()
        assert begun_told == [{"ids": [NEXT]}]
        again = agent.got("ahead")[1]
        assert [job["id"] for job in again["jobs"]] == [LAST]
        assert (again["after"], again["first"], again["traces"]) == ([], True, traces)
        agent.say("recalled", ids=[LAST])
        await fleet.settle()
        assert answers == [0]

    with_fleet(1, scenario)


def test_what_an_earlier_load_is_told_too_late_is_no_answer_for_this_one() -> None:
    async def scenario(fleet: Fleet) -> None:
        await hand_out(fleet, NEXT)
        answers = recall(fleet)
        await fleet.settle()
        fleet.agents[0].say("recalled", ids=[NEXT], by="an earlier load")
        await fleet.settle()
        assert answers == []
        fleet.agents[0].say("finish", status=0, heir=NEXT, t=7.0)
        fleet.agents[0].say("recalled", ids=[])
        await fleet.settle()
        assert ("release", {"ranks": "all", "final": True, "heir": NEXT}) in fleet.told

    with_fleet(1, scenario)
