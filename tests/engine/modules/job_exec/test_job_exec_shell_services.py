"""The services of job shells: which client is answered, and where its requests go."""

from __future__ import annotations

import errno
from typing import Any

from exec_fleet import JOB, Fleet, with_fleet

from headrace.engine.broker.module.context import EMPTY, ModuleContext
from headrace.formats.spec.message import ROLE_USER, Message

SHELL = "0-shell-f2AniAMV"


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


def test_a_shell_is_told_when_its_client_has_taken_what_it_was_sent_or_is_gone() -> None:
    async def scenario(fleet: Fleet) -> None:
        asked, replies = await attached(fleet)
        fleet.agents[0].say("rpc-reply", token=asked["token"], errnum=0, payload={"type": "data"})
        for count, token in enumerate((asked["token"], 99), start=1):
            fleet.agents[0].say("rpc-drain", token=token)
            await fleet.settle()
            told = fleet.agents[0].got("rpc-drained")
            assert len(told) == count
            assert (told[-1]["id"], told[-1]["token"]) == (JOB, token)
        assert len(replies) == 1

    with_fleet(1, scenario)


def test_in_private_mode_a_guest_does_not_see_that_another_users_job_runs() -> None:
    async def scenario(fleet: Fleet) -> None:
        fleet.start()
        await fleet.settle()
        replies: list[Message] = []
        for private in (False, True):
            fleet.brokers[0].config = {"access": {"private-mode": private}}
            for name in (SHELL, "0-shell-f3"):
                fleet.manager.call(f"{name}.pty", {}, replies.append, userid=1, rolemask=ROLE_USER)
                await fleet.settle()
        found = [(reply.errnum, reply.text.replace(SHELL, "0-shell-f3")) for reply in replies]
        running, absent, hidden, absent_too = found
        assert running[0] == errno.EPERM
        assert hidden == absent == absent_too

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
