"""Whether an agent that was killed is replaced, and when."""

from __future__ import annotations

import asyncio
import errno
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.agent import reaper
from headrace.engine.broker.agent_restart import AgentRestarts


class World:
    """A broker and its link to an agent; `over` says why there is no agent any more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.over: list[str] = []
        self.killed: list[Any] = []
        self.logged: list[str] = []
        self.started: list[int] = []
        self.tasks: list[Any] = []
        self.agent: Any = SimpleNamespace(pid=1001, closed=False, start=self._start)
        self.broker: Any = SimpleNamespace(
            rank=0,
            stopping=False,
            program=None,
            attrs={"local-uri": "local:///here"},
            loop=asyncio.get_running_loop(),
            log=lambda _level, _name, text: self.logged.append(text),
            spawn=lambda coro: self.tasks.append(asyncio.ensure_future(coro)),
        )
        monkeypatch.setattr(reaper, "kill_remains", lambda *args: self.killed.append(args))
        self.fails: OSError | None = None
        self.restarts = AgentRestarts(self.broker, self.agent, self._spawn, self.over.append)

    def _spawn(self) -> tuple[int, socket.socket]:
        if self.fails is not None:
            raise self.fails
        return 1002, socket.socketpair()[0]

    def _start(self, sock: socket.socket) -> None:
        self.started.append(self.agent.pid)
        sock.close()

    async def lose(self) -> None:
        self.restarts.lost()
        while self.tasks:
            await self.tasks.pop()


def run(monkeypatch: pytest.MonkeyPatch, scenario: Any) -> None:
    async def main() -> None:
        await scenario(World(monkeypatch))

    asyncio.run(main())


def test_another_is_started_when_nothing_of_the_first_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        await world.lose()
        assert world.killed == [(1001, (), "local:///here")]
        assert (world.started, world.over) == ([1002], [])

    run(monkeypatch, scenario)


def test_who_loses_one_after_the_other_gets_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        for _ in range(6):
            await world.lose()
        assert world.started == [1002] * 5
        assert world.over == ["6 exec agents ended within 60 seconds; this broker shuts down"]

    run(monkeypatch, scenario)


def test_a_broker_that_stops_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        world.broker.stopping = True
        await world.lose()
        assert (world.killed, world.started, len(world.over)) == ([], [], 1)
        # It is not gone before that.
        world.restarts.end()
        world.restarts.end()
        assert world.killed == [(1001, (), "local:///here")]

    run(monkeypatch, scenario)


def test_what_was_killed_already_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        world.restarts.end()
        assert world.killed == []
        await world.lose()
        world.restarts.end()
        assert len(world.killed) == 1

    run(monkeypatch, scenario)


@pytest.mark.parametrize(("pid", "said"), [(1001, "its jobs are lost"), (0, "no exec agent and no zygote")])
def test_one_that_was_never_born_has_lost_no_jobs(monkeypatch: pytest.MonkeyPatch, pid: int, said: str) -> None:
    async def scenario(world: World) -> None:
        world.agent.pid = pid
        await world.lose()
        assert len(world.logged) == 1 and said in world.logged[0]

    run(monkeypatch, scenario)


def test_why_none_can_be_started_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        world.fails = OSError(errno.EAGAIN, "Resource temporarily unavailable")
        await world.lose()
        assert world.started == []
        assert "another cannot be started: Resource temporarily unavailable" in world.over[0]

    run(monkeypatch, scenario)


def test_a_link_that_was_closed_meanwhile_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        world.agent.closed = True
        await world.lose()
        assert (world.started, world.over) == ([], [])

    run(monkeypatch, scenario)
