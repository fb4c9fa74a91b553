"""The port of a node: whose a connection is, by what the client says first, however it comes."""

from __future__ import annotations

import heapq
import select
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from headrace.engine.agent.agent import Agent
from headrace.engine.shell.pmix import port
from headrace.engine.shell.pmix.offer import Offer
from headrace.engine.shell.pmix.port import Port


class Loop:
    """What a port uses of the agent's loop."""

    def __init__(self) -> None:
        self._readers: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []

    def watch(self, fd: int, on_readable: Callable[[], None]) -> None:
        self._readers[fd] = on_readable

    def unwatch(self, fd: int) -> None:
        self._readers.pop(fd, None)

    def after(self, seconds: float, fn: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, len(self._timers), fn))

    def run_until(self, met: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not met():
            assert time.monotonic() < deadline
            for fd in select.select(list(self._readers), [], [], 0.001)[0]:
                if fd in self._readers:
                    self._readers[fd]()
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()


class Job:
    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.clients: list[socket.socket] = []

    def connected(self, client: socket.socket) -> None:
        self.clients.append(client)


class World:
    def __init__(self) -> None:
        self.loop = Loop()
        self.port = Port(cast(Agent, self.loop))
        self.address: tuple[str, int] = ("", 0)

    def job(self, namespace: str) -> Job:
        job = Job(namespace)
        host, _, number = self.port.add(cast(Offer, job)).removeprefix("tcp4://").rpartition(":")
        self.address = host, int(number)
        return job

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=60)


@pytest.fixture
def world() -> World:
    return World()


def _has_ended(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_jobs_share_a_port_and_each_gets_its_own_clients_with_all_they_said(world: World) -> None:
    jobs: dict[str, Any] = {name: world.job(name) for name in ("fAB", "fABC", "fB")}
    clients = {name: world.connect() for name in jobs}
    for name, client in clients.items():
        client.sendall(b"\x00\x01native\0" + name.encode() + b"\0\x00\x00\x00\x02")
    world.loop.run_until(lambda: all(len(job.clients) == 1 for job in jobs.values()))
    for name, job in jobs.items():
        assert job.clients[0].recv(100) == b"\x00\x01native\0" + name.encode() + b"\0\x00\x00\x00\x02"


def test_a_greeting_may_come_in_pieces(world: World) -> None:
    job = world.job("fAB")
    client = world.connect()
    seen = 0

    def next_byte() -> bool:
        nonlocal seen
        if seen < 8:
            client.sendall(b"\0\0x\0fAB\0"[seen : seen + 1])
            seen += 1
        return bool(job.clients)

    world.loop.run_until(next_byte)
    assert seen == 8


def test_a_client_of_a_job_that_is_over_or_of_none_is_turned_away(world: World) -> None:
    over = world.job("fAB")
    world.port.remove(cast(Offer, over))
    for greeting in (b"\0fAB\0", b"GET / HTTP/1.0\r\n\r\n", b""):
        client = world.connect()
        client.sendall(greeting)
        client.shutdown(socket.SHUT_WR)
        world.loop.run_until(partial(_has_ended, client))
    assert over.clients == []


def test_strangers_hold_few_descriptors_and_keep_no_client_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "_MOST", 8)
    monkeypatch.setattr(port, "_PATIENCE", 0.5)
    crowd = World()
    job = crowd.job("fAB")
    # One of them says something that is no greeting.
    strangers = [crowd.connect() for _ in range(100)]
    strangers[-1].sendall(b"x")
    client = crowd.connect()
    client.sendall(b"\0fAB\0")
    crowd.loop.run_until(lambda: len(job.clients) == 1)
    assert len(crowd.loop._readers) <= 1 + 8

    def ended() -> int:
        # A part of a greeting is peeked at for longer.
        return sum(1 for one in strangers[:-1] if _has_ended(one))

    crowd.loop.run_until(lambda: ended() == 99)
    assert list(crowd.loop._readers) == [crowd.port._listener.fileno()] if crowd.port._listener else False
