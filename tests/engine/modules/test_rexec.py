"""The subprocess server in front of an agent that the test plays."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from headrace.engine.modules import rexec
from headrace.formats.spec import message as m

Run = Callable[..., None]


class World:
    """One rexec with its agent; `told` is what the agent was sent."""

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.told: list[dict[str, Any]] = []
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        broker.agent = self
        broker.attrs.set("local-uri", "local:///run/local-0")
        broker.load(rexec)
        self.client = broker.client()

    def send(self, op: dict[str, Any]) -> None:
        self.told.append(op)

    def subscribe(self, listener: Callable[[dict[str, Any]], None]) -> None:
        self.listeners.append(listener)

    def unsubscribe(self, listener: Callable[[dict[str, Any]], None]) -> None:
        self.listeners.remove(listener)

    def say(self, op: str, handle: int = 1, **fields: Any) -> None:
        for listener in self.listeners:
            listener({"op": op, "handle": handle, **fields})

    def run(self, *line: str, flags: int = 11, streaming: bool = True, **cmd: Any) -> int:
        body = {
            "cmd": {"cmdline": list(line), "cwd": "/tmp", "env": {"A": "b", "FLUX_URI": "x"}, "opts": {}, **cmd},
            "flags": flags,
        }
        return int(self.client.start("rexec.exec", body, flags=m.FLAG_STREAMING if streaming else 0))

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def answers(self, tag: int) -> list[Any]:
        """Every answer so far; an error as its number."""
        await self.settle()
        queue = self.client.queues[tag]
        out = []
        while not queue.empty():
            reply = queue.get_nowait()
            out.append(reply.errnum or reply.obj)
        return out

    def got(self, op: str) -> list[dict[str, Any]]:
        return [told for told in self.told if told["op"] == op]


def with_world(in_broker: Run, scenario: Callable[[World], Any], config: dict[str, Any] | None = None) -> None:
    async def run(broker: Any) -> None:
        world = World(broker)
        await scenario(world)

    in_broker(run, config)


def output(stream: str, **io: Any) -> dict[str, Any]:
    return {"type": "output", "pid": 22655, "io": {"stream": stream, "rank": "0", **io}}


def test_a_process_is_answered_as_recorded(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        tag = world.run("hostname")
        await world.settle()
        (exec_,) = world.got("exec")
        assert exec_["cmd"]["cmdline"] == ["hostname"]
        assert exec_["cmd"]["env"] == {"A": "b", "FLUX_URI": "local:///run/local-0"}
        world.say("exec-started", pid=22655)
        world.say("exec-output", stream="stdout", data=b"node0\n", eof=False)
        world.say("exec-output", stream="stderr", data=b"", eof=True)
        world.say("exec-finished", status=0)
        assert await world.answers(tag) == [
            {"type": "started", "pid": 22655},
            {"type": "add-credit", "channels": {"stdin": 4194304}},
            output("stdout", data="node0\n"),
            output("stderr", eof=True),
        ]
        world.say("exec-output", stream="stdout", data=b"", eof=True)
        assert await world.answers(tag) == [
            output("stdout", eof=True),
            {"type": "finished", "status": 0},
            errno.ENODATA,
        ]
        assert (await world.client.rpc("rexec.list")) == {"rank": 0, "procs": []}

    with_world(in_broker, scenario)


def test_only_what_was_asked_for_is_forwarded_and_binary_goes_as_base64(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        tag = world.run("cat", flags=1)
        await world.settle()
        world.say("exec-started", pid=22655)
        world.say("exec-output", stream="stderr", data=b"hidden", eof=True)
        world.say("exec-output", stream="stdout", data=b"\xff\xfe", eof=True)
        world.say("exec-finished", status=256)
        assert await world.answers(tag) == [
            {"type": "started", "pid": 22655},
            output("stdout", data="//4=", encoding="base64"),
            output("stdout", eof=True),
            {"type": "finished", "status": 256},
            errno.ENODATA,
        ]

    with_world(in_broker, scenario)


def test_input_reaches_the_process_and_comes_back_as_credit(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        tag = world.run("cat")
        await world.settle()
        world.say("exec-started", pid=5)
        await world.answers(tag)
        world.client.start("rexec.write", {"matchtag": tag, "io": {"stream": "stdin", "rank": "0", "data": "hé\n"}})
        io = {"stream": "stdin", "rank": "0", "data": "/w==", "encoding": "base64", "eof": True}
        world.client.start("rexec.write", {"matchtag": tag, "io": io})
        world.client.start("rexec.write", {"matchtag": 99, "io": io})
        assert await world.answers(tag) == [
            {"type": "add-credit", "channels": {"stdin": 4}},
            {"type": "add-credit", "channels": {"stdin": 1}},
        ]
        assert [(op["data"], op["eof"]) for op in world.got("exec-write")] == [
            ("hé\n".encode(), False),
            (b"\xff", True),
        ]

    with_world(in_broker, scenario)


def test_what_cannot_be_started_is_an_error(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        tag = world.run("nosuchcmd")
        await world.settle()
        world.say("exec-error", errnum=errno.ENOENT, text="")
        reply = await world.client.next(tag)
        assert (reply.errnum, reply.text) == (errno.ENOENT, "error launching process: No such file or directory")

    with_world(in_broker, scenario)


def test_what_an_agent_ran_that_was_killed_has_ended_of_that(in_broker: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: killed.append((group, number)))

    async def scenario(world: World) -> None:
        runs, waits = world.run("sleep"), world.run("hostname")
        await world.settle()
        world.say("exec-started", pid=22655)
        world.say("exec-output", stream="stderr", data=b"", eof=True)
        await world.answers(runs)
        world.say("gone")
        assert await world.answers(runs) == [
            output("stdout", eof=True),
            {"type": "finished", "status": 9},
            errno.ENODATA,
        ]
        reply = await world.client.next(waits)
        assert (reply.errnum, reply.text) == (errno.EHOSTUNREACH, "the exec agent was killed")
        assert killed == [(22655, 9)]
        assert (await world.client.rpc("rexec.list")) == {"rank": 0, "procs": []}

    with_world(in_broker, scenario)


def test_processes_are_signalled_by_pid_or_label(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.run("sleep", label="nap")
        await world.settle()
        world.say("exec-started", pid=7)
        assert (await world.client.rpc("rexec.list"))["procs"] == [
            {"pid": 7, "cmd": "sleep", "label": "nap", "state": "R"}
        ]
        await world.client.rpc("rexec.kill", {"pid": 7, "signum": 15})
        await world.client.rpc("rexec.kill", {"pid": -1, "label": "nap", "signum": 9})
        assert [op["signum"] for op in world.got("exec-kill")] == [15, 9]
        assert (await world.client.call("rexec.kill", {"pid": 8, "signum": 15})).errnum == errno.ENOENT
        assert (await world.client.call("rexec.kill", {"pid": 7, "signum": 99})).errnum == errno.EINVAL
        twin = world.run("sleep", label="nap")
        assert (await world.client.next(twin)).errnum == errno.EEXIST

    with_world(in_broker, scenario)


def test_a_client_that_leaves_takes_its_processes_along_but_not_those_in_the_background(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.run("sleep")
        background = world.run("sleep", flags=0, streaming=False)
        await world.settle()
        world.say("exec-started", pid=7)
        world.say("exec-started", handle=2, pid=8)
        assert await world.answers(background) == [{"type": "started", "pid": 8}]
        world.client.disconnect("rexec")
        await world.settle()
        assert [op["handle"] for op in world.got("exec-kill")] == [1]
        assert world.got("exec-write") == [
            {"op": "exec-write", "handle": 2, "stream": "stdin", "data": b"", "eof": True}
        ]

    with_world(in_broker, scenario)


def finish(world: World, status: int) -> None:
    for stream in ("stdout", "stderr"):
        world.say("exec-output", stream=stream, data=b"", eof=True)
    world.say("exec-finished", status=status)


def test_a_waitable_process_keeps_its_status_for_one_who_asks(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.run("true", flags=16, streaming=False)
        await world.settle()
        world.say("exec-started", pid=7)
        early = world.client.start("rexec.wait", {"pid": 7})
        await world.settle()
        finish(world, 256)
        assert await world.answers(early) == [{"status": 256}]
        assert (await world.client.call("rexec.wait", {"pid": 7})).errnum == errno.ENOENT

        world.run("true", flags=16, streaming=False)
        await world.settle()
        world.say("exec-started", handle=2, pid=8)
        for stream in ("stdout", "stderr"):
            world.say("exec-output", handle=2, stream=stream, data=b"", eof=True)
        world.say("exec-finished", handle=2, status=0)
        assert (await world.client.rpc("rexec.list"))["procs"][0]["state"] == "Z"
        assert await world.client.rpc("rexec.wait", {"pid": 8}) == {"status": 0}

    with_world(in_broker, scenario)


def test_a_background_process_can_be_attached_to(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.run("job", flags=0, streaming=False)
        await world.settle()
        world.say("exec-started", pid=22655)
        world.say("exec-output", stream="stdout", data=b"early\n", eof=False)
        world.say("exec-output", stream="stderr", data=b"", eof=True)
        assert any("early" in line for line in world.broker.logged)
        tag = world.client.start("rexec.attach", {"pid": 22655, "flags": 3}, flags=m.FLAG_STREAMING)
        attached, ended = await world.answers(tag)
        assert (attached["type"], attached["cmd"]["cmdline"]) == ("attached", ["job"])
        assert ended == output("stderr", eof=True)
        second = world.client.start("rexec.attach", {"pid": 22655, "flags": 3}, flags=m.FLAG_STREAMING)
        assert await world.answers(second) == [errno.EBUSY]
        world.say("exec-output", stream="stdout", data=b"late\n", eof=True)
        world.say("exec-finished", status=0)
        assert await world.answers(tag) == [
            output("stdout", data="late\n"),
            output("stdout", eof=True),
            {"type": "finished", "status": 0},
            errno.ENODATA,
        ]

    with_world(in_broker, scenario)


@pytest.mark.parametrize(
    ("change", "errnum"),
    [
        ({"cmdline": []}, errno.EPROTO),
        ({"cmdline": "true"}, errno.EPROTO),
        ({"env": {"A": 1}}, errno.EPROTO),
        ({"cwd": 3}, errno.EPROTO),
        ({"label": ""}, errno.EPROTO),
        ({"opts": {"a": 3}}, errno.EPROTO),
        ({"channels": ["x"]}, errno.EINVAL),
    ],
)
def test_commands_that_make_no_sense_are_refused(in_broker: Run, change: dict[str, Any], errnum: int) -> None:
    async def scenario(world: World) -> None:
        cmd = {"cmdline": ["true"], "env": {}, "opts": {}, **change}
        tag = world.client.start("rexec.exec", {"cmd": cmd, "flags": 0}, flags=m.FLAG_STREAMING)
        assert await world.answers(tag) == [errnum]
        assert not world.told

    with_world(in_broker, scenario)


def test_guests_start_nothing(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        body = {"cmd": {"cmdline": ["true"], "env": {}, "opts": {}}, "flags": 0}
        assert (await world.broker.client(guest=True).call("rexec.exec", body)).errnum == errno.EPERM

    with_world(in_broker, scenario)


def test_an_unloaded_server_leaves_no_process(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        world.run("sleep")
        await world.settle()
        await world.broker.contexts.pop("rexec").unload()
        assert [op["signum"] for op in world.got("exec-kill")] == [9]
        assert not world.listeners

    with_world(in_broker, scenario)


def test_the_server_of_a_jobs_shell_knows_only_what_it_started(in_broker: Run) -> None:
    async def scenario(world: World) -> None:
        shell = {"job": 17, "topic": "0-shell-f1.rexec.exec"}
        body = {"cmd": {"cmdline": ["debugger"], "env": {}, "opts": {}, "label": "x"}, "flags": 3, "shell": shell}
        tag = world.client.start("rexec.exec", body, flags=m.FLAG_STREAMING)
        world.run("daemon", label="x")
        await world.settle()
        assert [op["job"] for op in world.got("exec")] == [17, 0]
        for handle in (1, 2):
            world.say("exec-started", handle, pid=100 + handle)
        await world.settle()
        assert world.client.queues[tag].get_nowait().topic == "0-shell-f1.rexec.exec"
        for job, pid, other in (({"shell": shell}, 101, 102), ({}, 102, 101)):
            listed = await world.client.rpc("rexec.list", job)
            assert [process["pid"] for process in listed["procs"]] == [pid]
            assert (await world.client.call("rexec.kill", {"pid": pid, "signum": 1, **job})).errnum == 0
            assert (await world.client.call("rexec.kill", {"pid": other, "signum": 1, **job})).errnum == errno.ENOENT
        assert [op["handle"] for op in world.got("exec-kill")] == [1, 2]
        # A client that leaves said so to the service that it used.
        world.client.disconnect("rexec")
        await world.settle()
        assert [op["handle"] for op in world.got("exec-kill")] == [1, 2, 1, 2]

    with_world(in_broker, scenario)


@pytest.mark.parametrize("guests", [True, False])
def test_where_guests_are_let_in_the_leader_runs_nothing_for_other_brokers(in_broker: Run, guests: bool) -> None:
    async def scenario(world: World) -> None:
        world.client.rolemask = m.ROLE_OWNER
        tag = world.run("hostname")
        await world.settle()
        assert len(world.got("exec")) == (not guests)
        assert await world.answers(tag) == ([errno.EPERM] if guests else [])
        world.client.rolemask = m.ROLE_OWNER | m.ROLE_LOCAL
        world.run("hostname")
        await world.settle()
        assert len(world.got("exec")) == 1 + (not guests)

    with_world(in_broker, scenario, {"access": {"allow-guest-user": guests}})
