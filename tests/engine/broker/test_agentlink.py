"""The broker's end of the agent's socket: batches out, batches in, what cannot be sent, and the end."""

from __future__ import annotations

import asyncio
import mmap
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.engine.agent.protocol import Reader, frame
from headrace.engine.broker.agentlink import AgentLink
from waiting import stays_in_loop

Run = Callable[..., None]


async def until(done: Callable[[], object]) -> None:
    for _ in range(10_000):
        if done():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came")


def with_link(in_broker: Run, body: Callable[[Any, AgentLink, socket.socket], Awaitable[None]]) -> None:
    async def scenario(broker: Any) -> None:
        broker.receive_buffer = memoryview(mmap.mmap(-1, 1 << 16))
        ours, its = socket.socketpair()
        its.setblocking(False)
        link = AgentLink(broker, 0)
        link.start(ours)
        with its:
            await body(broker, link, its)
        link.close()

    in_broker(scenario)


def test_what_is_sent_in_a_turn_is_one_frame(in_broker: Run) -> None:
    async def body(broker: Any, link: AgentLink, agent: socket.socket) -> None:
        link.send({"op": "kill", "id": 1})
        link.send({"op": "kill", "id": 2})
        await broker.settle()
        assert agent.recv(1 << 16) == frame([{"op": "kill", "id": 1}, {"op": "kill", "id": 2}])

    with_link(in_broker, body)


def test_an_operation_that_cannot_be_sent_costs_itself_alone(in_broker: Run) -> None:
    async def body(broker: Any, link: AgentLink, agent: socket.socket) -> None:
        for op in ({"op": "a"}, {"op": "b", "id": 1 << 70}, {"op": "c"}):
            link.send(op)
        await broker.settle()
        assert list(Reader().feed(agent.recv(1 << 16))) == [{"op": "a"}, {"op": "c"}]
        assert any("exec agent" in line for line in broker.log.ring)

    with_link(in_broker, body)


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_listeners_get_every_operation_however_it_comes(in_broker: Run, piece: int) -> None:
    async def body(broker: Any, link: AgentLink, agent: socket.socket) -> None:
        got: list[Any] = []

        def broken(op: Any) -> None:
            raise RuntimeError("of this listener alone")

        link.subscribe(broken)
        link.subscribe(got.append)
        data = frame([{"op": "x", "n": 1}, {"op": "y"}]) + frame([]) + frame([{"op": "z"}])
        for begin in range(0, len(data), piece):
            await broker.loop.sock_sendall(agent, data[begin : begin + piece])
            await asyncio.sleep(0)
        await until(lambda: len(got) == 3)
        assert [op["op"] for op in got] == ["x", "y", "z"]
        link.unsubscribe(got.append)
        assert sum("of this listener alone" in line for line in broker.log.ring) == 3

    with_link(in_broker, body)


def test_one_that_is_born_says_who_it_is_to_its_link_alone(in_broker: Run) -> None:
    async def body(broker: Any, link: AgentLink, agent: socket.socket) -> None:
        got: list[Any] = []
        link.subscribe(got.append)
        # Nobody is stopped, nobody to wait for.
        link.keep_going()
        link.wait(60)
        agent.send(frame([{"op": "hello", "pid": 77}, {"op": "x"}]))
        await until(lambda: got)
        assert (link.pid, got) == (77, [{"op": "x"}])

    with_link(in_broker, body)


def test_what_an_agent_takes_slowly_arrives_whole_and_in_order(in_broker: Run) -> None:
    async def body(broker: Any, link: AgentLink, agent: socket.socket) -> None:
        sent = [{"op": "exec-write", "data": bytes([number]) * 300_000} for number in range(20)]
        for op in sent:
            link.send(op)
            await broker.settle()
        reader, got = Reader(), []
        while len(got) < len(sent):
            got.extend(reader.feed(await broker.loop.sock_recv(agent, 10_000)))
        assert got == sent
        link.send({"op": "kill", "id": 1})
        assert list(reader.feed(await broker.loop.sock_recv(agent, 10_000))) == [{"op": "kill", "id": 1}]

    with_link(in_broker, body)


def test_nothing_is_read_while_the_way_up_is_full(in_broker: Run) -> None:
    async def body(broker: Any, link: AgentLink, agent: socket.socket) -> None:
        got: list[Any] = []
        link.subscribe(got.append)
        link.pause()
        agent.send(frame([{"op": "x"}]))
        await stays_in_loop(lambda: got == [], 0.05)
        link.resume()
        await until(lambda: got)

    with_link(in_broker, body)


def test_an_agent_that_ends_is_told_of_once_and_one_that_we_left_is_not(in_broker: Run) -> None:
    async def body(broker: Any, link: AgentLink, agent: socket.socket) -> None:
        lost: list[bool] = []
        link.lost = lambda: lost.append(True)
        agent.close()
        await until(lambda: lost)
        link.send({"op": "kill", "id": 1})
        await broker.settle()
        assert lost == [True]

    with_link(in_broker, body)

    async def leaving(broker: Any, link: AgentLink, agent: socket.socket) -> None:
        link.lost = lambda: pytest.fail("we closed it")
        link.send({"op": "shutdown"})
        link.close()
        await broker.settle()
        assert list(Reader().feed(agent.recv(100))) == [{"op": "shutdown"}]
        assert agent.recv(100) == b""

    with_link(in_broker, leaving)


def test_what_is_sent_while_there_is_no_agent_is_for_the_next(in_broker: Run) -> None:
    async def body(broker: Any, link: AgentLink, agent: socket.socket) -> None:
        heard: list[Any] = []
        link.subscribe(heard.append)
        # Half of a frame, of which the rest never comes.
        agent.send(frame([{"op": "x"}])[:-1])
        link.send({"op": "kill", "id": 1})
        agent.close()
        await until(lambda: heard)
        assert heard == [{"op": "gone"}]
        link.send({"op": "kill", "id": 2})
        await broker.settle()
        ours, another = socket.socketpair()
        another.setblocking(False)
        link.start(ours)
        with another:
            link.send({"op": "kill", "id": 3})
            await broker.settle()
            told = list(Reader().feed(another.recv(1 << 16)))
            assert told == [{"op": "kill", "id": 2}, {"op": "kill", "id": 3}]
            await broker.loop.sock_sendall(another, frame([{"op": "y"}]))
            await until(lambda: len(heard) == 2)
            assert heard[1] == {"op": "y"}

    with_link(in_broker, body)
